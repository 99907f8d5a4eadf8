//! Calls that join the lease of a call around them: whose keys bear the marks, and that calls side by
//! side get on.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::server::Server;
use tests::wait;

use crate::support::{is_done, nap, pair};

const SECOND: Duration = Duration::from_secs(1);

#[distributed_lock(key = ["order:<id>", "stock:<id>"], client = locks)]
async fn order_and_stock<F: Future<Output: Send>>(
    locks: &Client,
    id: u32,
    inside: F,
) -> Result<F::Output, Error> {
    Ok(inside.await)
}

/// Closed by a `min_hold`: nobody's, and not free.
fn is_closed(server: &Server, lock: &str) -> bool {
    let value = server.get(lock);
    value.is_some_and(|value| value.starts_with("0000"))
}

#[tokio::test]
async fn the_mark_of_a_joined_call_is_of_the_keys_that_it_named() {
    #[distributed_lock(key = "order:<id>", once = "24h", client = locks)]
    async fn ship(locks: &Client, id: u32) -> Result<Option<()>, Error> {
        Ok(Some(()))
    }
    #[distributed_lock(key = ["stock:<id>", "shelf:<id>"], once = "24h", client = locks)]
    async fn count(locks: &Client, id: u32) -> Result<Option<()>, Error> {
        Ok(Some(()))
    }
    let (server, locks) = pair().await;
    let inside = ship(&locks, 1);
    let ran = order_and_stock(&locks, 1, inside).await.unwrap();
    assert_eq!(ran.unwrap(), Some(()));
    assert!(is_done(&server, "lock:order:1"), "{:?}", server.keys());
    assert_eq!(server.keys(), ["lock:order:1"]);
    // It runs no more, and other work on the stock does.
    assert_eq!(ship(&locks, 1).await.unwrap(), None);
    drop(locks.lock("stock:1").acquire().await.unwrap());
    // One that joins for one of its keys and takes the other: both are its own.
    let inside = count(&locks, 2);
    let ran = order_and_stock(&locks, 2, inside).await.unwrap();
    assert_eq!(ran.unwrap(), Some(()));
    let marked = || is_done(&server, "lock:stock:2") && is_done(&server, "lock:shelf:2");
    wait::until("both are marked", marked).await;
    assert_eq!(server.get("lock:order:2"), None);
}

#[tokio::test]
async fn the_min_hold_of_a_joined_call_is_of_the_keys_that_it_named() {
    #[distributed_lock(key = "order:<id>", min_hold = "5s", client = locks)]
    async fn ship(locks: &Client, id: u32) -> Result<(), Error> {
        Ok(())
    }
    let (server, locks) = pair().await;
    let inside = ship(&locks, 1);
    order_and_stock(&locks, 1, inside).await.unwrap().unwrap();
    assert!(is_closed(&server, "lock:order:1"), "{:?}", server.keys());
    assert_eq!(server.keys(), ["lock:order:1"]);
    drop(locks.lock("stock:1").acquire().await.unwrap());
}

/// Each of two keys bears what was asked for it.
#[tokio::test]
async fn two_joined_calls_leave_each_their_own_mark() {
    #[distributed_lock(key = "order:<id>", once = "24h", client = locks)]
    async fn ship(locks: &Client, id: u32) -> Result<Option<()>, Error> {
        Ok(Some(()))
    }
    #[distributed_lock(key = "stock:<id>", min_hold = "5s", client = locks)]
    async fn count(locks: &Client, id: u32) -> Result<(), Error> {
        Ok(())
    }
    let (server, locks) = pair().await;
    let inside = async {
        ship(&locks, 1).await.unwrap();
        count(&locks, 1).await.unwrap();
        // Its work is done for those inside as well, and the other's is not.
        assert_eq!(ship(&locks, 1).await.unwrap(), None);
        count(&locks, 1).await.unwrap();
    };
    order_and_stock(&locks, 1, inside).await.unwrap();
    assert!(is_done(&server, "lock:order:1"), "{:?}", server.keys());
    assert!(is_closed(&server, "lock:stock:1"), "{:?}", server.keys());
}

/// The mark of one key says nothing of another that the same lease holds.
#[tokio::test]
async fn a_mark_on_one_key_does_not_keep_a_call_of_the_other_from_running() {
    #[distributed_lock(key = "<what>:<id>", once = "24h", client = locks)]
    async fn once(locks: &Client, what: &str, id: u32) -> Result<Option<()>, Error> {
        Ok(Some(()))
    }
    let (server, locks) = pair().await;
    let inside = async {
        let order = once(&locks, "order", 1).await.unwrap();
        let stock = once(&locks, "stock", 1).await.unwrap();
        (order, stock)
    };
    let ran = order_and_stock(&locks, 1, inside).await.unwrap();
    assert_eq!(ran, (Some(()), Some(())));
    assert!(is_done(&server, "lock:order:1") && is_done(&server, "lock:stock:1"));
}

/// Two keys in the order in which they are given.
#[distributed_lock(key = ["<x>", "<y>"], wait = "20s", client = locks)]
async fn pair_of(locks: &Client, x: &str, y: &str, inside: &AtomicUsize) -> Result<(), Error> {
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
    nap(50).await;
    inside.fetch_sub(1, Ordering::SeqCst);
    Ok(())
}

#[distributed_lock(key = "<x>", client = locks)]
async fn around<F: Future>(locks: &Client, x: &str, inside: F) -> Result<F::Output, Error> {
    Ok(inside.await)
}

#[distributed_lock(key = ["a", "b"], client = locks)]
async fn around_both<F: Future>(locks: &Client, inside: F) -> Result<F::Output, Error> {
    Ok(inside.await)
}

async fn soon<T>(what: &str, calls: impl Future<Output = T>) -> T {
    let begun = Instant::now();
    let answer = tokio::time::timeout(4 * SECOND, calls).await;
    println!("{what}: {:?}", begun.elapsed());
    answer.unwrap_or_else(|_| panic!("they stand still: {what}"))
}

/// While the first is inside, the others queue for the same keys in different orders.
async fn opposite_orders(locks: &Client) -> [Result<(), Error>; 4] {
    let inside = AtomicUsize::new(0);
    tokio::join!(
        pair_of(locks, "a", "b", &inside),
        pair_of(locks, "a", "b", &inside),
        pair_of(locks, "b", "a", &inside),
        pair_of(locks, "a", "b", &inside),
    )
    .into()
}

#[tokio::test]
async fn calls_side_by_side_under_both_keys_take_turns_in_any_order_of_keys() {
    let (_server, locks) = pair().await;
    let calls = opposite_orders(&locks);
    let under = around_both(&locks, calls);
    let answers = soon("under both", Box::pin(under)).await.unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

#[tokio::test]
async fn calls_side_by_side_under_nested_calls_take_turns_in_any_order_of_keys() {
    let (_server, locks) = pair().await;
    let calls = opposite_orders(&locks);
    let under = around(&locks, "a", around(&locks, "b", calls));
    let answers = soon("under a, then b", Box::pin(under)).await;
    let answers = answers.unwrap().unwrap();
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
}

/// Two alone, and one of them begins a moment later.
#[tokio::test]
async fn two_side_by_side_take_turns_in_any_order_of_keys() {
    let (_server, locks) = pair().await;
    let inside = AtomicUsize::new(0);
    for nested in [false, true] {
        let calls = async {
            tokio::join!(pair_of(&locks, "a", "b", &inside), async {
                nap(10).await;
                pair_of(&locks, "b", "a", &inside).await
            })
        };
        let answers = if nested {
            let under = around(&locks, "a", around(&locks, "b", calls));
            soon("nested", Box::pin(under)).await.unwrap().unwrap()
        } else {
            let under = around_both(&locks, calls);
            soon("together", Box::pin(under)).await.unwrap()
        };
        assert!(matches!(answers, (Ok(()), Ok(()))), "{answers:?}");
    }
}

#[tokio::test]
async fn calls_side_by_side_in_a_circle_of_keys_take_turns() {
    let (_server, locks) = pair().await;
    // Of any two calls that are side by side in here, each has a key that the other needs.
    let inside = AtomicUsize::new(0);
    let calls = async {
        tokio::join!(
            pair_of(&locks, "a", "b", &inside),
            pair_of(&locks, "a", "b", &inside),
            pair_of(&locks, "b", "c", &inside),
            pair_of(&locks, "c", "a", &inside),
            pair_of(&locks, "b", "c", &inside),
        )
    };
    let under = around(&locks, "c", around(&locks, "a", around(&locks, "b", calls)));
    let answers = soon("in a circle", Box::pin(under)).await;
    let answers = answers.unwrap().unwrap().unwrap();
    let all = matches!(answers, (Ok(()), Ok(()), Ok(()), Ok(()), Ok(())));
    assert!(all, "{answers:?}");
}

/// The keys that are missing are taken from the store by either: one waits for the other.
#[tokio::test]
async fn two_side_by_side_that_need_one_more_key_take_turns() {
    let (_server, locks) = pair().await;
    let inside = AtomicUsize::new(0);
    let calls = async {
        tokio::join!(
            pair_of(&locks, "a", "more", &inside),
            pair_of(&locks, "more", "b", &inside),
            pair_of(&locks, "b", "a", &inside),
        )
    };
    let under = around(&locks, "b", around(&locks, "a", calls));
    let (one, two, three) = soon("one more key", Box::pin(under))
        .await
        .unwrap()
        .unwrap();
    one.unwrap();
    two.unwrap();
    three.unwrap();
}
