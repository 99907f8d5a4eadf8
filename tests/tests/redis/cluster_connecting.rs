//! What `connect` finds on the nodes of a cluster: databases, addresses, rights, certificates.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use lockattr::{Client, ClientBuilder, Error};
use tests::cluster::Cluster;
use tests::fake::Fake;
use tests::server::Server;
use tests::wait;

use crate::cluster::client;
use crate::rights::least;
use crate::support::{BOUND, SLACK};

/// What a user needs on each node of a cluster beside the rights on a single server.
const OF_CLUSTER: [&str; 3] = ["+cluster|slots", "+cluster|info", "+asking"];

const DOCUMENTED: &str = include_str!("../../../lockattr/src/client.rs");

async fn refused(url: &str, words: &[&str]) {
    let error = Client::connect(url).await.expect_err("refused").to_string();
    for word in words {
        assert!(error.contains(word), "no {word:?} in {error}");
    }
}

/// Locks on each of three nodes are taken, refused and given back, and one whose hash slot moves as well.
async fn works(cluster: &Cluster, locks: &Client, number: usize) {
    for primary in 0..3 {
        let key = cluster.key_at(primary, number);
        let lease = locks.lock(&key).acquire().await.unwrap();
        let error = locks.lock(&key).acquire().await.unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        lease.token().await.unwrap();
        lease.release().await.unwrap();
    }
    let key = cluster.key_at(0, number);
    let moving = cluster.begin_to_move(&format!("lock:{key}"), 1);
    let lease = locks.lock(&key).acquire().await.unwrap();
    lease.release().await.unwrap();
    moving.end();
    let lease = locks.lock(&key).acquire().await.unwrap();
    lease.release().await.unwrap();
}

#[tokio::test]
async fn a_cluster_has_one_database() {
    let error = Client::connect("redis+cluster://127.0.0.1:1,127.0.0.1:2/3")
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error}");
    assert!(error.to_string().contains("database 0 alone"), "{error}");
}

#[tokio::test]
async fn a_single_server_is_no_cluster() {
    let server = Server::start();
    let url = server.url().replacen("redis://", "redis+cluster://", 1);
    let address = server.address().to_string();
    refused(
        &url,
        &[&address, "write redis:// in place of redis+cluster://"],
    )
    .await;
}

#[tokio::test]
async fn the_rights_on_a_cluster_are_those_that_are_documented() {
    assert!(DOCUMENTED.contains(&format!("`{}`", OF_CLUSTER.join(" "))));
    let cluster = Cluster::start(3, 0);
    let user = |node: &Server, rights: &str| {
        let user = "ACL SETUSER worker reset on >pw resetchannels -@all";
        let _: () = node.ask(&format!("{user} {rights}"));
    };
    let whole = format!("{} {}", least(), OF_CLUSTER.join(" "));
    for node in cluster.nodes() {
        user(node, &whole);
    }
    let url = cluster.url_as("worker", "pw");
    let locks = Client::connect(&url).await.unwrap();
    works(&cluster, &locks, 0).await;
    for node in cluster.nodes() {
        let denied: Vec<redis::Value> = node.ask("ACL LOG");
        assert!(denied.is_empty(), "{denied:?}");
    }
    // On one node alone, which is named.
    let address = cluster.primary(1).address().to_string();
    for missing in ["+evalsha", "+set", "+asking"] {
        user(cluster.primary(1), &whole.replace(missing, ""));
        refused(&url, &[&address, &format!("'{}'", &missing[1..])]).await;
    }
    user(cluster.primary(1), &whole);
    for missing in &OF_CLUSTER[..2] {
        for node in cluster.nodes() {
            user(node, &whole.replace(missing, ""));
        }
        refused(&url, &["NOPERM", missing.trim_start_matches('+')]).await;
    }
    refused(
        &cluster.url_as("worker", "wrong"),
        &["authentication failed", "127.0.0.1"],
    )
    .await;
}

#[tokio::test]
async fn field_02_nodes_that_name_no_host_are_where_they_were_asked() {
    let cluster = Cluster::with(
        3,
        0,
        &["--cluster-preferred-endpoint-type", "unknown-endpoint"],
    );
    let locks = Client::connect(cluster.url_of(&[2])).await.unwrap();
    works(&cluster, &locks, 0).await;
}

#[tokio::test]
async fn field_02_nodes_that_nobody_knows_the_host_of_are_told() {
    let cluster = Cluster::with(3, 0, &["--cluster-preferred-endpoint-type", "hostname"]);
    refused(&cluster.url(), &["hash slot", "cluster-announce-ip"]).await;
    // As soon as they have names.
    for node in cluster.nodes() {
        let _: () = node.ask("CONFIG SET cluster-announce-hostname localhost");
    }
    wait::until("the nodes know each other's names", || {
        let names = |node: &Server| {
            node.ask::<String>("CLUSTER NODES")
                .matches(",localhost")
                .count()
        };
        cluster.nodes().iter().all(|node| names(node) == 3)
    })
    .await;
    works(&cluster, &client(&cluster).await, 0).await;
}

#[tokio::test]
async fn field_06_a_refusal_is_told_in_its_own_words_and_is_not_busy() {
    for said in [
        "CROSSSLOT Keys in request don't hash to the same slot",
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MOVED 1 ?:7000",
        "MOVED 1 127.0.0.1:1",
    ] {
        let port = Arc::new(OnceLock::new());
        let own = Arc::clone(&port);
        let fake = Fake::start(move |words| {
            let words: Vec<_> = words.iter().map(String::as_str).collect();
            Some(match words[..] {
                ["CLUSTER", "SLOTS"] => {
                    let port = own.get().expect("it has started");
                    format!("*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$0\r\n\r\n:{port}\r\n").into_bytes()
                }
                ["CLUSTER", "INFO"] => b"+cluster_state:ok\r\n".to_vec(),
                ["CLIENT" | "TIME", ..] => b"+OK\r\n".to_vec(),
                _ => format!("-{said}\r\n").into_bytes(),
            })
        });
        let url = fake.url();
        let address = url.trim_start_matches("redis://").trim_end_matches('/');
        let is_set = port.set(address.rsplit(':').next().unwrap().to_owned());
        is_set.unwrap();
        let builder = Client::builder().reply_timeout(Duration::from_millis(700));
        let url = format!("redis+cluster://{address}");
        let locks = builder.connect_lazily(url).unwrap();
        let error = locks.lock("a").acquire().await.unwrap_err();
        assert!(
            matches!(error, Error::Unavailable { .. }),
            "{said}: {error}"
        );
        let word = match said {
            "MOVED 1 ?:7000" => "does not know the host",
            "MOVED 1 127.0.0.1:1" => "127.0.0.1:1",
            other => other,
        };
        assert!(error.to_string().contains(word), "{said}: {error}");
    }
}

#[cfg(feature = "tls")]
#[tokio::test]
async fn a_cluster_over_tls() {
    let authority = tests::tls::Authority::new();
    let options = authority.certificate_options("127.0.0.1");
    let mut options: Vec<_> = options.iter().map(String::as_str).collect();
    let builder = || Client::builder().root_certificates(authority.pem());
    let plain = Cluster::with(3, 0, &options);
    let error = builder().connect(plain.tls_url()).await.unwrap_err();
    assert!(error.to_string().contains("tls-cluster yes"), "{error}");
    options.extend(["--tls-cluster", "yes"]);
    let cluster = Cluster::with(3, 0, &options);
    let locks = builder().connect(cluster.tls_url()).await.unwrap();
    works(&cluster, &locks, 0).await;
    refused(&cluster.tls_url(), &["certificate"]).await;
}

#[tokio::test]
async fn a_node_that_cannot_be_connected_to_is_told_in_time() {
    let cluster = Cluster::patient();
    let gone = cluster.primary(1).address();
    let nowhere = move |_: &str, port| {
        let host = "no-such-host.invalid".to_owned();
        (port == gone.port()).then_some((host, port))
    };
    let told = async |builder: ClientBuilder, address: String| {
        let begun = Instant::now();
        let told = builder.connect(cluster.url_of(&[0, 2])).await.unwrap_err();
        let took = begun.elapsed();
        assert!(told.to_string().contains(&address), "{told}");
        assert!(took < BOUND + SLACK, "{took:?}: {told}");
    };
    let nobody = format!("no-such-host.invalid:{}", gone.port());
    told(Client::builder().addresses(nowhere), nobody).await;
    cluster.freeze(1);
    told(Client::builder(), gone.to_string()).await;
    cluster.thaw(1);
}
