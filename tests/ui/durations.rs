//! Durations that cannot be, each with what was probably meant.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip, ttl = "")]
async fn empty() {}

#[distributed_lock(key = "b", on_busy = skip, ttl = "30")]
async fn no_unit() {}

#[distributed_lock(key = "c", on_busy = skip, ttl = "30 S")]
async fn no_such_unit() {}

#[distributed_lock(key = "d", on_busy = skip, ttl = "-1s")]
async fn negative() {}

#[distributed_lock(key = "e", on_busy = skip, ttl = "0s")]
async fn zero() {}

#[distributed_lock(key = "f", on_busy = skip, ttl = "0.4ms")]
async fn below_a_millisecond() {}

#[distributed_lock(key = "g", on_busy = skip, ttl = "999999999999s")]
async fn huge() {}

#[distributed_lock(key = "h", on_busy = skip, ttl = 30, wait = 1.5)]
async fn numbers() {}

#[distributed_lock(key = "i", on_busy = skip, ttl = "5M", wait = "1,5s")]
async fn month_and_comma() {}

#[distributed_lock(key = "j", on_busy = skip, ttl = seconds * 2)]
async fn expression_of_another_type(seconds: u64) {}

#[distributed_lock(key = "unquoted", on_busy = skip, ttl = 30m, wait = 2 s)]
async fn unquoted() {}

fn main() {}
