//! Replies that are kept beside marks.

use lockattr::Client;
use tests::postgres::Postgres;
use tests::replayed;

use crate::support::connected;

#[tokio::test]
async fn replies_are_given_back_and_swept() {
    let server = Postgres::start();
    let longest = 1024 * 1024;
    let client = async || {
        let builder = Client::builder().reply_limit(longest);
        connected(builder, &server, &server.url()).await
    };
    let (one, other) = (client().await, client().await);
    replayed::are_given_back(&one, &other, longest).await;
    let replies = || server.ask("SELECT string_agg(name, ' ' ORDER BY name) FROM lockattr.replies");
    assert_eq!(
        replies(),
        "lock:kept:1 lock:kept:2 lock:kept:3 lock:kept:4 lock:kept:5"
    );
    server.ask("UPDATE lockattr.replies SET until = until - interval '30 days' WHERE name <> 'lock:kept:1'");
    server.ask("SELECT lockattr.sweep()");
    assert_eq!(replies(), "lock:kept:1");
}

#[tokio::test]
async fn an_inspector_tells_how_long_a_reply_is() {
    let server = Postgres::start();
    let locks = connected(Client::builder(), &server, &server.url()).await;
    let request = locks.lock("seen").once(std::time::Duration::from_secs(60));
    let lease = request.acquire().await.unwrap();
    lease.mark_done_with("12345678").unwrap();
    lease.release().await.unwrap();
    let entry = tests::inspected::entry(&locks, "seen").await;
    assert_eq!(entry.reply_bytes, Some(10));
}
