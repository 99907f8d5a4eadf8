//! `return EXPR` of another type than the function's.
use lockattr::distributed_lock;

#[distributed_lock(key = "a:<id>", on_busy = return Err("busy"))]
async fn wrong_error(id: u64) -> Result<u64, lockattr::Error> {
    Ok(id)
}

#[distributed_lock(key = "b", on_busy = return)]
async fn nothing() -> Result<u64, lockattr::Error> {
    Ok(1)
}

fn main() {}
