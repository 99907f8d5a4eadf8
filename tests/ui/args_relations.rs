//! Arguments that are each right, and wrong together.
use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip, renew = false, on_lost = continue)]
async fn no_lock_left() {}

#[distributed_lock(key = "b", on_busy = skip, min_hold = "2m", max_hold = "90s")]
async fn closed_for_longer_than_held() {}

#[distributed_lock(key = "c", on_busy = skip, ttl = "10s", renew = false, max_hold = "1m")]
async fn never_reached() {}

#[distributed_lock(key = "d", on_busy = skip, max_hold = "1m", on_lost = continue)]
async fn never_ended() {}

#[distributed_lock(key = "e", on_busy = skip, once = "1h", permits = 3)]
async fn done_for_all() {}

#[distributed_lock(key = ["f", "g"], on_busy = skip, permits = 3)]
async fn permits_of_several() {}

#[distributed_lock(key = ["f:<ids>"], on_busy = skip, permits = 3)]
async fn permits_of_a_list(ids: Vec<u8>) {}

#[distributed_lock(key = "h", on_busy = skip, on_done = error)]
async fn nothing_is_done() {}

#[distributed_lock(key = "i", on_busy = rerun, once = "1h")]
async fn run_again_and_not() {}

#[distributed_lock(key = ["j", "k"], on_busy = rerun)]
async fn reruns_of_several() {}

fn main() {}
