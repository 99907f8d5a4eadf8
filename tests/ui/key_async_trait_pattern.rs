//! `#[async_trait]` takes the names of patterns away.
use async_trait::async_trait;
use lockattr::distributed_lock;

struct Order {
    id: u64,
}

#[async_trait]
trait Jobs {
    async fn run(&self, order: Order) -> Result<(), lockattr::Error>;
}

struct Worker;

#[async_trait]
impl Jobs for Worker {
    #[distributed_lock(key = "order:<id>")]
    async fn run(&self, Order { id }: Order) -> Result<(), lockattr::Error> {
        println!("{id}");
        Ok(())
    }
}

fn main() {}
