//! Functions that cannot await a lock.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip)]
fn ordinary() {}

#[distributed_lock(key = "b", on_busy = skip)]
fn returns_an_iterator() -> impl Iterator<Item = u8> {
    [1].into_iter()
}

#[distributed_lock(key = "c", on_busy = skip)]
const fn constant() {}

#[distributed_lock(key = "d")]
async fn never() -> ! {
    loop {}
}

fn main() {}
