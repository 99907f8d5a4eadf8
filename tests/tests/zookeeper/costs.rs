//! How many requests a lock costs, beside the recipe of ZooKeeper's documentation, which the test carries out
//! itself: create an ephemeral sequential node, list its siblings, watch the one before it, list again when
//! it goes, delete.

use std::time::Instant;

use tests::zookeeper::{Control, Ensemble};

use crate::support::{client, seconds};

/// Heartbeats of sessions that last for this long hardly count.
const SESSION: u64 = 600;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_costs_what_the_recipe_costs() {
    const TURNS: u64 = 200;
    let server = Ensemble::single();
    let locks = client(&server.url(), seconds(SESSION)).await;
    let turn = async || {
        let lease = locks.lock("cost").acquire().await.unwrap();
        lease.release().await.unwrap();
    };
    turn().await;
    let before = server.requests(0);
    let begun = Instant::now();
    for _ in 0..TURNS {
        turn().await;
    }
    let (took, ours) = (begun.elapsed(), server.requests(0) - before);

    let mut control = Control::of(server.address(0));
    control.create("/recipe", 0, false).unwrap();
    let before = server.requests(0);
    let begun = Instant::now();
    for _ in 0..TURNS {
        control.create("/recipe/lock-", 3, false).unwrap();
        let first = control.children("/recipe").remove(0);
        control.delete(&format!("/recipe/{first}")).unwrap();
    }
    let (recipe_took, recipe) = (begun.elapsed(), server.requests(0) - before);
    println!(
        "{TURNS} free locks: {ours} requests in {took:?}; the recipe: {recipe} in {recipe_took:?}"
    );
    assert!(ours * 10 <= recipe * 11, "{ours} for {recipe}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_that_is_handed_over_costs_what_the_recipe_costs_however_many_wait() {
    const TURNS: u64 = 30;
    let server = Ensemble::single();
    for clients in [2_u64, 8] {
        let mut all = Vec::new();
        for _ in 0..clients {
            all.push(client(&server.url(), seconds(SESSION)).await);
        }
        let before = server.requests(0);
        let begun = Instant::now();
        let tasks: Vec<_> = all
            .iter()
            .cloned()
            .map(|locks| {
                tokio::spawn(async move {
                    for _ in 0..TURNS {
                        let lease = locks.lock("handed").wait(seconds(60)).acquire().await;
                        lease.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let (turns, took) = (clients * TURNS, begun.elapsed());
        let requests = server.requests(0) - before;
        println!(
            "{turns} turns of {clients} clients: {requests} requests in {took:?}; the recipe: {}",
            5 * turns
        );
        // Five of each: create, list, watch, list, delete. A few find nobody before them.
        assert!(
            requests * 10 <= 5 * turns * 11,
            "{requests} for {turns} turns of {clients}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn held_leases_cost_a_heartbeat_of_their_session_and_no_renewals() {
    let server = Ensemble::single();
    let locks = client(&server.url(), seconds(8)).await;
    let mut leases = Vec::new();
    for key in 0..50 {
        leases.push(locks.lock(format!("held:{key}")).acquire().await.unwrap());
    }
    // Their nodes are watched by then.
    tokio::time::sleep(seconds(1)).await;
    let before = server.requests(0);
    tokio::time::sleep(seconds(4)).await;
    let requests = server.requests(0) - before;
    assert!((10..60).contains(&requests), "{requests}");
    for lease in leases {
        assert!(lease.remaining() > seconds(3));
        lease.release().await.unwrap();
    }
}
