//! Things that are not functions.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip)]
struct Job;

#[distributed_lock(key = "b", on_busy = skip)]
impl Job {
    async fn run(&self) {}
}

#[distributed_lock(key = "c", on_busy = skip)]
trait Jobs {
    async fn run(&self);
}

#[distributed_lock(key = "d", on_busy = skip)]
mod jobs {}

fn main() {
    let _ = Job.run();
}
