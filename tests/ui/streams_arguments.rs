//! Arguments that are not for streams.
use std::pin::Pin;

use futures_core::Stream;
use lockattr::{Error, distributed_lock};

type Rows = Pin<Box<dyn Stream<Item = Result<u8, Error>> + Send>>;

#[distributed_lock(key = "a", bind = lease)]
fn no_body_for_a_lease() -> Pin<Box<dyn Stream<Item = Result<u8, Error>> + Send>> {
    drop(lease.share());
    unreachable!("it does not compile")
}

#[distributed_lock(key = "b", blocking)]
fn not_on_a_thread() -> Pin<Box<dyn Stream<Item = Result<u8, Error>> + Send>> {
    unreachable!("it does not compile")
}

#[distributed_lock(key = "c")]
fn its_name_says_nothing() -> Rows {
    unreachable!("it does not compile")
}

fn main() {}
