//! Ours, gone, another's, done and foreign: what a majority says.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockattr::{Client, Error, LossCause, distributed_lock};
use tests::server::Server;

use super::{KEY, LOCK, Nodes, is_busy, is_unavailable, take};
use crate::support::nap;

const TTL: Duration = Duration::from_secs(2);

#[tokio::test]
async fn one_holds_a_lock_of_three_or_five_nodes() {
    for count in [3, 5] {
        let nodes = Nodes::start(count);
        let (one, other) = (nodes.client().await, nodes.client().await);
        let lease = take(&one).await;
        match other.lock(KEY).acquire().await {
            Err(Error::Busy {
                remaining, holder, ..
            }) => {
                assert!(remaining > Duration::from_secs(20), "{remaining:?}");
                assert!(
                    holder.ends_with(&std::process::id().to_string()),
                    "{holder}"
                );
            }
            answer => panic!("{answer:?}"),
        }
        nodes.all_vote_for(&lease).await;
        lease.release().await.unwrap();
        let next = take(&other).await;
        assert!(is_busy(&one.lock(KEY).acquire().await));
        next.release().await.unwrap();
        nodes.nothing_left().await;
    }
}

/// What happens to a node's vote.
type Change = fn(&Server);

/// A vote that is gone, and one that is another's, is a vote; two are the lease.
#[tokio::test]
async fn a_release_is_ours_or_lost_as_a_majority_says() {
    let gone = |server: &Server| {
        let _: i64 = server.ask(&format!("DEL {LOCK}"));
    };
    let taken = |server: &Server| server.ask::<()>(&format!("SET {LOCK} someone@else:1 PX 60000"));
    let cases: [(Vec<Change>, Option<LossCause>); 6] = [
        (vec![gone], None),
        (vec![taken], None),
        (vec![gone, gone], Some(LossCause::Deleted)),
        (vec![taken, taken], Some(LossCause::Taken)),
        (vec![gone, gone, gone], Some(LossCause::Deleted)),
        (vec![taken, taken, taken], Some(LossCause::Taken)),
    ];
    for (number, (changes, cause)) in cases.into_iter().enumerate() {
        let nodes = Nodes::start(3);
        let locks = nodes.client().await;
        let lease = take(&locks).await;
        nodes.all_vote_for(&lease).await;
        for (server, change) in nodes.servers.iter().zip(&changes) {
            change(server);
        }
        match (lease.release().await, cause) {
            (Ok(()), None) => {}
            (Err(Error::Lost { cause, .. }), Some(expected)) => assert_eq!(cause, expected),
            (answer, expected) => panic!("case {number}: {answer:?}, not {expected:?}"),
        }
        // What is another's stays so.
        nap(100).await;
        let anothers = nodes.votes().into_iter().flatten();
        assert!(anothers.clone().all(|owner| owner == "someone@else:1"));
        let left = anothers.count();
        let put = nodes.servers.iter().zip(&changes);
        let put = put.filter(|(_, change)| std::ptr::fn_addr_eq(**change, taken as fn(&Server)));
        assert_eq!(left, put.count(), "case {number}");
    }
}

#[tokio::test]
async fn a_lease_that_a_majority_has_lost_is_told_at_its_next_renewal() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let lease = locks.lock(KEY).ttl(TTL).acquire().await.unwrap();
    nodes.all_vote_for(&lease).await;
    for server in &nodes.servers[1..] {
        let _: i64 = server.ask(&format!("DEL {LOCK}"));
    }
    let lost = tokio::time::timeout(TTL, lease.lost()).await;
    let lost = lost.expect("within a renewal");
    let gone = matches!(
        lost,
        Error::Lost {
            cause: LossCause::Deleted,
            ..
        }
    );
    assert!(gone, "{lost:?}");
    lease.release().await.expect_err("it is lost");
    nodes.nothing_left().await;
}

#[tokio::test]
async fn something_foreign_on_a_node_costs_a_vote_and_on_two_it_is_told() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let put = |server: &Server| {
        let _: i64 = server.ask(&format!("HSET {LOCK} field value"));
    };
    put(&nodes.servers[1]);
    let lease = take(&locks).await;
    lease.release().await.unwrap();
    put(&nodes.servers[2]);
    let answer = locks.lock(KEY).acquire().await;
    assert!(matches!(answer, Err(Error::Foreign { .. })), "{answer:?}");
    nap(100).await;
    assert_eq!(nodes.servers[0].get(LOCK), None);
    // One that holds nothing and one that cannot be asked is no answer.
    nodes.servers[2].kill();
    let answer = locks.lock(KEY).acquire().await;
    assert!(is_unavailable(&answer), "{answer:?}");
}

/// Just before its lease ends, at that moment and after it: released, or told as lost, and nothing stays.
#[tokio::test]
async fn a_release_around_the_end_of_its_lease() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let ttl = Duration::from_millis(200);
    for wait in [0, 150, 190, 195, 200, 205, 260] {
        let lease = locks
            .lock(KEY)
            .ttl(ttl)
            .renew(false)
            .acquire()
            .await
            .unwrap();
        nap(wait).await;
        match lease.release().await {
            Ok(()) => assert!(wait < 250, "the keys have expired"),
            Err(Error::Lost { .. }) => assert!(wait >= 100, "it is held"),
            answer => panic!("{answer:?}"),
        }
        nodes.nothing_left().await;
    }
}

#[tokio::test]
async fn work_that_is_done_stays_done_with_a_minority_away() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let runs = AtomicUsize::new(0);
    nightly(&locks, &runs).await.unwrap();
    for server in &nodes.servers {
        server.freeze();
        nightly(&locks, &runs).await.unwrap();
        server.thaw();
        nap(300).await;
    }
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[distributed_lock(key = "nightly", once = "1m", client = locks)]
async fn nightly(locks: &Client, runs: &AtomicUsize) -> Result<(), Error> {
    runs.fetch_add(1, Ordering::SeqCst);
    Ok(())
}

#[tokio::test]
async fn tokens_grow_whichever_nodes_grant_them() {
    let nodes = Nodes::start(3);
    let locks = nodes.client().await;
    let mut tokens = BTreeSet::new();
    let mut last = 0;
    for round in 0..9 {
        let away = &nodes.servers[round % 3];
        away.freeze();
        let lease = take(&locks).await;
        let token = lease.token().await.unwrap();
        assert!(token > last, "{token} after {last}");
        assert!(tokens.insert(token));
        last = token;
        lease.release().await.unwrap();
        away.thaw();
        nap(300).await;
    }
}

#[tokio::test]
async fn several_locks_are_one_claim_at_each_node() {
    let nodes = Nodes::start(3);
    let (one, other) = (nodes.client().await, nodes.client().await);
    let lease = one.lock_all(["a", "b"]).acquire().await.unwrap();
    match other.lock_all(["b", "c"]).acquire().await {
        Err(Error::Busy { key, .. }) => assert_eq!(key, "b"),
        answer => panic!("{answer:?}"),
    }
    lease.release().await.unwrap();
    let lease = other.lock_all(["b", "c"]).acquire().await.unwrap();
    lease.release().await.unwrap();
    nodes.nothing_left().await;
}
