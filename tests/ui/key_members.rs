//! Fields and methods that are not there, not reachable, or need arguments.
use lockattr::distributed_lock;

mod shop {
    pub struct Order {
        id: u64,
    }

    impl Order {
        pub fn new(id: u64) -> Self {
            Self { id }
        }

        pub fn part(&self, index: usize) -> u64 {
            self.id + index as u64
        }
    }
}

use shop::Order;

#[distributed_lock(key = "a:<order.id>")]
async fn private_field(order: Order) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "b:<order.name>")]
async fn no_such_field(order: Order) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "c:<order.nickname()>")]
async fn no_such_method(order: Order) -> Result<(), lockattr::Error> {
    Ok(())
}

#[distributed_lock(key = "d:<order.part()>")]
async fn method_with_arguments(order: Order) -> Result<(), lockattr::Error> {
    Ok(())
}

fn main() {}
