//! `blocking` where it cannot be.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip, blocking)]
async fn awaits() {}

#[distributed_lock(key = "b", on_busy = skip, blocking)]
fn returns_a_future() -> impl Future<Output = ()> {
    async {}
}

#[distributed_lock(key = "c", on_busy = skip, on_lost = cancel("2s"), blocking)]
fn cannot_wind_down() {}

#[distributed_lock(key = "d", on_busy = skip, blocking)]
const fn constant() {}

#[distributed_lock(key = "e", on_busy = skip, blocking = true)]
fn has_a_value() {}

#[distributed_lock(key = "f", on_busy = skip, blocking)]
#[distributed_lock(key = "g", on_busy = skip)]
fn one_of_two() {}

#[distributed_lock(key = "h", on_busy = skip, sync)]
fn another_word() {}

mod program {
    #[lockattr::distributed_lock(key = "i", on_busy = skip, blocking)]
    fn main() {}
}

fn main() {}
