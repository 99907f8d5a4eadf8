//! `on_unavailable = local` with `shared` and `weight`: what the store has granted to this process and what is
//! granted locally are held beside each other where both could be the store's, and not otherwise.

use lockattr::{Client, Error, distributed_lock};
use tests::wait;
use tokio::sync::Notify;

use crate::support::pair;

#[distributed_lock(key = "doc", shared, on_unavailable = local, client = locks)]
async fn read(locks: &Client, body: impl Future<Output = ()>) -> Result<(), Error> {
    body.await;
    Ok(())
}

#[distributed_lock(key = "doc", on_unavailable = local, client = locks)]
async fn write(locks: &Client, body: impl Future<Output = ()>) -> Result<(), Error> {
    body.await;
    Ok(())
}

#[distributed_lock(
    key = "units",
    permits = 10,
    weight = weight,
    on_unavailable = local,
    client = locks
)]
async fn take(locks: &Client, weight: u32, body: impl Future<Output = ()>) -> Result<(), Error> {
    body.await;
    Ok(())
}

#[track_caller]
fn is_busy(answer: Result<(), Error>) {
    let refused = answer.expect_err("it is busy");
    assert!(matches!(refused, Error::Busy { .. }), "{refused:?}");
}

#[tokio::test]
async fn readers_of_both_are_together_and_writers_of_neither() {
    let (server, locks) = pair().await;
    let reader = locks.lock("doc").shared().acquire().await.unwrap();
    server.refuse_writes();
    read(&locks, async {
        read(&locks, async {}).await.unwrap();
    })
    .await
    .unwrap();
    is_busy(write(&locks, async {}).await);
    assert!(locks.stats().unguarded > 0);
    server.accept_writes();
    reader.release().await.unwrap();

    // A local reader goes on while the store is back.
    server.refuse_writes();
    let (reads, done) = (Notify::new(), Notify::new());
    let local = read(&locks, async {
        reads.notify_one();
        done.notified().await;
    });
    let by_store = async {
        reads.notified().await;
        server.accept_writes();
        read(&locks, async {}).await.unwrap();
        is_busy(write(&locks, async {}).await);
        done.notify_one();
    };
    let (local, ()) = tokio::join!(local, by_store);
    local.unwrap();
    write(&locks, async {}).await.unwrap();
    wait::until("nothing is left", || server.size() == 0).await;

    let writer = locks.lock("doc").acquire().await.unwrap();
    server.refuse_writes();
    is_busy(read(&locks, async {}).await);
    server.accept_writes();
    drop(writer);
}

#[tokio::test]
async fn weights_of_both_are_counted_together() {
    let (server, locks) = pair().await;
    let held = locks.lock("units").permits(10).weight(6);
    let held = held.acquire().await.unwrap();
    server.refuse_writes();
    take(&locks, 3, async {
        is_busy(take(&locks, 10, async {}).await);
    })
    .await
    .unwrap();
    is_busy(take(&locks, 5, async {}).await);
    server.accept_writes();
    held.release().await.unwrap();

    server.refuse_writes();
    let (taken, done) = (Notify::new(), Notify::new());
    let local = take(&locks, 7, async {
        taken.notify_one();
        done.notified().await;
    });
    let by_store = async {
        taken.notified().await;
        server.accept_writes();
        is_busy(take(&locks, 4, async {}).await);
        take(&locks, 3, async {}).await.unwrap();
        done.notify_one();
    };
    let (local, ()) = tokio::join!(local, by_store);
    local.unwrap();
    wait::until("nothing is left", || server.size() == 0).await;
}
