//! `on_unavailable = run` and `local` beside a store that comes, goes and is late.

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, current, distributed_lock};
use tests::proxy::{Proxy, Treatment, Way};
use tests::seed::Random;
use tests::server::Server;
use tests::wait;
use tokio::task::JoinHandle;

use crate::support::{Section, behind_a_proxy, client, nap, pair, runtimes};

const SECOND: Duration = Duration::from_secs(1);

#[distributed_lock(key = ["a", "b"], on_unavailable = local, client = locks)]
async fn both(locks: &Client, section: &Section, millis: u64) -> Result<(), Error> {
    section.run(millis).await;
    Ok(())
}

#[distributed_lock(key = "a", on_unavailable = local, client = locks)]
async fn first(locks: &Client, section: &Section, millis: u64) -> Result<(), Error> {
    section.run(millis).await;
    Ok(())
}

/// One of the two is granted by the store, and its answer is late; meanwhile the other is told of an
/// outage, and is the first of its client to fall back.
#[test]
fn a_grant_that_comes_after_a_local_lease_does_not_run_beside_it() {
    let server = Server::start();
    let [one, two] = runtimes();
    let proxy = Proxy::before(server.address());
    for several_first in [true, false] {
        let locks = two.block_on(Client::connect(proxy.url())).unwrap();
        let section = Section::default();
        // Each runtime has a connection of its own by then.
        for runtime in [&one, &two] {
            runtime.block_on(first(&locks, &section, 0)).unwrap();
        }
        proxy.treat(Way::Replies, Treatment::Delay(SECOND * 7 / 10));
        thread::scope(|scope| {
            let by_store = scope.spawn(|| {
                one.block_on(async {
                    if several_first {
                        both(&locks, &section, 1_000).await
                    } else {
                        first(&locks, &section, 1_000).await
                    }
                })
            });
            let is_granted = || server.get("lock:a").is_some();
            wait::block_until("the store has granted it", is_granted);
            thread::sleep(SECOND / 10);
            proxy.heal();
            server.refuse_writes();
            let local = two.block_on(async {
                if several_first {
                    first(&locks, &section, 1_500).await
                } else {
                    both(&locks, &section, 1_500).await
                }
            });
            println!("local: {local:?}, by the store: {:?}", by_store.join());
        });
        server.accept_writes();
        assert_eq!(section.most(), 1, "{several_first}");
        assert!(section.runs() >= 3, "one of the two has run");
        wait::block_until("all is given back", || server.size() == 0);
    }
}

/// The two at all distances from each other, and either of them first.
#[test]
fn a_first_fallback_never_meets_what_the_store_grants_at_the_same_time() {
    let mut random = Random::announced("a first fallback");
    let server = Server::start();
    let [one, two] = runtimes();
    let proxy = Proxy::before(server.address());
    for round in 0..60 {
        let locks = two.block_on(Client::connect(proxy.url())).unwrap();
        let section = Section::default();
        for runtime in [&one, &two] {
            runtime.block_on(first(&locks, &section, 0)).unwrap();
        }
        let mut pause = || Duration::from_micros(random.below(4_000));
        let pauses = [pause(), pause(), pause()];
        proxy.treat(Way::Replies, Treatment::Delay(Duration::from_millis(6)));
        thread::scope(|scope| {
            let (locks, section) = (&locks, &section);
            let (one, two) = (&one, &two);
            scope.spawn(move || {
                thread::sleep(pauses[0]);
                let call = async {
                    if round % 2 == 0 {
                        both(locks, section, 40).await
                    } else {
                        first(locks, section, 40).await
                    }
                };
                drop(one.block_on(call));
            });
            scope.spawn(move || {
                thread::sleep(pauses[1]);
                let call = async {
                    if round % 2 == 0 {
                        first(locks, section, 40).await
                    } else {
                        both(locks, section, 40).await
                    }
                };
                drop(two.block_on(call));
            });
            thread::sleep(pauses[2]);
            server.refuse_writes();
            // What is asked from now on is answered sooner than what was granted before.
            proxy.heal();
        });
        server.accept_writes();
        assert_eq!(section.most(), 1, "in round {round}: {pauses:?}");
        wait::block_until("all is given back", || server.size() == 0);
    }
}

/// What a call around it holds is no reason to call the rest busy.
#[tokio::test]
async fn a_call_inside_another_falls_back_for_the_keys_that_are_missing() {
    #[distributed_lock(key = "a", client = locks)]
    async fn around<F: Future>(locks: &Client, inside: F) -> Result<F::Output, Error> {
        Ok(inside.await)
    }
    #[distributed_lock(key = ["a", "b"], on_unavailable = run, client = locks)]
    async fn unguarded(locks: &Client, section: &Section) -> Result<(), Error> {
        section.run(10).await;
        Ok(())
    }
    let (server, locks) = pair().await;
    let section = Section::default();
    let inside = async {
        server.refuse_writes();
        let answers = (
            both(&locks, &section, 10).await,
            both(&locks, &section, 10).await,
            unguarded(&locks, &section).await,
        );
        server.accept_writes();
        answers
    };
    let answers = around(&locks, inside).await.unwrap();
    assert!(matches!(answers, (Ok(()), Ok(()), Ok(()))), "{answers:?}");
    assert_eq!((section.runs(), section.most()), (3, 1));
}

/// The key that is missing is held locally: busy it is, and nothing else.
#[tokio::test]
async fn a_call_inside_another_is_busy_where_a_missing_key_is_held_locally() {
    #[distributed_lock(key = "a", client = locks)]
    async fn around<F: Future>(locks: &Client, inside: F) -> Result<F::Output, Error> {
        Ok(inside.await)
    }
    #[distributed_lock(key = "b", on_unavailable = local, client = locks)]
    async fn second(locks: &Client, section: &Section) -> Result<(), Error> {
        section.run(500).await;
        Ok(())
    }
    let (server, locks) = pair().await;
    let section = Arc::new(Section::default());
    let inside = async {
        server.refuse_writes();
        let holder: JoinHandle<_> = tokio::spawn({
            let (locks, section) = (locks.clone(), Arc::clone(&section));
            async move { second(&locks, &section).await }
        });
        wait::until("it runs locally", || section.runs() == 1).await;
        let meanwhile = both(&locks, &section, 10).await;
        holder.await.unwrap().unwrap();
        let afterwards = both(&locks, &section, 10).await;
        server.accept_writes();
        (meanwhile, afterwards)
    };
    let (meanwhile, afterwards) = around(&locks, inside).await.unwrap();
    let busy = matches!(meanwhile, Err(Error::Busy { .. }));
    assert!(busy, "{meanwhile:?}");
    afterwards.unwrap();
    assert_eq!(section.most(), 1);
}

/// Slots that the store has granted to this process count, and the others are free.
#[tokio::test]
async fn slots_that_nobody_here_holds_are_free_to_local_calls() {
    #[distributed_lock(
        key = "geo",
        permits = 3,
        on_unavailable = local,
        bind = lease,
        client = locks
    )]
    async fn geo(locks: &Client, slots: &Mutex<Vec<usize>>, millis: u64) -> Result<(), Error> {
        slots.lock().unwrap().push(lease.slot());
        nap(millis).await;
        Ok(())
    }
    for held in 1..=3 {
        let (server, locks) = pair().await;
        let mut leases = Vec::new();
        for _ in 0..held {
            let request = locks.lock("geo").permits(3);
            leases.push(request.acquire().await.unwrap());
        }
        server.refuse_writes();
        let slots = Mutex::new(Vec::new());
        let call = || geo(&locks, &slots, 300);
        let answers = tokio::join!(call(), call(), call());
        server.accept_writes();
        let answers = [answers.0, answers.1, answers.2];
        let busy = |answer: &&Result<(), Error>| matches!(answer, Err(Error::Busy { .. }));
        let ran = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(ran, 3 - held, "{held} held: {answers:?}");
        assert_eq!(answers.iter().filter(busy).count(), held, "{answers:?}");
        let mut used = slots.into_inner().unwrap();
        used.extend(leases.iter().map(lockattr::Lease::slot));
        used.sort_unstable();
        assert_eq!(used, [0, 1, 2], "{held} held by the store");
    }
}

#[distributed_lock(key = "tick", on_busy = skip, min_hold = "3s", on_unavailable = local, client = locks)]
async fn tick(locks: &Client) -> Result<Option<()>, Error> {
    Ok(Some(()))
}

#[distributed_lock(key = "invoice", once = "1h", on_unavailable = local, client = locks)]
async fn invoice(locks: &Client) -> Result<Option<()>, Error> {
    Ok(Some(()))
}

#[tokio::test]
async fn the_min_hold_of_a_local_run_holds_when_the_store_is_back() {
    let (server, locks) = pair().await;
    server.refuse_writes();
    let begun = Instant::now();
    assert_eq!(tick(&locks).await.unwrap(), Some(()));
    assert_eq!(tick(&locks).await.unwrap(), None);
    server.accept_writes();
    assert_eq!(tick(&locks).await.unwrap(), None, "it is closed");
    let by_hand = locks.lock("tick").acquire().await;
    assert!(matches!(by_hand, Err(Error::Busy { .. })), "{by_hand:?}");
    let by_hand = locks.lock("tick").wait(20 * SECOND).acquire().await;
    let closed = begun.elapsed();
    drop(by_hand.unwrap());
    let margin = Duration::from_millis(1_500);
    assert!(closed >= SECOND * 59 / 20, "{closed:?}");
    assert!(closed < 3 * SECOND + margin, "{closed:?}");
}

#[tokio::test]
async fn the_mark_of_a_local_run_holds_when_the_store_is_back() {
    let (server, locks) = pair().await;
    server.refuse_writes();
    assert_eq!(invoice(&locks).await.unwrap(), Some(()));
    assert_eq!(invoice(&locks).await.unwrap(), None);
    server.accept_writes();
    for _ in 0..3 {
        assert_eq!(invoice(&locks).await.unwrap(), None, "it is done");
        nap(100).await;
    }
}

/// Of several keys, each is closed.
#[tokio::test]
async fn the_mark_of_a_local_run_of_several_keys_is_of_each_of_them() {
    #[distributed_lock(key = ["x", "y"], once = "1h", on_unavailable = local, client = locks)]
    async fn several(locks: &Client) -> Result<Option<()>, Error> {
        Ok(Some(()))
    }
    #[distributed_lock(key = "y", once = "1h", client = locks)]
    async fn one(locks: &Client) -> Result<Option<()>, Error> {
        Ok(Some(()))
    }
    let (server, locks) = pair().await;
    server.refuse_writes();
    assert_eq!(several(&locks).await.unwrap(), Some(()));
    server.accept_writes();
    assert_eq!(one(&locks).await.unwrap(), None, "it is done");
}

/// A deadline is one for all that is waited for: local leases, and then the store.
#[tokio::test]
async fn a_wait_is_as_long_as_it_says_where_there_has_been_a_local_lease() {
    #[distributed_lock(key = "a", wait = "1200ms", on_unavailable = local, client = locks)]
    async fn patient(locks: &Client) -> Result<(), Error> {
        Ok(())
    }
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let section = Arc::new(Section::default());
    server.refuse_writes();
    let holder = tokio::spawn({
        let (locks, section) = (locks.clone(), Arc::clone(&section));
        async move { first(&locks, &section, 1_000).await }
    });
    wait::until("it runs locally", || section.runs() == 1).await;
    server.accept_writes();
    let _held = other.lock("a").acquire().await.unwrap();
    let begun = Instant::now();
    let answer = patient(&locks).await;
    let took = begun.elapsed();
    assert!(matches!(answer, Err(Error::Busy { .. })), "{answer:?}");
    assert!(took >= SECOND * 11 / 10, "{took:?}");
    assert!(took < SECOND * 17 / 10, "{took:?}");
    holder.await.unwrap().unwrap();
}

/// The same where the store goes away in the middle of the wait, and a local lease is in the way then.
#[tokio::test]
async fn a_wait_is_as_long_as_it_says_where_the_store_goes_away_meanwhile() {
    #[distributed_lock(key = "a", wait = "2s", on_unavailable = local, client = locks)]
    async fn patient(locks: &Client) -> Result<(), Error> {
        Ok(())
    }
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let held = other.lock("a").acquire().await.unwrap();
    let begun = Instant::now();
    let call = tokio::spawn({
        let locks = locks.clone();
        async move { patient(&locks).await }
    });
    wait::until("it is queued", || server.waiters("lock:a") == 1).await;
    // Between two looks.
    nap(1_200).await;
    // Also whatever reads alone.
    let _: () = server.ask("ACL SETUSER default -set -evalsha");
    let section = Arc::new(Section::default());
    let holder = tokio::spawn({
        let (locks, section) = (locks.clone(), Arc::clone(&section));
        async move { both(&locks, &section, 6_000).await }
    });
    wait::until("it runs locally", || section.runs() == 1).await;
    let answer = call.await.unwrap();
    let took = begun.elapsed();
    println!("{took:?}: {answer:?}");
    assert!(matches!(answer, Err(Error::Busy { .. })), "{answer:?}");
    assert!(took < 3 * SECOND, "{took:?}");
    let _: () = server.ask("ACL SETUSER default +set +evalsha");
    drop(held);
    holder.abort();
}

/// No token at all is better than one that goes back.
#[tokio::test]
async fn a_local_lease_has_no_token() {
    #[distributed_lock(key = "a", on_unavailable = local, bind = lease, client = locks)]
    async fn fenced(locks: &Client) -> Result<[Result<u64, Error>; 2], Error> {
        let handle = current().expect("the call around this");
        Ok([lease.token().await, handle.token().await])
    }
    let (server, locks) = pair().await;
    // The store's clock is ahead.
    let ahead = "9000000000000000";
    let key = ["SET", "lock:token:{lock:a}", ahead, "PX", "60000"];
    let _: () = server.words(&key).unwrap();
    let [before, _] = fenced(&locks).await.unwrap();
    assert!(before.unwrap() > 9_000_000_000_000_000);
    server.refuse_writes();
    for token in fenced(&locks).await.unwrap() {
        let none = matches!(token, Err(Error::Unavailable { .. }));
        assert!(none, "{token:?}");
    }
    server.accept_writes();
}

/// What the store has answered too late is no outage: its grant excludes others, and is given back.
#[tokio::test]
async fn a_grant_that_came_late_is_no_outage() {
    #[distributed_lock(key = "beat", ttl = "300ms", on_unavailable = run, client = locks)]
    async fn beat(locks: &Client, section: &Section) -> Result<(), Error> {
        section.run(100).await;
        Ok(())
    }
    #[distributed_lock(key = "beat", ttl = "300ms", on_unavailable = local, client = locks)]
    async fn locally(locks: &Client, section: &Section) -> Result<(), Error> {
        section.run(100).await;
        Ok(())
    }
    #[distributed_lock(
        key = "beat",
        ttl = "300ms",
        wait = "1200ms",
        on_unavailable = run,
        client = locks
    )]
    async fn patiently(locks: &Client, section: &Section) -> Result<(), Error> {
        section.run(100).await;
        Ok(())
    }
    let (_server, proxy, locks) = behind_a_proxy().await;
    let section = Section::default();
    proxy.treat(Way::Replies, Treatment::Delay(SECOND / 2));
    let answers = [
        beat(&locks, &section).await,
        locally(&locks, &section).await,
        patiently(&locks, &section).await,
    ];
    for answer in answers {
        let unavailable = matches!(answer, Err(Error::Unavailable { .. }));
        assert!(unavailable, "{answer:?}");
    }
    assert_eq!((section.runs(), locks.stats().unguarded), (0, 0));
}

/// The same while another client works under the lock, which the late caller cannot know.
#[tokio::test]
async fn a_caller_whose_grant_came_late_does_not_run_beside_the_next_holder() {
    #[distributed_lock(key = "beat", ttl = "300ms", on_unavailable = run, client = locks)]
    async fn beat(locks: &Client, section: &Section) -> Result<(), Error> {
        section.run(600).await;
        Ok(())
    }
    let (server, next) = pair().await;
    let proxy = Proxy::before(server.address());
    let locks = Client::connect(proxy.url()).await.unwrap();
    let section = Arc::new(Section::default());
    proxy.treat(Way::Replies, Treatment::Delay(SECOND / 2));
    let late = tokio::spawn({
        let (locks, section) = (locks.clone(), Arc::clone(&section));
        async move { beat(&locks, &section).await }
    });
    wait::until("it is granted", || server.get("lock:beat").is_some()).await;
    wait::until("it has run out", || server.get("lock:beat").is_none()).await;
    beat(&next, &section).await.unwrap();
    let late = late.await.unwrap();
    println!("{late:?}");
    assert_eq!(section.most(), 1);
    assert_eq!(locks.stats().unguarded, 0);
}

/// A slot that is held locally is not given to another call of this process by the store that is back.
#[tokio::test]
async fn a_slot_that_is_held_locally_is_not_had_twice_when_the_store_is_back() {
    #[distributed_lock(
        key = "geo",
        permits = 3,
        on_unavailable = local,
        bind = lease,
        client = locks
    )]
    async fn geo(locks: &Client, slots: &Mutex<Vec<usize>>, millis: u64) -> Result<(), Error> {
        slots.lock().unwrap().push(lease.slot());
        nap(millis).await;
        Ok(())
    }
    let (server, locks) = pair().await;
    let slots = Mutex::new(Vec::new());
    server.refuse_writes();
    let local = geo(&locks, &slots, 500);
    let by_store = async {
        wait::until("it runs locally", || slots.lock().unwrap().len() == 1).await;
        server.accept_writes();
        geo(&locks, &slots, 100).await
    };
    let (local, by_store) = tokio::join!(local, by_store);
    local.unwrap();
    by_store.unwrap();
    let mut used = slots.into_inner().unwrap();
    used.sort_unstable();
    assert_eq!(used, [0, 1], "each call has a slot of its own");
}
