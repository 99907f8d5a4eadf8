//! Values that have no one way to be written.
use lockattr::distributed_lock;

struct Order {
    id: u64,
}

#[distributed_lock(key = "a:<id>")]
async fn option(id: Option<u64>) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "b:<order>")]
async fn whole_struct(order: Order) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "c:<bytes>")]
async fn slice(bytes: &[u8]) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "d:<value>")]
async fn generic<T>(value: T) -> Result<(), lockattr::Error> {
    Ok(())
}

fn main() {}
