//! How many requests a lock costs, beside the recipe of ZooKeeper's documentation, which the test carries out
//! itself: create an ephemeral sequential node, list its siblings, watch the one before it, list again when
//! it goes, delete.

use std::time::Instant;

use lockattr::{Client, LockRequest};
use tests::zookeeper::{Control, Ensemble};

use crate::support::{client, seconds};

/// Heartbeats of sessions that last for this long hardly count.
const SESSION: u64 = 600;

/// How a lock is asked for.
type Form = fn(&Client) -> LockRequest;

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
async fn readers_cost_what_one_alone_costs_and_permits_one_request_more_however_many_there_are() {
    const TURNS: u64 = 50;
    let server = Ensemble::single();
    let locks = client(&server.url(), seconds(SESSION)).await;
    let permits: Form = |locks| locks.lock("cost").permits(1_000_000);
    let alone: Form = |locks| locks.lock("cost");
    let reader: Form = |locks| locks.lock("cost").shared();
    let ten: Form = |locks| locks.lock("cost").permits(10);
    let seven: Form = |locks| locks.lock("cost").permits(1_000_000).weight(7);
    let forms: [(&str, Form, Option<Form>, u64); 4] = [
        ("alone", alone, None, 3),
        ("shared", reader, Some(reader), 3),
        ("10 permits", ten, None, 4),
        ("7 of a million permits", seven, Some(permits), 4),
    ];
    for (form, request, beside, each) in forms {
        let turn = async || {
            let lease = request(&locks).acquire().await.unwrap();
            lease.release().await.unwrap();
        };
        turn().await;
        // Beside others, who are no reason to ask more.
        let mut held = Vec::new();
        for _ in 0..20 {
            if let Some(request) = beside {
                held.push(request(&locks).acquire().await.unwrap());
            }
        }
        let before = server.requests(0);
        for _ in 0..TURNS {
            turn().await;
        }
        let requests = server.requests(0) - before;
        println!("{TURNS} times {form}: {requests} requests");
        // Those who are beside it have their nodes watched once.
        let watched = 2 * u64::try_from(held.len()).unwrap();
        assert!(requests <= each * TURNS + watched + 5, "{form}: {requests}");
        for lease in held {
            lease.release().await.unwrap();
        }
    }
}

/// Each reader is woken by the last writer before it, and by nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_that_are_let_in_together_cost_what_the_recipe_costs() {
    const READERS: u64 = 20;
    let server = Ensemble::single();
    let mut all = Vec::new();
    for _ in 0..READERS {
        all.push(client(&server.url(), seconds(SESSION)).await);
    }
    let writer = all[0].lock("together").acquire().await.unwrap();
    let before = server.requests(0);
    let calls: Vec<_> = all
        .iter()
        .map(|locks| {
            let request = locks.lock("together").shared().wait(seconds(60));
            tokio::spawn(request.acquire())
        })
        .collect();
    // All have looked by then; one that looks by itself costs a request more.
    let mut control = Control::of(server.address(0));
    crate::support::queued(&mut control, "together", 21).await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    writer.release().await.unwrap();
    for call in calls {
        call.await.unwrap().unwrap().release().await.unwrap();
    }
    let requests = server.requests(0) - before;
    println!("{READERS} readers: {requests} requests");
    // Create, list, watch, list, delete; and what the test asks for.
    assert!(requests <= 5 * READERS + 30, "{requests}");
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
