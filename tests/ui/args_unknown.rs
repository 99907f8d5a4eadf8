//! Arguments that do not exist.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", tll = "30s", onbusy = skip)]
async fn misspelt() {}

#[distributed_lock(key = "b", on_busy = skip, timeout = "5s")]
async fn timeout() {}

#[distributed_lock(key = "c", on_busy = skip, expires = "5s", retry = 3)]
async fn by_meaning() {}

#[distributed_lock(kye = "d", on_busy = skip)]
async fn misspelt_key() {}

#[distributed_lock(key = "e", on_busy = skip, colour = "red")]
async fn far_from_all() {}

fn main() {}
