//! Readers and writers over several nodes: who is beside whom, in which order, and with which tokens.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::super::super::{Acquired, Attempt, Claim, Found, Release, Store, Token};
use super::stand_in::{BOUND, Mode, StandIn};
use super::{LOCK, Setup, TTL, is_granted};
use crate::runtime::background::Background;
use crate::runtime::jitter::between;

impl Setup {
    async fn reads(&self, owner: &str) -> Acquired {
        let claim = self.claim(owner).shared(true);
        let acquired = self.quorum.acquire(claim, Attempt::default());
        acquired.await.expect("an answer")
    }

    async fn ends_reading(&self, owner: &str) -> Found {
        let claim = self.claim(owner).shared(true);
        let released = self.quorum.release(claim, Release::held(0, &[]));
        released.await.expect("an answer")
    }

    /// Has an owner read at some of the nodes alone, as one that has seen no others.
    async fn reads_at(&self, owner: &str, nodes: &[usize]) {
        for node in nodes {
            let claim = self.claim(owner).shared(true);
            let acquired = self.nodes[*node].memory.acquire(claim, Attempt::default());
            assert!(is_granted(&acquired.await.expect("an answer")));
        }
    }
}

fn is_busy(answer: &Acquired) -> bool {
    matches!(answer, Acquired::Busy { .. })
}

/// Each node names the reader that ends first there: no two the same.
#[tokio::test(start_paused = true)]
async fn a_writer_is_told_busy_by_readers_whom_the_nodes_do_not_name_alike() {
    let setup = Setup::new(3);
    setup.reads_at("one", &[0]).await;
    setup.reads_at("two", &[1]).await;
    setup.reads_at("three", &[2]).await;
    sleep(Duration::from_millis(10)).await;
    for (owner, nodes) in [("one", [1, 2]), ("two", [0, 2]), ("three", [0, 1])] {
        setup.reads_at(owner, &nodes).await;
    }
    let begun = Instant::now();
    let answer = setup.acquire("writer").await;
    assert!(is_busy(&answer), "{answer:?}");
    assert!(begun.elapsed() < BOUND / 4, "{:?}", begun.elapsed());
    for reader in ["one", "two", "three"] {
        assert_eq!(setup.ends_reading(reader).await, Found::Ours);
    }
    assert!(is_granted(&setup.acquire("writer").await));
}

/// A writer that waits has its place at one node. Of the others a majority would grant a reader the lock.
#[tokio::test(start_paused = true)]
async fn a_reader_passes_no_writer_that_waits_at_the_first_node() {
    for (count, away) in [(3, false), (4, false), (5, false), (3, true), (5, true)] {
        let setup = Setup::new(count);
        if away {
            // It is known to be silent by all that follow.
            setup.nodes[0].set(Mode::Refuses);
        }
        assert!(is_granted(&setup.reads("reader").await));
        let writer = setup.claim("writer");
        let _wakeups = setup.quorum.wakeups(writer);
        let waits = Attempt::first(Duration::from_secs(60));
        let answer = setup
            .quorum
            .acquire(writer, waits)
            .await
            .expect("an answer");
        assert!(is_busy(&answer), "{answer:?}");
        for late in ["late", "later"] {
            let answer = setup.reads(late).await;
            assert!(is_busy(&answer), "of {count}, away {away}: {answer:?}");
        }
        assert_eq!(setup.ends_reading("reader").await, Found::Ours);
        sleep(Duration::from_secs(1)).await;
        let again = Attempt::again(Duration::from_secs(60));
        let answer = setup
            .quorum
            .acquire(writer, again)
            .await
            .expect("an answer");
        assert!(is_granted(&answer), "of {count}, away {away}: {answer:?}");
        assert_eq!(setup.release("writer").await, Found::Ours);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(setup.known(), 0);
    }
}

/// The vote of a writer that died on its way is no majority.
#[tokio::test(start_paused = true)]
async fn a_vote_that_is_left_behind_keeps_no_reader_out() {
    for node in 0..3 {
        let setup = Setup::new(3);
        setup.nodes[node].memory.take(LOCK, "left-behind", TTL);
        let begun = Instant::now();
        assert!(is_granted(&setup.reads("one").await));
        assert!(is_granted(&setup.reads("two").await));
        assert!(begun.elapsed() < BOUND, "{:?}", begun.elapsed());
        assert!(is_busy(&setup.acquire("writer").await));
    }
}

/// Clients of their own, at other distances, whose tasks read and write: never both at a time, and everybody
/// has its turn.
#[tokio::test(start_paused = true)]
async fn readers_and_writers_all_have_their_turn() {
    let background = Background::start().expect("a thread");
    let nodes: Vec<_> = (0..3).map(|_| StandIn::default()).collect();
    let inside = Arc::new(std::sync::Mutex::new((0_u32, 0_u32)));
    let mut calls = JoinSet::new();
    for number in 0..12 {
        let far = nodes
            .iter()
            .map(|node| node.at(between(Duration::from_millis(1), Duration::from_millis(20))));
        let client = Setup::quorum_of(&far.collect::<Vec<_>>(), &background);
        let inside = Arc::clone(&inside);
        calls.spawn(async move {
            let is_writer = number % 4 == 0;
            for round in 0..10 {
                let (locks, owner) = ([LOCK.to_owned()], format!("{number}-{round}"));
                let claim = Claim::new(&locks, &owner, TTL).shared(!is_writer);
                let mut wakeups = client.wakeups(claim);
                let mut attempt = Attempt::first(Duration::from_secs(600));
                let begun = Instant::now();
                loop {
                    let answer = client.acquire(claim, attempt).await;
                    match answer {
                        Ok(Acquired::Granted { .. }) => break,
                        Ok(Acquired::Busy { .. }) | Err(_) => {}
                        other => panic!("{other:?}"),
                    }
                    attempt = Attempt::again(Duration::from_secs(600));
                    let woken = std::future::poll_fn(|cx| wakeups.poll_next(cx));
                    drop(tokio::time::timeout(Duration::from_secs(1), woken).await);
                }
                let taken = begun.elapsed();
                assert!(taken < Duration::from_secs(30), "{owner} after {taken:?}");
                {
                    let mut inside = inside.lock().expect("no panic");
                    let (readers, writers) = &mut *inside;
                    *(if is_writer {
                        &mut *writers
                    } else {
                        &mut *readers
                    }) += 1;
                    assert!(*writers == 0 || (*writers, *readers) == (1, 0));
                }
                sleep(between(Duration::ZERO, Duration::from_millis(60))).await;
                {
                    let mut inside = inside.lock().expect("no panic");
                    let (readers, writers) = &mut *inside;
                    *(if is_writer { writers } else { readers }) -= 1;
                }
                drop(wakeups);
                let found = client.release(claim, Release::held(0, &[])).await;
                assert!(matches!(found, Ok(Found::Ours)), "{found:?}");
            }
        });
    }
    calls.join_all().await;
    sleep(Duration::from_secs(2)).await;
    for node in &nodes {
        assert_eq!(node.memory.holder(LOCK), None);
    }
}

/// Readers draw at the same time, and each a larger number than all who have drawn before.
#[tokio::test(start_paused = true)]
async fn tokens_of_readers_grow_from_those_who_draw_together_to_the_next_ones() {
    let background = Background::start().expect("a thread");
    for nodes in [3, 5] {
        let nodes: Vec<_> = (0..nodes).map(|_| StandIn::default()).collect();
        let mut largest = 0;
        for round in 0..30 {
            let mut calls = JoinSet::new();
            for number in 0..6 {
                let far = nodes.iter().map(|node| {
                    node.at(between(Duration::from_millis(1), Duration::from_millis(9)))
                });
                let client = Setup::quorum_of(&far.collect::<Vec<_>>(), &background);
                calls.spawn(async move {
                    let (locks, owner) = ([LOCK.to_owned()], format!("{round}-{number}"));
                    let claim = Claim::new(&locks, &owner, TTL).shared(true);
                    let acquired = client.acquire(claim, Attempt::default()).await;
                    assert!(acquired.as_ref().is_ok_and(is_granted), "{acquired:?}");
                    let token = client.token(claim.held(0)).await;
                    client
                        .release(claim, Release::held(0, &[]))
                        .await
                        .expect("an answer");
                    token
                });
            }
            let mut last = largest;
            for token in calls.join_all().await {
                let Ok(Token::Drawn(token)) = token else {
                    panic!("{token:?}")
                };
                assert!(token > largest, "{token} after {largest}");
                last = last.max(token);
            }
            largest = last;
        }
    }
}
