//! A trait method without a body.
use lockattr::distributed_lock;

trait Jobs {
    #[distributed_lock(key = "a", on_busy = skip)]
    async fn run(&self);
}

fn main() {}
