//! What other template languages have between their brackets.
use lockattr::distributed_lock;

struct Order {
    id: u64,
}

#[distributed_lock(key = "a:<order.>:<order..id>")]
async fn dots(order: Order) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "b:<_>")]
async fn underscore(_: Order) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "c:<order.part(1)>:<order()>")]
async fn calls(order: Order) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "d:<ids[0]>:<Order::id>:<ids:?>")]
async fn operators(ids: Vec<u64>) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "e:<&id>:<id + 1>:<0>:<id.await>")]
async fn expressions(id: u64) -> Result<(), lockattr::Error> {
    Ok(())
}

fn main() {}
