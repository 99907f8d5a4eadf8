//! A key that is not a string literal.
use lockattr::distributed_lock;

const KEY: &str = "sync";

#[distributed_lock(key = KEY)]
async fn constant() -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = concat!("sync:", "nightly"))]
async fn concatenated() -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = format!("sync:{user_id}"))]
async fn formatted(user_id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = b"sync")]
async fn bytes() -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = 42)]
async fn number() -> Result<(), lockattr::Error> {
    Ok(())
}

fn main() {}
