//! A wrong type in the body is reported where it stands, as in a plain async fn.
use lockattr::distributed_lock;

#[distributed_lock(key = "a")]
async fn tail() -> Result<u64, lockattr::Error> {
    "text"
}

async fn tail_plain() -> Result<u64, lockattr::Error> {
    "text"
}

#[distributed_lock(key = "b")]
async fn early(id: u64) -> Result<u64, lockattr::Error> {
    if id > 1 {
        return Ok("text");
    }
    Ok(id)
}

async fn early_plain(id: u64) -> Result<u64, lockattr::Error> {
    if id > 1 {
        return Ok("text");
    }
    Ok(id)
}

#[distributed_lock(key = "c")]
async fn semicolon() -> Result<u64, lockattr::Error> {
    Ok(1);
}

async fn semicolon_plain() -> Result<u64, lockattr::Error> {
    Ok(1);
}

#[distributed_lock(key = "d", on_busy = skip)]
async fn unit() {
    5
}

async fn unit_plain() {
    5
}

fn main() {}
