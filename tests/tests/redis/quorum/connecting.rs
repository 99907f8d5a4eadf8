//! What is named, and what `connect` finds.

use std::time::{Duration, Instant};

use lockattr::{Client, Error};

use super::{KEY, Nodes, is_busy, is_unavailable, take};
use crate::support::{BOUND, SLACK};

#[tokio::test]
async fn one_url_and_a_list_in_any_order_are_the_same_quorum() {
    let nodes = Nodes::start(3);
    let mut reversed = nodes.urls();
    reversed.reverse();
    let one = Client::connect(nodes.url()).await.unwrap();
    let other = Client::builder().quorum(reversed).await.unwrap();
    let lazy = Client::builder().quorum_lazily(nodes.urls()).unwrap();
    let lease = take(&one).await;
    for client in [&other, &lazy] {
        assert!(is_busy(&client.lock(KEY).acquire().await));
    }
    lease.release().await.unwrap();
    take(&lazy).await.release().await.unwrap();
}

#[tokio::test]
async fn what_is_no_quorum_is_refused_with_what_to_do() {
    let nodes = Nodes::start(3);
    let urls = nodes.urls();
    let twice = vec![urls[0].clone(), urls[1].clone(), format!("{}5", urls[0])];
    for (urls, why) in [
        (urls[..1].to_vec(), "by `connect`"),
        (urls[..2].to_vec(), "needs both"),
        (twice, "named twice"),
        (
            vec![urls[0].clone(), urls[1].clone(), "memory:".to_owned()],
            "this process alone",
        ),
        (
            vec![urls[0].clone(), urls[1].clone(), "http://h".to_owned()],
            "starts with",
        ),
    ] {
        match Client::builder().quorum(&urls).await {
            Err(Error::Config(reason)) => assert!(reason.contains(why), "{reason}"),
            other => panic!("{urls:?}: {other:?}"),
        }
    }
    let locks = nodes.client().await;
    match locks.lock(KEY).permits(2).acquire().await {
        Err(Error::Invalid { reason, .. }) => assert!(reason.contains("one holder"), "{reason}"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_client_connects_while_a_minority_is_away() {
    for frozen in [true, false] {
        let nodes = Nodes::start(3);
        if frozen {
            nodes.servers[0].freeze();
        } else {
            nodes.servers[0].kill();
        }
        let start = Instant::now();
        let locks = nodes.client().await;
        // Not as long as it takes to learn that a node is silent.
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        let lease = take(&locks).await;
        lease.token().await.unwrap();
        lease.release().await.unwrap();
        if frozen {
            nodes.servers[0].thaw();
        }
    }
}

#[tokio::test]
async fn a_client_does_not_connect_to_a_minority() {
    let nodes = Nodes::start(3);
    nodes.servers[0].kill();
    nodes.servers[2].refuse_writes();
    let start = Instant::now();
    let refused = Client::builder().quorum(nodes.urls()).await;
    assert!(is_unavailable(&refused), "{refused:?}");
    let text = refused.expect_err("it is refused").to_string();
    assert!(text.contains("2 of 3 nodes cannot be asked"), "{text}");
    assert!(text.contains("NOREPLICAS"), "{text}");
    assert!(start.elapsed() < BOUND + SLACK);
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_quorum_over_tls() {
    let authority = tests::tls::Authority::new();
    let (servers, urls): (Vec<_>, Vec<_>) = (0..3).map(|_| authority.server("127.0.0.1")).unzip();
    let hosts = urls.iter().map(|url| {
        let host = url.trim_start_matches("rediss://");
        host.trim_end_matches('/').to_owned()
    });
    let url = format!("rediss+quorum://{}", hosts.collect::<Vec<_>>().join(","));
    let trusting = || Client::builder().root_certificates(authority.pem());
    let one = trusting().connect(&url).await.unwrap();
    let other = trusting().quorum(&urls).await.unwrap();
    let lease = take(&one).await;
    assert!(is_busy(&other.lock(KEY).acquire().await));
    servers[0].freeze();
    lease.release().await.unwrap();
    take(&other).await.release().await.unwrap();
    servers[0].thaw();
    let error = Client::connect(&url).await.unwrap_err().to_string();
    assert!(error.contains("certificate"), "{error}");
}
