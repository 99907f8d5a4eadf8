//! Templates in which two different values would make one key.
use lockattr::distributed_lock;

#[distributed_lock(key = "move:<from><to>")]
async fn side_by_side(from: u64, to: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "scale:<percent>%")]
async fn percent_sign(percent: u8) -> Result<(), lockattr::Error> {
    Ok(())
}

fn main() {}
