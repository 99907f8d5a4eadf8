//! Placeholders of other template languages, which would be one key for all values.
use lockattr::distributed_lock;

#[distributed_lock(key = "sync:$user_id")]
async fn shell(user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "sync:$id")]
async fn another_name(user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "/users/:id")]
async fn route(id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "sync:%s:%d")]
async fn printf(region: String, user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "a:${id}:#{id}:{{ id }}:%{id}")]
async fn with_braces(id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "sync:[id]:@id")]
async fn brackets(id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "report:%Y-%m")]
async fn date() -> Result<(), lockattr::Error> {
    Ok(())
}

fn main() {}
