//! A Redis Cluster: every lock on the node of its hash slot, at the cost that it has on one server.

use std::sync::Arc;
use std::time::Duration;

use lockattr::{Client, Error};
use tests::cluster::Cluster;
use tests::server::Server;
use tests::wait;

use crate::support::{Section, nap};

pub(crate) async fn client(cluster: &Cluster) -> Client {
    Client::connect(cluster.url()).await.unwrap()
}

#[tokio::test]
async fn locks_exclude_each_other_on_every_node() {
    let cluster = Cluster::start(3, 0);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    for primary in 0..3 {
        let key = cluster.key_at(primary, 0);
        let lease = one.lock(&key).acquire().await.unwrap();
        assert!(
            cluster
                .primary(primary)
                .get(&format!("lock:{key}"))
                .is_some()
        );
        let error = two.lock(&key).acquire().await.unwrap_err();
        assert!(matches!(error, Error::Busy { .. }), "{error}");
        let first = lease.token().await.unwrap();
        lease.release().await.unwrap();
        let lease = two.lock(&key).acquire().await.unwrap();
        assert!(lease.token().await.unwrap() > first);
        lease.release().await.unwrap();
    }
    assert_eq!(cluster.left(), [""; 0]);
}

#[tokio::test]
async fn a_lock_costs_two_commands_on_its_node_and_none_elsewhere() {
    let cluster = Cluster::start(3, 0);
    let locks = client(&cluster).await;
    let key = cluster.key_at(1, 0);
    for _ in 0..2 {
        let before: Vec<_> = cluster.nodes().iter().map(Server::commands).collect();
        let lease = locks.lock(&key).acquire().await.unwrap();
        lease.release().await.unwrap();
        let after: Vec<_> = cluster.nodes().iter().map(Server::commands).collect();
        let calls = |index: usize| after[index].since(&before[index]);
        assert_eq!((calls(1).of("set"), calls(1).of("evalsha")), (1, 1));
        let elsewhere = |name: &str| calls(0).of(name) + calls(2).of(name);
        assert_eq!(elsewhere("set") + elsewhere("evalsha"), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_are_woken_on_every_node() {
    let cluster = Cluster::start(3, 0);
    let clients = [
        client(&cluster).await,
        client(&cluster).await,
        client(&cluster).await,
    ];
    for primary in 0..3 {
        let key = cluster.key_at(primary, 0);
        let section = Arc::new(Section::default());
        let calls: Vec<_> = (0..15)
            .map(|count| {
                let locks = clients[count % 3].clone();
                let (key, section) = (key.clone(), Arc::clone(&section));
                tokio::spawn(async move {
                    let wait = Duration::from_secs(20);
                    let lease = locks.lock(&key).wait(wait).acquire().await.unwrap();
                    section.run(10).await;
                    lease.release().await.unwrap();
                })
            })
            .collect();
        wait::within("all were inside", Duration::from_secs(3), || {
            section.runs() == 15
        })
        .await;
        for call in calls {
            call.await.unwrap();
        }
        assert_eq!(section.most(), 1);
    }
    wait::until("nothing is left", || cluster.left().is_empty()).await;
}

#[tokio::test]
async fn leases_on_all_nodes_are_renewed() {
    let cluster = Cluster::start(3, 0);
    let locks = client(&cluster).await;
    let mut leases = Vec::new();
    for number in 0..20 {
        for primary in 0..3 {
            let key = cluster.key_at(primary, number);
            let request = locks.lock(key).ttl(Duration::from_millis(900));
            leases.push(request.acquire().await.unwrap());
        }
    }
    nap(2500).await;
    for lease in leases {
        assert!(lease.remaining() > Duration::ZERO);
        lease.release().await.unwrap();
    }
    assert_eq!(locks.stats().lost, 0);
    assert_eq!(cluster.left(), [""; 0]);
}

#[tokio::test]
async fn permits_and_lists_are_taken_on_any_node() {
    let cluster = Cluster::start(3, 0);
    let (one, two) = (client(&cluster).await, client(&cluster).await);
    let key = cluster.key_at(2, 0);
    let slots = [
        one.lock(&key).permits(2).acquire().await.unwrap(),
        two.lock(&key).permits(2).acquire().await.unwrap(),
    ];
    let full = one.lock(&key).permits(2).acquire().await.unwrap_err();
    assert!(matches!(full, Error::Busy { .. }), "{full}");
    for slot in slots {
        slot.release().await.unwrap();
    }
    let keys: Vec<_> = (0..3).map(|primary| cluster.key_at(primary, 0)).collect();
    let other = two.lock(&keys[1]).acquire().await.unwrap();
    let error = one.lock_all(&keys).acquire().await.unwrap_err();
    assert!(
        matches!(&error, Error::Busy { key, .. } if *key == keys[1]),
        "{error}"
    );
    assert_eq!(cluster.left(), [format!("lock:{}", keys[1])]);
    let single = other.token().await.unwrap();
    other.release().await.unwrap();
    let all = one.lock_all(&keys).acquire().await.unwrap();
    let token = all.token().await.unwrap();
    assert!(token > single);
    all.release().await.unwrap();
    for key in &keys {
        let lease = two.lock(key).acquire().await.unwrap();
        assert!(lease.token().await.unwrap() > token);
        lease.release().await.unwrap();
    }
    assert_eq!(cluster.left(), [""; 0]);
}

/// The clocks of two nodes differ, and so do the counters of their tokens.
#[tokio::test]
async fn tokens_of_a_list_are_larger_than_those_of_all_its_keys_and_later_ones_larger_still() {
    let cluster = Cluster::start(3, 0);
    let locks = client(&cluster).await;
    let keys: Vec<_> = (0..3).map(|primary| cluster.key_at(primary, 0)).collect();
    let ahead: u64 = 9_000_000_000_000_000;
    let counter = format!("lock:token:{{lock:{}}}", keys[1]);
    let _: () = cluster
        .primary(1)
        .ask(&format!("SET {counter} {ahead} PX 60000"));
    let list = locks.lock_all(&keys).acquire().await.unwrap();
    let token = list.token().await.unwrap();
    assert!(token > ahead);
    list.release().await.unwrap();
    for key in &keys {
        let lease = locks.lock(key).acquire().await.unwrap();
        assert!(lease.token().await.unwrap() > token, "{key}");
        lease.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn overlapping_lists_are_all_served() {
    let cluster = Cluster::start(3, 0);
    let clients = [client(&cluster).await, client(&cluster).await];
    let keys: Vec<_> = (0..3).map(|primary| cluster.key_at(primary, 0)).collect();
    let section = Arc::new(Section::default());
    let calls: Vec<_> = (0..12)
        .map(|count| {
            let locks = clients[count % 2].clone();
            let section = Arc::clone(&section);
            // Each has one key in common with each other.
            let pair = [keys[count % 3].clone(), keys[(count + 1) % 3].clone()];
            tokio::spawn(async move {
                let wait = Duration::from_secs(30);
                let lease = locks.lock_all(&pair).wait(wait).acquire().await.unwrap();
                section.run(5).await;
                lease.release().await.unwrap();
            })
        })
        .collect();
    for call in calls {
        call.await.unwrap();
    }
    assert_eq!((section.most(), section.runs()), (1, 12));
    wait::until("nothing is left", || cluster.left().is_empty()).await;
}
