//! One client in a `static`, installed once, in a program whose ten tests each have a runtime of
//! their own: a client outlives runtimes.

#![allow(missing_docs, reason = "the names of tests say what they show")]

use std::sync::LazyLock;
use std::time::Duration;

use lockattr::{Client, Error, distributed_lock};
use tests::server::Server;
use tests::wait;

static SERVER: LazyLock<Server> = LazyLock::new(Server::start);

/// The client of the process, made and installed by whichever test comes first.
static CLIENT: LazyLock<Client> = LazyLock::new(|| {
    let client = Client::builder()
        .connect_lazily(SERVER.url())
        .expect("a URL of ours");
    client.install().expect("the first");
    client
});

#[distributed_lock(key = "sync:<user_id>", ttl = "1s", on_busy = skip)]
async fn sync_user(user_id: u64, millis: u64) -> Result<Option<u64>, Error> {
    tokio::time::sleep(Duration::from_millis(millis)).await;
    Ok(Some(user_id))
}

/// Longer than anybody waits here: it does not merely expire.
#[distributed_lock(key = "long:<user_id>", ttl = "60s", on_busy = skip)]
async fn long(user_id: u64) -> Result<Option<u64>, Error> {
    std::future::pending().await
}

/// What each test does with its runtime: calls, a renewed one among them, and one that it drops
/// with its runtime.
async fn works(user: u64) {
    LazyLock::force(&CLIENT);
    for _ in 0..5 {
        assert_eq!(sync_user(user, 1).await.unwrap(), Some(user));
    }
    let (ran, busy) = tokio::join!(sync_user(user, 1_500), async {
        let key = format!("lock:sync:{user}");
        wait::until("it is held", || SERVER.get(&key).is_some()).await;
        sync_user(user, 1).await
    });
    assert_eq!((ran.unwrap(), busy.unwrap()), (Some(user), None));
    tokio::spawn(long(user));
    let key = format!("lock:long:{user}");
    wait::until("it is held", || SERVER.get(&key).is_some()).await;
}

macro_rules! ten {
    ($($(#[$kind:meta])* $name:ident $user:literal)*) => {$(
        $(#[$kind])*
        async fn $name() {
            works($user).await;
        }
    )*};
}

ten! {
    #[tokio::test] first 1
    #[tokio::test] second 2
    #[tokio::test] third 3
    #[tokio::test] fourth 4
    #[tokio::test] fifth 5
    #[tokio::test(flavor = "multi_thread")] sixth 6
    #[tokio::test(flavor = "multi_thread")] seventh 7
    #[tokio::test(flavor = "multi_thread", worker_threads = 1)] eighth 8
}

#[tokio::test]
async fn ninth_what_other_runtimes_dropped_was_given_back() {
    works(9).await;
    let other = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .unwrap();
    other.spawn(works(10));
    wait::until("it runs", || SERVER.get("lock:long:10").is_some()).await;
    other.shutdown_background();
    wait::until("it is given back", || SERVER.get("lock:long:10").is_none()).await;
}

#[tokio::test]
async fn tenth_a_second_installation_is_refused_and_a_scope_comes_first() {
    works(11).await;
    let other = Server::start();
    let client = Client::connect(other.url()).await.unwrap();
    assert!(matches!(client.install(), Err(Error::AlreadyInstalled)));
    client
        .scope(async {
            let key = "lock:sync:12";
            let (ran, ()) = tokio::join!(sync_user(12, 100), async {
                wait::until("it is held", || other.get(key).is_some()).await;
                assert_eq!(SERVER.get(key), None);
            });
            assert_eq!(ran.unwrap(), Some(12));
        })
        .await;
    assert_eq!(sync_user(12, 1).await.unwrap(), Some(12));
    assert_eq!(client.stats().granted, 1);
}
