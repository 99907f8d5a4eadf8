//! The same where the store is several servers: a replica that lacks the key takes a primary's place, or a node
//! comes back empty.

use std::time::{Duration, Instant};

use lockattr::{Client, Lease, LossCause};
use tests::cluster::Cluster;
use tests::sentinel::Sentinels;
use tests::server::Server;
use tests::wait;

use crate::cluster::client;
use crate::losses::{LONG, TOLD, told};
use crate::support::nap;

/// How soon after a server says that it is the primary it is followed: a sentinel that says nothing of it is
/// asked every second.
const FOLLOWED: Duration = Duration::from_secs(1);

/// As if the key had not been replicated in time.
fn forget(replica: &Server, lock: &str) {
    wait::block_until("it is replicated", || replica.get(lock).is_some());
    let _: () = replica.ask("CONFIG SET replica-read-only no");
    let _: () = replica.ask(&format!("DEL {lock}"));
}

/// Ends the replication: the replica logs in as somebody whom its primary does not know.
fn cut_off(primary: &Server, replica: &Server) {
    let _: () = replica.ask("CONFIG SET masteruser nobody masterauth nothing");
    let _: u64 = primary.ask("CLIENT KILL TYPE replica");
    wait::block_until("it is cut off", || {
        let info = replica.info("replication");
        info.get("master_link_status").map(String::as_str) == Some("down")
    });
}

async fn hold(locks: &Client, key: &str) -> Lease {
    locks.lock(key).ttl(LONG).acquire().await.unwrap()
}

/// Waits for a lease to be told lost, and says how long after a moment.
async fn told_after(lease: &Lease, moment: Instant) -> Duration {
    assert_eq!(told(lease).await, LossCause::Deleted);
    moment.elapsed()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_lacks_a_key_is_promoted() {
    // A primary that is killed closes its connections; one that is frozen does not.
    for is_frozen in [false, true] {
        let all = Sentinels::start();
        let locks = Client::connect(all.url()).await.unwrap();
        let (lost, kept) = (hold(&locks, "lost").await, hold(&locks, "kept").await);
        forget(&all.servers[1], "lock:lost");
        let is_kept = || all.servers[1].get("lock:kept").is_some();
        wait::until("it is replicated", is_kept).await;
        if is_frozen {
            all.servers[0].freeze();
        } else {
            all.servers[0].kill();
        }
        let (_, promoted) = all.promoted(&[1]);
        let took = told_after(&lost, promoted).await;
        assert!(took < FOLLOWED + TOLD, "{took:?}");
        wait::within("the other is renewed", TOLD, || locks.stats().renewed == 1).await;
        assert!(kept.remaining() > LONG / 2);
        if is_frozen {
            all.servers[0].thaw();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_cluster_comes_back_empty_and_the_leases_of_others_are_left_alone() {
    let cluster = Cluster::patient();
    // In either protocol.
    let url = format!("{}?protocol=resp3", cluster.url());
    let locks = Client::connect(url).await.unwrap();
    let lost = hold(&locks, &cluster.key_at(0, 0)).await;
    let kept = hold(&locks, &cluster.key_at(1, 0)).await;
    let before = cluster.primary(1).commands();
    cluster.primary(0).kill();
    nap(500).await;
    cluster.primary(0).restart();
    // It keeps its slots closed for two seconds.
    cluster.wait_until_ok();
    told_after(&lost, Instant::now()).await;
    nap(500).await;
    let commands = cluster.primary(1).commands().since(&before);
    assert_eq!(
        commands.of("evalsha") + commands.of("eval"),
        0,
        "{commands:?}"
    );
    assert!(kept.remaining() > LONG / 2);
    assert_eq!(locks.stats().renewed, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_of_a_cluster_that_lacks_a_key_is_promoted() {
    let cluster = Cluster::start(3, 1);
    let locks = client(&cluster).await;
    let replica = cluster.replica_of(0);
    cut_off(cluster.primary(0), &cluster.nodes()[replica]);
    let lost = hold(&locks, &cluster.key_at(0, 0)).await;
    cluster.kill(0);
    cluster.wait_until_promoted(replica);
    told_after(&lost, Instant::now()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_a_quorum_gives_its_vote_again_and_a_majority_without_any_ends_the_lease() {
    let nodes: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let urls = nodes.iter().map(Server::url);
    let locks = Client::builder().quorum(urls).await.unwrap();
    let lease = hold(&locks, "held").await;
    let votes = |node: &Server| node.owner("lock:held").as_deref() == Some(lease.owner());
    wait::until("all have voted", || nodes.iter().all(votes)).await;
    // One after the other wears nothing out.
    for node in &nodes {
        node.kill();
        // The others grant this, and it is known to be away.
        let other = locks.lock("other").acquire().await.unwrap();
        other.release().await.unwrap();
        nap(300).await;
        node.restart();
        wait::within("it votes again", TOLD, || votes(node)).await;
    }
    assert_eq!(locks.stats().lost, 0);
    for node in &nodes[1..] {
        node.kill();
    }
    for node in &nodes[1..] {
        node.restart();
    }
    told_after(&lease, Instant::now()).await;
}
