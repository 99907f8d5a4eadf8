//! The done marks of `once` where the store is away just when the work is done: a mark is sent again
//! like a pending release, and one that cannot be set is reported.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::log;
use tests::server::Server;
use tests::wait;
use tracing::Level;

use crate::support::{CLEARED, behind_a_proxy, client, is_done, nap};

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(1);

#[distributed_lock(key = "<key>", ttl = TTL, once = "24h", client = locks)]
async fn once<F: Future<Output: Send>>(
    locks: &Client,
    key: &str,
    runs: &AtomicUsize,
    inside: F,
) -> Result<Option<F::Output>, Error> {
    runs.fetch_add(1, Ordering::SeqCst);
    Ok(Some(inside.await))
}

async fn is_marked_and_runs_no_more(server: &Server, key: &str, runs: &AtomicUsize) {
    let lock = format!("lock:{key}");
    wait::within("the mark is there", CLEARED, || is_done(server, &lock)).await;
    let left = server.pttl(&lock);
    assert!(left > 86_400_000 - 20_000, "{left} ms");
    let others = client(server).await;
    assert!(once(&others, key, runs, async {}).await.unwrap().is_none());
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn the_mark_is_kept_where_the_server_stood_still_for_longer_than_the_ttl() {
    let server = Server::start();
    let locks = client(&server).await;
    let runs = AtomicUsize::new(0);
    let ran = once(&locks, "done-frozen", &runs, async { server.freeze() }).await;
    assert!(matches!(ran, Ok(Some(()))), "{ran:?}");
    nap(2_500).await;
    server.thaw();
    is_marked_and_runs_no_more(&server, "done-frozen", &runs).await;
}

#[tokio::test]
async fn the_mark_is_kept_where_the_network_was_away_for_longer_than_the_ttl() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let runs = AtomicUsize::new(0);
    let ran = once(&locks, "done-cut", &runs, async { proxy.refuse() }).await;
    assert!(matches!(ran, Ok(Some(()))), "{ran:?}");
    nap(2_500).await;
    assert_eq!(server.size(), 0, "the lease has run out");
    proxy.heal();
    is_marked_and_runs_no_more(&server, "done-cut", &runs).await;
}

/// A server that comes back with nothing of what it knew.
#[tokio::test]
async fn the_mark_is_kept_where_the_server_restarted_empty() {
    let server = Server::start();
    let locks = client(&server).await;
    let runs = AtomicUsize::new(0);
    let ran = once(&locks, "done-restarted", &runs, async { server.kill() }).await;
    assert!(matches!(ran, Ok(Some(()))), "{ran:?}");
    nap(1_500).await;
    server.restart();
    is_marked_and_runs_no_more(&server, "done-restarted", &runs).await;
}

/// Of several keys, each that nobody else has taken; of the others it is told.
#[tokio::test]
async fn the_marks_of_several_keys_are_kept() {
    #[distributed_lock(key = ["pending:x", "pending:y"], ttl = TTL, once = "24h", client = locks)]
    async fn several<F: Future<Output: Send>>(
        locks: &Client,
        inside: F,
    ) -> Result<Option<F::Output>, Error> {
        Ok(Some(inside.await))
    }
    log::listen();
    let (server, proxy, locks) = behind_a_proxy().await;
    let other = client(&server).await;
    several(&locks, async { proxy.refuse() }).await.unwrap();
    nap(1_500).await;
    let taken = other.lock("pending:y").acquire().await.unwrap();
    proxy.heal();
    let is_marked = || is_done(&server, "lock:pending:x");
    wait::within("the free key is marked", CLEARED, is_marked).await;
    let holder = server.owner("lock:pending:y");
    assert_eq!(holder.as_deref(), Some(taken.owner()));
    let told = || {
        let mut about = log::about("pending:y").into_iter();
        about.any(|told| told.level == Level::ERROR)
    };
    wait::within("the other is told", 5 * SECOND + CLEARED, told).await;
}

/// Another has taken the key meanwhile, and may do the work again: nothing of its lease is touched,
/// and the log says so at the level of what needs somebody.
#[tokio::test]
async fn a_mark_that_cannot_be_kept_is_told() {
    log::listen();
    let (server, proxy, locks) = behind_a_proxy().await;
    let other = client(&server).await;
    let (runs, key) = (AtomicUsize::new(0), "done-taken-meanwhile");
    let lock = format!("lock:{key}");
    let ran = once(&locks, key, &runs, async { proxy.refuse() }).await;
    println!("{ran:?}");
    wait::until("it has run out", || server.get(&lock).is_none()).await;
    let request = other.lock(key).ttl(30 * SECOND);
    let taken = request.acquire().await.unwrap();
    proxy.heal();
    let begun = Instant::now();
    let errors = || {
        let told = log::about(key).into_iter();
        told.filter(|told| told.level == Level::ERROR).count()
    };
    // The next try may be a while away, and there is no hurry with this.
    wait::within("it is told", 5 * SECOND + CLEARED, || errors() > 0).await;
    println!("told after {:?}", begun.elapsed());
    assert_eq!(server.owner(&lock).as_deref(), Some(taken.owner()));
    assert!(server.pttl(&lock) > 20_000);
    nap(500).await;
    assert_eq!(errors(), 1, "{:?}", log::about(key));
    taken.release().await.unwrap();
}
