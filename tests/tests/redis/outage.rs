//! No store, no run: an outage is never busy and never free, and is told within the bound.

use std::cell::Cell;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::server::Server;
use tests::version::version;
use tests::wait;

use crate::support::{BOUND, SLACK, behind_a_proxy, client, pair};

/// Skips what is busy; what is down must not look like that.
#[distributed_lock(key = "sync:<user_id>", ttl = "2s", on_busy = skip, client = locks)]
async fn job(locks: &Client, user_id: u64, ran: &Cell<u32>) -> Result<Option<u32>, Error> {
    ran.set(ran.get() + 1);
    Ok(Some(7))
}

#[distributed_lock(key = "sync:<user_id>", ttl = "2s", client = locks, on_unavailable = skip)]
async fn skips(locks: &Client, user_id: u64, ran: &Cell<u32>) -> Result<Option<u32>, Error> {
    ran.set(ran.get() + 1);
    Ok(Some(7))
}

#[distributed_lock(
    key = "sync:<user_id>", ttl = "2s", client = locks,
    on_busy = return "busy", on_unavailable = return other, on_lost = return "lost"
)]
async fn returns(
    locks: &Client,
    user_id: u64,
    other: &'static str,
    ran: &Cell<u32>,
) -> &'static str {
    ran.set(ran.get() + 1);
    "ran"
}

#[distributed_lock(key = "sync:<user_id>", ttl = "2s", on_busy = skip, client = locks)]
async fn quiet(locks: &Client, user_id: u64, ran: &Cell<u32>) {
    ran.set(ran.get() + 1);
}

/// Every call is unavailable within the bound, says so each time, and runs nothing.
async fn down(locks: &Client) -> Error {
    let ran = Cell::new(0);
    let before = locks.stats();
    let mut last = None;
    let calls = 3;
    for user in 0..calls {
        let start = Instant::now();
        let result = job(locks, user, &ran).await;
        let took = start.elapsed();
        assert!(took < BOUND + SLACK, "{took:?}");
        let error = result.expect_err("nothing ran and nothing was skipped");
        assert!(
            matches!(&error, Error::Unavailable { key, .. } if *key == format!("sync:{user}")),
            "{error:?}"
        );
        last = Some(error);
    }
    assert_eq!(ran.get(), 0);
    let stats = locks.stats();
    assert_eq!(stats.unavailable - before.unavailable, calls, "{stats:?}");
    assert_eq!((stats.busy, stats.granted), (before.busy, before.granted));
    last.expect("there were calls")
}

/// After an outage calls succeed again without anybody's help.
async fn up_again(locks: &Client) {
    let ran = Cell::new(0);
    let start = Instant::now();
    while job(locks, 42, &ran).await.is_err() {
        assert!(start.elapsed() < Duration::from_secs(10), "not up again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(ran.get(), 1);
}

#[tokio::test]
async fn field_18_a_closed_port_is_unavailable() {
    let server = Server::start();
    let url = server.url();
    let locks = client(&server).await;
    server.kill();
    down(&locks).await;
    // And to a client that was never connected.
    let lazy = Client::builder().connect_lazily(&url).unwrap();
    down(&lazy).await;
    let start = Instant::now();
    assert!(matches!(
        Client::connect(&url).await,
        Err(Error::Unavailable { .. })
    ));
    assert!(start.elapsed() < BOUND + SLACK);
    server.restart();
    up_again(&locks).await;
    up_again(&lazy).await;
}

#[tokio::test]
async fn field_18_a_wrong_password_is_unavailable() {
    let server = Server::with(&["--requirepass", "right"]);
    for url in [
        server.url_as("", "wrong"),
        server.url_as("nobody", "right"),
        server.url(),
    ] {
        let lazy = Client::builder().connect_lazily(&url).unwrap();
        let error = down(&lazy).await.to_string().to_uppercase();
        assert!(error.contains("PASS") || error.contains("AUTH"), "{error}");
        let refused = Client::connect(&url).await.unwrap_err();
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
    }
    let locks = Client::connect(server.url_as("", "right")).await.unwrap();
    up_again(&locks).await;
}

#[tokio::test]
async fn field_18_a_stopped_server_is_unavailable() {
    let (server, locks) = pair().await;
    server.freeze();
    down(&locks).await;
    let lazy = Client::builder().connect_lazily(server.url()).unwrap();
    down(&lazy).await;
    let start = Instant::now();
    assert!(matches!(
        Client::connect(server.url()).await,
        Err(Error::Unavailable { .. })
    ));
    assert!(start.elapsed() < BOUND + SLACK);
    server.thaw();
    up_again(&locks).await;
    up_again(&lazy).await;
    wait::until("nothing is left", || server.size() == 0).await;
}

#[tokio::test]
async fn field_18_a_name_that_does_not_resolve_is_unavailable() {
    let url = "redis://no-such-host.invalid/";
    let lazy = Client::builder().connect_lazily(url).unwrap();
    down(&lazy).await;
    let start = Instant::now();
    assert!(matches!(
        Client::connect(url).await,
        Err(Error::Unavailable { .. })
    ));
    assert!(start.elapsed() < BOUND + SLACK);
}

#[tokio::test]
async fn field_18_a_server_that_is_loading_is_unavailable() {
    // Servers before 7 cannot be made to answer often while they load.
    if version() < (7, 0) {
        return;
    }
    // Half a millisecond for each key: ten seconds for twenty thousand.
    let delay = "--key-load-delay";
    let server = Server::with(&[
        delay,
        "500",
        "--loading-process-events-interval-bytes",
        "1024",
    ]);
    let lazy = Client::builder().connect_lazily(server.url()).unwrap();
    let _: () = server.ask("DEBUG POPULATE 20000");
    let _: () = server.ask("SAVE");
    server.begin_to_restart();
    assert_eq!(server.info("persistence")["loading"], "1");
    let error = down(&lazy).await.to_string();
    assert!(error.to_uppercase().contains("LOADING"), "{error}");
    assert_eq!(
        server.info("persistence")["loading"],
        "1",
        "the test took too long"
    );
    server.kill();
}

#[tokio::test]
async fn field_18_a_black_hole_is_unavailable() {
    let (_server, proxy, locks) = behind_a_proxy().await;
    proxy.swallow_all();
    down(&locks).await;
    proxy.heal();
    up_again(&locks).await;
}

#[distributed_lock(key = "sync:<user_id>", ttl = "2s", on_busy = skip)]
async fn without_client(user_id: u64) -> Result<Option<()>, Error> {
    panic!("the body ran for {user_id}");
}

#[tokio::test]
async fn field_18_nothing_installed_is_told_as_that() {
    let error = without_client(42).await.unwrap_err();
    assert!(matches!(error, Error::NotInstalled), "{error:?}");
    assert!(error.to_string().contains("install"), "{error}");
}

#[tokio::test]
async fn what_happens_in_an_outage_is_what_the_attribute_says() {
    let (server, locks) = pair().await;
    let ran = Cell::new(0);
    assert_eq!(returns(&locks, 1, "down", &ran).await, "ran");
    assert_eq!(ran.replace(0), 1);
    server.kill();
    assert_eq!(skips(&locks, 1, &ran).await.unwrap(), None);
    assert_eq!(returns(&locks, 1, "down", &ran).await, "down");
    // Answers nothing, as it must; the outage is counted and told.
    tests::log::listen();
    let before = locks.stats().unavailable;
    quiet(&locks, 1818, &ran).await;
    assert_eq!(locks.stats().unavailable, before + 1);
    let told = tests::log::about("sync:1818");
    assert!(
        told.iter().any(|told| told.level == tracing::Level::ERROR),
        "{told:#?}"
    );
    assert_eq!(ran.get(), 0);
}

#[tokio::test]
async fn a_wait_does_not_make_an_outage_endless() {
    let (server, locks) = pair().await;
    server.kill();
    let start = Instant::now();
    let error = locks
        .lock("sync:42")
        .wait(Duration::from_secs(2))
        .acquire()
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(
        start.elapsed() < Duration::from_secs(2) + BOUND + SLACK,
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn shorter_timeouts_are_kept() {
    let server = Server::start();
    let brief = Duration::from_millis(200);
    let locks = Client::builder()
        .connect_timeout(brief)
        .reply_timeout(brief)
        .connect(server.url())
        .await
        .unwrap();
    server.freeze();
    let start = Instant::now();
    let error = locks.lock("sync:42").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(start.elapsed() < 4 * brief + SLACK, "{:?}", start.elapsed());
    server.thaw();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_calls_in_an_outage_each_keep_the_bound() {
    let (server, locks) = pair().await;
    server.freeze();
    let tasks: Vec<_> = (0..200)
        .map(|user| {
            let locks = locks.clone();
            tokio::spawn(async move {
                let start = Instant::now();
                let result = locks.lock(format!("sync:{}", user % 20)).acquire().await;
                (result.map(drop), start.elapsed())
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    server.thaw();
    for (result, took) in outcomes {
        assert!(took < BOUND + SLACK, "{took:?}");
        // Of twenty keys, ten callers each: none is held, so none may be called busy.
        assert!(
            matches!(result, Err(Error::Unavailable { .. })),
            "{result:?}"
        );
    }
    wait::until("nothing is left", || server.size() == 0).await;
}
