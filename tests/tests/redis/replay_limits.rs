//! Replies that are not to be had: too large, of another type, of nobody, not to be shown.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use lockattr::{Client, Error, Memory, ReplyError, distributed_lock};
use tests::log;
use tests::server::Server;
use tracing::Level;

use crate::support::pair;

#[distributed_lock(key = "text:<id>", once = "1h", on_done = replay, client = locks)]
async fn text(locks: &Client, id: &str, bytes: usize, runs: &AtomicU32) -> Result<String, Error> {
    runs.fetch_add(1, Ordering::SeqCst);
    // Two more are its quotes.
    Ok("x".repeat(bytes - 2))
}

#[tokio::test]
async fn a_reply_that_is_too_large_is_answered_once_and_then_told_with_its_size() {
    log::listen();
    let (server, redis) = pair().await;
    let memory = Client::builder().store(Memory::new()).unwrap();
    for (store, locks) in [("redis", &redis), ("memory", &memory)] {
        let runs = AtomicU32::new(0);
        let fits = text(locks, &format!("fits-{store}"), 65_536, &runs)
            .await
            .unwrap();
        let again = text(locks, &format!("fits-{store}"), 65_536, &runs).await;
        assert_eq!(again.unwrap(), fits);
        assert_eq!(locks.stats().replies_not_kept, 0);
        let id = format!("large-{store}");
        let large = text(locks, &id, 65_537, &runs).await.unwrap();
        assert_eq!(large.len(), 65_535);
        assert_eq!(locks.stats().replies_not_kept, 1);
        let told = log::about(&format!("text:{id}"));
        assert_eq!(told.len(), 1, "{told:?}");
        assert_eq!(told[0].level, Level::ERROR);
        assert!(told[0].text.contains("65537 bytes"), "{told:?}");
        let error = text(locks, &id, 65_537, &runs).await.unwrap_err();
        let bytes = 65_537;
        match &error {
            Error::NoReply { key, cause, .. } => {
                assert_eq!(*key, format!("text:{id}"));
                assert_eq!(*cause, ReplyError::TooLarge { bytes });
            }
            other => panic!("{other:?}"),
        }
        let shown = error.to_string();
        let expected = [
            format!("`text:{id}` was done "),
            "65537 bytes".into(),
            "reply_limit".into(),
        ];
        assert!(expected.iter().all(|part| shown.contains(part)), "{shown}");
        assert_eq!(runs.load(Ordering::SeqCst), 2);
    }
    let mark = server.get("lock:text:large-redis").unwrap();
    assert!(mark.ends_with(" too-large 65537"), "{mark}");
}

#[tokio::test]
async fn what_one_release_leaves_is_bounded_as_a_whole() {
    #[distributed_lock(key = ["text:a", "text:b"], client = locks)]
    async fn around(locks: &Client, runs: &AtomicU32) -> Result<(), Error> {
        text(locks, "a", 40_000, runs).await?;
        text(locks, "b", 40_000, runs).await?;
        Ok(())
    }
    let (_server, locks) = pair().await;
    let runs = AtomicU32::new(0);
    around(&locks, &runs).await.unwrap();
    assert_eq!(text(&locks, "a", 2, &runs).await.unwrap().len(), 39_998);
    match text(&locks, "b", 2, &runs).await {
        Err(Error::NoReply { cause, .. }) => {
            let bytes = 40_000;
            assert_eq!(cause, ReplyError::TooLarge { bytes });
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn the_limit_is_the_clients_up_to_a_mebibyte() {
    let server = Server::start();
    let with = |limit| Client::builder().reply_limit(limit).connect(server.url());
    let runs = AtomicU32::new(0);
    let large = with(1_048_576).await.unwrap();
    let whole = text(&large, "1", 1_048_576, &runs).await.unwrap();
    // Another client reads what it would not keep itself.
    let small = with(10).await.unwrap();
    assert_eq!(text(&small, "1", 10, &runs).await.unwrap(), whole);
    text(&small, "2", 11, &runs).await.unwrap();
    let error = text(&large, "2", 11, &runs).await.unwrap_err();
    let too_large = |cause: &ReplyError| *cause == ReplyError::TooLarge { bytes: 11 };
    assert!(
        matches!(&error, Error::NoReply { cause, .. } if too_large(cause)),
        "{error:?}"
    );
    for bad in [0, 1_048_577] {
        match with(bad).await {
            Err(Error::Config(told)) => assert!(told.contains(&bad.to_string()), "{told}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn what_is_no_json_is_answered_and_told() {
    #[distributed_lock(key = "pairs", once = "1h", on_done = replay, client = locks)]
    async fn pairs(locks: &Client) -> Result<BTreeMap<(u8, u8), u8>, Error> {
        Ok(BTreeMap::from([((1, 2), 3)]))
    }
    let (server, locks) = pair().await;
    assert_eq!(pairs(&locks).await.unwrap().len(), 1);
    let error = pairs(&locks).await.unwrap_err();
    let is_it = matches!(
        &error,
        Error::NoReply {
            cause: ReplyError::NotWritten,
            ..
        }
    );
    assert!(is_it, "{error:?}");
    assert!(server.get("lock:pairs").unwrap().ends_with(" unwritten"));
}

#[tokio::test]
async fn a_reply_that_fits_its_type_no_more_is_told_and_the_body_does_not_run_again() {
    #[distributed_lock(key = "typed:<id>", once = "1h", on_done = replay, client = locks)]
    async fn before(locks: &Client, id: &str) -> Result<String, Error> {
        Ok("a text".into())
    }
    #[distributed_lock(key = "typed:<id>", once = "1h", on_done = replay, client = locks)]
    async fn after(locks: &Client, id: &str) -> Result<u32, Error> {
        unreachable!("its work is done")
    }
    #[distributed_lock(key = "typed:<id>", once = "1h", on_done = replay, on_busy = skip, client = locks)]
    async fn optional(locks: &Client, id: &str) -> Option<u32> {
        unreachable!("its work is done")
    }
    log::listen();
    let (_server, locks) = pair().await;
    before(&locks, "fit-1").await.unwrap();
    let shown = after(&locks, "fit-1").await.unwrap_err().to_string();
    assert!(shown.starts_with("`typed:fit-1` was done "), "{shown}");
    assert!(shown.contains("expected u32"), "{shown}");
    let told = log::about("typed:fit-1");
    assert_eq!((told.len(), told[0].level), (1, Level::WARN), "{told:?}");
    // Where its caller gets no error, the log is told at ERROR.
    before(&locks, "fit-2").await.unwrap();
    assert_eq!(optional(&locks, "fit-2").await, None);
    let told = log::about("typed:fit-2");
    assert_eq!((told.len(), told[0].level), (1, Level::ERROR), "{told:?}");
}

#[tokio::test]
async fn a_mark_of_a_function_that_keeps_nothing_is_told() {
    #[distributed_lock(key = "plain", once = "1h", client = locks)]
    async fn plain(locks: &Client) -> Result<(), Error> {
        Ok(())
    }
    #[distributed_lock(key = "plain", once = "1h", on_done = replay, client = locks)]
    async fn replays(locks: &Client) -> Result<(), Error> {
        unreachable!("its work is done")
    }
    let (_server, locks) = pair().await;
    plain(&locks).await.unwrap();
    let error = replays(&locks).await.unwrap_err();
    let is_it = matches!(
        &error,
        Error::NoReply {
            cause: ReplyError::NotKept,
            ..
        }
    );
    assert!(is_it, "{error:?}");
}

#[tokio::test]
async fn a_reply_is_never_shown_not_even_by_what_does_not_fit_where_its_key_is_redacted() {
    #[distributed_lock(key = "secret:<id>", once = "1h", on_done = replay, redact = true, client = locks)]
    async fn before(locks: &Client, id: u32) -> Result<String, Error> {
        Ok("card-4111".into())
    }
    #[distributed_lock(key = "secret:<id>", once = "1h", on_done = replay, redact = true, client = locks)]
    async fn after(locks: &Client, id: u32) -> Result<u32, Error> {
        unreachable!("its work is done")
    }
    log::listen();
    let (_server, locks) = pair().await;
    before(&locks, 1).await.unwrap();
    assert_eq!(before(&locks, 1).await.unwrap(), "card-4111");
    let error = after(&locks, 1).await.unwrap_err();
    let shown = format!("{error} {error:?}");
    assert!(
        !shown.contains("card") && !shown.contains("secret:1"),
        "{shown}"
    );
    assert!(shown.contains("line 1 column"), "{shown}");
    let request = locks
        .lock("secret:1")
        .once(Duration::from_secs(1))
        .redact(true);
    let done = request.acquire().await.unwrap_err();
    let shown = format!("{done} {done:?}");
    assert!(!shown.contains("card"), "{shown}");
    assert!(log::about("card-4111").is_empty());
}

#[tokio::test]
async fn an_inspector_tells_how_long_a_reply_is_and_not_what_it_is() {
    let (_server, locks) = pair().await;
    let memory = Client::builder().store(Memory::new()).unwrap();
    for locks in [&locks, &memory] {
        let runs = AtomicU32::new(0);
        text(locks, "seen", 500, &runs).await.unwrap();
        let shown = locks.inspect().unwrap().show("text:seen").await.unwrap();
        let entry = &shown.listed.entries[0];
        assert_eq!(entry.reply_bytes, Some(500));
        assert!(!format!("{shown:?}").contains("xxx"));
    }
}
