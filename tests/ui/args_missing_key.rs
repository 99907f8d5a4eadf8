//! An attribute that does not say what is locked.
use lockattr::distributed_lock;

#[distributed_lock]
async fn nothing() -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(ttl = "30s")]
async fn no_key() -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock("sync:<user_id>")]
async fn key_without_name(user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

fn main() {}
