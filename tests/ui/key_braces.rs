//! The braces of `format!`.
use lockattr::distributed_lock;

#[distributed_lock(key = "sync:{user_id}")]
async fn likeliest(user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "sync:{}:<user_id>")]
async fn positional(user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "sync:{usr_id}")]
async fn misspelt(user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

fn main() {}
