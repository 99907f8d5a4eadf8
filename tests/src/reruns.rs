//! Events during a run, on whichever store: of those that come meanwhile, one is seen to after it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockattr::{Client, Error, distributed_lock};
use tokio::time::sleep;

use crate::wait;

/// How often the body has begun, and how many are inside.
#[derive(Debug, Default)]
struct Runs {
    begun: AtomicUsize,
    inside: AtomicUsize,
}

#[distributed_lock(key = "rerun:<tag>", ttl = ttl, on_busy = rerun, client = locks)]
async fn see_to(
    locks: &Client,
    tag: &str,
    ttl: Duration,
    runs: &Runs,
) -> Result<Option<()>, Error> {
    assert_eq!(runs.inside.fetch_add(1, Ordering::SeqCst), 0);
    runs.begun.fetch_add(1, Ordering::SeqCst);
    sleep(Duration::from_millis(1_500)).await;
    runs.inside.fetch_sub(1, Ordering::SeqCst);
    Ok(Some(()))
}

/// Ten events over two clients while one is seen to cost one more run, and so does one that comes when that has
/// begun.
pub async fn a_burst_costs_two_runs(locks: &Client, other: &Client, ttl: Duration) {
    let runs = Runs::default();
    let call = |locks| Box::pin(see_to(locks, "größe", ttl, &runs));
    let burst = async {
        wait::until("the first runs", || runs.begun.load(Ordering::SeqCst) == 1).await;
        let calls = [locks, other].map(|locks| async move {
            let calls = (
                call(locks),
                call(locks),
                call(locks),
                call(locks),
                call(locks),
            );
            let all = tokio::join!(calls.0, calls.1, calls.2, calls.3, calls.4);
            [all.0, all.1, all.2, all.3, all.4]
        });
        let [here, there] = calls;
        let (here, there) = tokio::join!(here, there);
        let all = here.into_iter().chain(there);
        let ran = all.filter(|one| one.as_ref().expect("no outage").is_some());
        assert_eq!(ran.count(), 1);
    };
    let later = async {
        wait::until("the second runs", || runs.begun.load(Ordering::SeqCst) == 2).await;
        assert!(call(other).await.expect("no outage").is_some());
    };
    let (first, (), ()) = tokio::join!(call(locks), burst, later);
    assert!(first.expect("no outage").is_some());
    assert_eq!(runs.begun.load(Ordering::SeqCst), 3);
}
