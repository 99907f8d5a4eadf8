//! All errors of one attribute in one build, and none for the function itself: its lease can still
//! be named.
use lockattr::distributed_lock;

#[distributed_lock(key = "sync:<usr_id>", ttl = "30", on_busy = Skip, renw = true, bind = lease)]
async fn everything(user_id: u64) {
    println!("{} {}", user_id, lease.key());
}

async fn caller() {
    everything(1).await;
}

fn main() {}
