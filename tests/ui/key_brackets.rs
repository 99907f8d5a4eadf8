//! Brackets that do not pair up, or hold nothing.
use lockattr::distributed_lock;

#[distributed_lock(key = "sync:<user_id:nightly")]
async fn unclosed(user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "sync:user_id>")]
async fn unopened(user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "move:a->b")]
async fn arrow() -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "sync:<>")]
async fn empty(user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "sync:< user_id >")]
async fn spaces(user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

fn main() {}
