//! A function with `...`.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip)]
unsafe extern "C" fn variadic(count: u32, _: ...) {}

fn main() {}
