//! What `connect` finds: URLs, settings, rights, timeouts, and servers that are not there.

use std::net::TcpListener;
use std::time::Instant;

use lockattr::{Client, Error};
use tests::zookeeper::{Control, Ensemble, url};

use crate::support::{SLACK, a_client, client, millis, seconds, shared};

async fn refused(builder: lockattr::ClientBuilder, url: &str) -> String {
    match builder.connect(url).await {
        Ok(_) => panic!("{url} was taken"),
        Err(error) => error.to_string(),
    }
}

#[tokio::test]
async fn settings_that_are_for_other_servers_are_refused_by_name() {
    let url = shared().url();
    let with = Client::builder;
    for (builder, named) in [
        (with().replicas(1, millis(100)), "replicas"),
        (with().name("x"), "name"),
        (with().addresses(|_, _| None), "addresses"),
        (with().delayed_restart(seconds(1)), "delayed_restart"),
    ] {
        let error = refused(builder, &url).await;
        assert!(error.contains(&format!("`{named}`")), "{error}");
    }
    for bad in [
        "zookeeper://",
        "zookeeper://a?x=1",
        "zookeeper://u@a",
        "zookeeper://a//b",
    ] {
        let error = refused(with(), bad).await;
        assert!(error.contains("zookeeper://"), "{error}");
    }
}

#[tokio::test]
async fn a_node_is_made_for_the_locks_and_nothing_else_is_left() {
    let server = Ensemble::single();
    let address = server.address(0);
    let at = format!("zookeeper://{address}/a/b/c");
    let mut control = Control::of(address);
    let locks = Client::connect(&at).await.unwrap();
    assert_eq!(control.children("/a/b"), ["c"]);
    assert_eq!(control.children("/a/b/c"), [""; 0]);
    locks
        .lock("x")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    assert_eq!(control.children("/a/b/c"), ["lock:x"]);
    // It goes with whatever deletes it, and comes again.
    control.delete("/a/b/c/lock:x").unwrap();
    control.delete("/a/b/c").unwrap();
    locks
        .lock("x")
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn rights_are_tried_and_logins_are_used() {
    let server = Ensemble::single();
    let address = server.address(0);
    let mut control = Control::of(address);
    control.log_in("jobs", "pass word");
    control.create("/locks", 0, true).unwrap();
    let error = refused(Client::builder(), &server.url()).await;
    assert!(error.contains("may not create nodes"), "{error}");
    assert!(error.contains("cdrw"), "{error}");
    let wrong = format!("zookeeper://jobs:secret@{address}/locks");
    let error = refused(Client::builder(), &wrong).await;
    assert!(!error.contains("secret"), "{error}");
    let right = format!("zookeeper://jobs:pass%20word@{address}/locks");
    let locks = Client::connect(&right).await.unwrap();
    let lease = locks.lock("x").acquire().await.unwrap();
    lease.token().await.unwrap();
    // Its nodes are its own.
    let mut other = Control::of(address);
    let place = control.children("/locks/lock:x").remove(0);
    other.delete(&format!("/locks/lock:x/{place}")).unwrap_err();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn what_others_keep_under_a_key_is_foreign() {
    let mut control = Control::of(shared().address(0));
    let locks = a_client().await;
    control.create("/locks/lock:theirs", 0, false).unwrap();
    control
        .create("/locks/lock:theirs/_c_1-lock-", 2, false)
        .unwrap();
    let error = locks.lock("theirs").acquire().await.unwrap_err();
    assert!(matches!(error, Error::Foreign { .. }), "{error}");
    assert_eq!(control.children("/locks/lock:theirs").len(), 1);
}

#[tokio::test]
async fn field_store_22_the_negotiated_timeout_counts_and_an_impossible_ttl_is_told() {
    // From two to twenty ticks of 400 ms.
    let server = Ensemble::with(1, &[]);
    let error = refused(Client::builder().ttl(seconds(9)), &server.url()).await;
    assert!(
        error.contains("8s") && error.contains("maxSessionTimeout"),
        "{error}"
    );
    let error = refused(Client::builder().ttl(seconds(24 * 3600)), &server.url()).await;
    assert!(error.contains("maxSessionTimeout"), "{error}");
    let locks = client(&server.url(), seconds(1)).await;
    let lease = locks.lock("short").acquire().await.unwrap();
    assert!(lease.remaining() <= seconds(1));
    for (ttl, told) in [
        (seconds(9), "longer than the session"),
        (millis(900), "below 1s"),
    ] {
        let error = locks.lock("long").ttl(ttl).acquire().await.unwrap_err();
        assert!(matches!(error, Error::Invalid { .. }), "{error}");
        assert!(error.to_string().contains(told), "{error}");
    }
    let longest = client(&server.url(), seconds(8)).await;
    let next = longest.lock("long").acquire().await.unwrap();
    next.release().await.unwrap();
}

#[tokio::test]
async fn field_store_22_servers_that_cannot_be_reached_are_nothing_while_one_can() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let closed_at = closed.local_addr().unwrap();
    drop(closed);
    let address = shared().address(0);
    for others in [
        "no-such-host.invalid:1".to_owned(),
        closed_at.to_string(),
        silent.to_string(),
    ] {
        let url = format!("zookeeper://{others},{address}/locks");
        for _ in 0..2 {
            let begun = Instant::now();
            Client::connect(&url).await.unwrap();
            // The look-up of a name, and a time-out, beside what it takes to connect.
            assert!(begun.elapsed() < seconds(2) + SLACK, "{others}");
        }
    }
    let error = refused(Client::builder(), &url([closed_at].into_iter())).await;
    assert!(error.contains(&closed_at.to_string()), "{error}");
}
