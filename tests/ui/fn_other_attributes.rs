//! An error of the attribute is no error of what stands beside it.
#![deny(warnings)]
use lockattr::{Error, distributed_lock};
use tracing::instrument;

#[distributed_lock(key = "a", tll = "30s")]
async fn one_expression(id: u64) -> Option<u64> {
    Some(id)
}

#[async_trait::async_trait]
trait Jobs {
    async fn run(&self, id: u64) -> Result<u64, Error>;
}

struct Worker;

#[async_trait::async_trait]
impl Jobs for Worker {
    #[distributed_lock(key = "b:<ib>")]
    #[instrument(skip(self), ret, err)]
    async fn run(&self, id: u64) -> Result<u64, Error> {
        Ok(id)
    }
}

fn main() {
    let _ = one_expression(1);
    let _ = Worker.run(1);
}
