//! `on_busy = rerun`: whatever happens while one runs is seen by one more run.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockattr::{Client, Error, distributed_lock};
use tests::cluster::Cluster;
use tests::proxy::{Proxy, Treatment, Way};
use tests::record::{Entry, Event, Record};
use tests::reruns::a_burst_costs_two_runs;
use tests::seed::Random;
use tests::server::Server;
use tests::wait;
use tests::worker::Worker;
use tokio::task::JoinHandle;

use crate::support::{SLACK, Section, behind_a_proxy, client, nap, nothing_left, pair, polled};

type Outcome = Result<Option<()>, Error>;

#[distributed_lock(key = "report", ttl = "2s", on_busy = rerun, client = locks)]
async fn report(locks: &Client, section: &Section, millis: u64) -> Outcome {
    section.run(millis).await;
    Ok(Some(()))
}

fn spawn(locks: &Client, section: &Arc<Section>, millis: u64) -> JoinHandle<Outcome> {
    let (locks, section) = (locks.clone(), Arc::clone(section));
    tokio::spawn(async move { report(&locks, &section, millis).await })
}

/// The place of the one that waits.
fn places(server: &Server) -> usize {
    let keys = server.keys();
    keys.iter().filter(|key| key.ends_with("%rerun")).count()
}

async fn both() -> (Server, [Client; 2]) {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    (server, [locks, other])
}

/// A section with one body inside that takes so long.
async fn running(locks: &Client, millis: u64) -> (Arc<Section>, JoinHandle<Outcome>) {
    let section = Arc::new(Section::default());
    let running = spawn(locks, &section, millis);
    wait::until("it runs", || section.inside() == 1).await;
    (section, running)
}

#[tokio::test]
async fn of_two_events_a_second_apart_the_second_is_seen_right_after_the_first() {
    let (server, [locks, other]) = both().await;
    for second in [&locks, &other] {
        let (section, first) = running(&locks, 300).await;
        assert_eq!(report(second, &section, 0).await.unwrap(), Some(()));
        assert!(first.is_finished());
        assert_eq!((section.runs(), section.most()), (2, 1));
    }
    nothing_left(&server).await;
}

#[tokio::test]
async fn one_runs_and_one_waits_and_all_others_are_skipped_at_once() {
    let (server, [locks, other]) = both().await;
    let (section, first) = running(&locks, 700).await;
    let waits = spawn(&other, &section, 0);
    wait::until("one waits", || places(&server) == 1).await;
    for locks in [&locks, &other] {
        for _ in 0..20 {
            assert_eq!(report(locks, &section, 0).await.unwrap(), None);
        }
    }
    assert!(!first.is_finished());
    assert_eq!(waits.await.unwrap().unwrap(), Some(()));
    assert_eq!((section.runs(), section.most()), (2, 1));
    nothing_left(&server).await;
}

#[tokio::test]
async fn the_one_that_waits_leaves_its_place_when_it_begins() {
    let (server, [locks, other]) = both().await;
    let (section, first) = running(&locks, 200).await;
    let second = spawn(&other, &section, 400);
    wait::until("the second runs", || section.runs() == 2).await;
    assert_eq!(places(&server), 0);
    let third = spawn(&locks, &section, 0);
    assert_eq!(third.await.unwrap().unwrap(), Some(()));
    assert!(second.is_finished() && first.is_finished());
    assert_eq!((section.runs(), section.most()), (3, 1));
}

#[tokio::test]
async fn a_run_that_fails_keeps_the_next_one_from_nothing() {
    #[distributed_lock(key = "fails", on_busy = rerun, client = locks)]
    async fn fails(locks: &Client, section: &Section) -> Result<(), Error> {
        section.run(200).await;
        Err(Error::NotInstalled)
    }
    let (_server, [locks, other]) = both().await;
    let section = Section::default();
    let (first, second) = tokio::join!(fails(&locks, &section), fails(&other, &section));
    assert!(matches!(first, Err(Error::NotInstalled)));
    assert!(matches!(second, Err(Error::NotInstalled)));
    assert_eq!((section.runs(), section.most()), (2, 1));
}

#[tokio::test]
async fn a_free_key_costs_two_commands_and_a_skipped_call_none_where_one_waits_here() {
    let (server, locks) = pair().await;
    let section = Section::default();
    report(&locks, &section, 0).await.unwrap();
    let before = server.commands();
    report(&locks, &section, 0).await.unwrap();
    let cost = server.commands().since(&before);
    assert_eq!((cost.of("set"), cost.of("evalsha")), (1, 1), "{cost:?}");
    let (section, first) = running(&locks, 500).await;
    let waits = spawn(&locks, &section, 0);
    wait::until("one waits", || places(&server) == 1).await;
    let before = server.commands();
    for _ in 0..100 {
        assert_eq!(report(&locks, &section, 0).await.unwrap(), None);
    }
    let cost = server.commands().since(&before);
    assert!(cost.of("set") + cost.of("evalsha") <= 4, "{cost:?}");
    first.await.unwrap().unwrap();
    waits.await.unwrap().unwrap();
}

#[tokio::test]
async fn who_waited_in_vain_is_told_and_is_not_taken_for_skipped() {
    #[distributed_lock(key = "report", on_busy = rerun, wait = "100ms", client = locks)]
    async fn impatient(locks: &Client) -> Outcome {
        Ok(Some(()))
    }
    let (server, [locks, other]) = both().await;
    let held = locks.lock("report").acquire().await.unwrap();
    for locks in [&locks, &other] {
        let told = impatient(locks).await;
        assert!(matches!(told, Err(Error::Busy { .. })), "{told:?}");
        assert_eq!(places(&server), 0);
    }
    held.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn the_mark_of_another_function_is_told_and_is_not_taken_for_skipped() {
    let (_server, locks) = pair().await;
    let lease = locks.lock("report").once(Duration::from_secs(60));
    let lease = lease.acquire().await.unwrap();
    lease.mark_done();
    lease.release().await.unwrap();
    let told = report(&locks, &Section::default(), 0).await;
    assert!(matches!(told, Err(Error::Done { .. })), "{told:?}");
}

#[tokio::test]
async fn two_functions_of_one_key_do_not_run_in_place_of_each_other() {
    #[distributed_lock(key = "report", ttl = "2s", on_busy = rerun, client = locks)]
    async fn other_work(locks: &Client, section: &Section) -> Outcome {
        section.run(0).await;
        Ok(Some(()))
    }
    let (server, [locks, other]) = both().await;
    let (section, _first) = running(&locks, 300).await;
    let waits = spawn(&locks, &section, 0);
    wait::until("one waits", || places(&server) == 1).await;
    let others = Section::default();
    assert_eq!(other_work(&other, &others).await.unwrap(), Some(()));
    assert_eq!(waits.await.unwrap().unwrap(), Some(()));
    assert_eq!((section.runs(), others.runs()), (2, 1));
}

/// Methods of two types have one name in the log, and are two functions.
#[tokio::test]
async fn two_functions_of_one_name_do_not_run_in_place_of_each_other() {
    struct Users;
    struct Orders;
    impl Users {
        #[distributed_lock(key = "report", ttl = "2s", on_busy = rerun, client = locks)]
        async fn sync(&self, locks: &Client, section: &Section) -> Outcome {
            section.run(0).await;
            Ok(Some(()))
        }
    }
    impl Orders {
        #[distributed_lock(key = "report", ttl = "2s", on_busy = rerun, client = locks)]
        async fn sync(&self, locks: &Client, section: &Section) -> Outcome {
            section.run(0).await;
            Ok(Some(()))
        }
    }
    let (server, locks) = pair().await;
    let (section, first) = running(&locks, 500).await;
    let calls = async { tokio::join!(Users.sync(&locks, &section), Orders.sync(&locks, &section)) };
    let (users, orders) = calls.await;
    assert_eq!((users.unwrap(), orders.unwrap()), (Some(()), Some(())));
    first.await.unwrap().unwrap();
    assert_eq!((section.runs(), section.most()), (3, 1));
    nothing_left(&server).await;
}

#[tokio::test]
async fn with_permits_one_waits_for_any_of_the_slots() {
    #[distributed_lock(key = "slots", permits = 2, on_busy = rerun, client = locks)]
    async fn slots(locks: &Client, section: &Section) -> Outcome {
        section.run(300).await;
        Ok(Some(()))
    }
    let (server, [locks, other]) = both().await;
    let section = Section::default();
    let call = |locks| slots(locks, &section);
    let calls = [&locks, &other].map(|locks| async move {
        let calls = (call(locks), call(locks), call(locks), call(locks));
        tokio::join!(calls.0, calls.1, calls.2, calls.3)
    });
    let [a, b] = calls;
    let (a, b) = tokio::join!(a, b);
    let all = [a.0, a.1, a.2, a.3, b.0, b.1, b.2, b.3];
    let ran = all.iter().filter(|one| matches!(one, Ok(Some(()))));
    assert_eq!(ran.count(), 3, "{all:?}");
    assert_eq!((section.runs(), section.most()), (3, 2));
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_minimum_hold_makes_one_run_of_all_events_within_it() {
    #[distributed_lock(key = "calm", on_busy = rerun, min_hold = "500ms", client = locks)]
    async fn calm(locks: &Client, section: &Section) -> Outcome {
        section.run(0).await;
        Ok(Some(()))
    }
    let (_server, locks) = pair().await;
    let section = Section::default();
    assert_eq!(calm(&locks, &section).await.unwrap(), Some(()));
    let all = tokio::join!(
        calm(&locks, &section),
        calm(&locks, &section),
        calm(&locks, &section)
    );
    let skipped = [&all.0, &all.1, &all.2].map(|one| matches!(one, Ok(None)));
    assert_eq!(skipped.iter().filter(|skipped| **skipped).count(), 2);
    assert_eq!(section.runs(), 2);
}

#[tokio::test]
async fn inside_itself_it_joins_and_side_by_side_there_one_waits() {
    #[distributed_lock(key = "report", on_busy = rerun, client = locks)]
    async fn outer(locks: &Client, section: &Section) -> Outcome {
        assert_eq!(inner(locks, section).await.unwrap(), Some(()));
        let calls = (
            inner(locks, section),
            inner(locks, section),
            inner(locks, section),
        );
        let (a, b, c) = tokio::join!(calls.0, calls.1, calls.2);
        let ran = [a, b, c].map(|one| one.unwrap().is_some());
        assert_eq!(ran, [true, true, false]);
        Ok(Some(()))
    }
    #[distributed_lock(key = "report", on_busy = rerun, client = locks)]
    async fn inner(locks: &Client, section: &Section) -> Outcome {
        section.run(50).await;
        Ok(Some(()))
    }
    let (server, locks) = pair().await;
    let section = Section::default();
    assert_eq!(outer(&locks, &section).await.unwrap(), Some(()));
    assert_eq!((section.runs(), section.most()), (3, 1));
    nothing_left(&server).await;
}

#[tokio::test]
async fn whenever_the_one_that_waits_is_dropped_the_next_event_finds_a_place() {
    let (server, locks) = pair().await;
    for polls in 1..30 {
        let held = locks.lock("report").acquire().await.unwrap();
        let section = Section::default();
        let mut call = Box::pin(report(&locks, &section, 10));
        let polled = polled(call.as_mut(), polls);
        let _ = tokio::time::timeout(Duration::from_millis(30), polled).await;
        let released = tokio::spawn(held.release());
        if polls % 2 == 0 {
            let _ = tokio::time::timeout(Duration::from_millis(polls as u64), call.as_mut()).await;
        }
        drop(call);
        released.await.unwrap().unwrap();
        nothing_left(&server).await;
    }
}

#[tokio::test]
async fn a_shutdown_ends_the_one_that_waits_and_leaves_nothing() {
    let (server, [locks, other]) = both().await;
    let (section, first) = running(&locks, 600).await;
    let waits = spawn(&other, &section, 0);
    wait::until("one waits", || places(&server) == 1).await;
    other.shutdown().await;
    assert_eq!(places(&server), 0);
    let told = waits.await.unwrap();
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    assert_eq!(report(&locks, &section, 0).await.unwrap(), Some(()));
    assert!(first.is_finished());
    nothing_left(&server).await;
}

#[tokio::test]
async fn an_outage_is_never_taken_for_skipped() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let other = client(&server).await;
    let held = other.lock("report").acquire().await.unwrap();
    let section = Arc::new(Section::default());
    let waits = spawn(&locks, &section, 0);
    wait::until("one waits", || places(&server) == 1).await;
    let third = Client::connect(proxy.url()).await.unwrap();
    proxy.refuse();
    let told = report(&third, &section, 0).await;
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    // The others were skipped for its sake, and it is told.
    let told = waits.await.unwrap();
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    held.release().await.unwrap();
    assert_eq!(section.runs(), 0);
}

/// The release of the place is not answered: the body does not begin, and the caller is told.
#[tokio::test]
async fn no_body_begins_while_its_place_may_stand() {
    let (server, proxy, locks) = behind_a_proxy().await;
    let other = client(&server).await;
    let held = other.lock("report").acquire().await.unwrap();
    let section = Arc::new(Section::default());
    let waits = spawn(&locks, &section, 0);
    wait::until("one waits", || places(&server) == 1).await;
    wait::until("it is queued", || server.waiters("lock:report") == 1).await;
    // The grant arrives, and nothing that is asked afterwards.
    proxy.treat(Way::Requests, Treatment::Swallow);
    held.release().await.unwrap();
    let told = waits.await.unwrap();
    assert!(
        matches!(told, Err(Error::Unavailable { .. } | Error::Lost { .. })),
        "{told:?}"
    );
    assert_eq!(section.runs(), 0);
}

#[tokio::test]
async fn while_the_store_is_away_one_waits_here_or_all_run() {
    #[distributed_lock(key = "a", on_busy = rerun, on_unavailable = local, client = locks)]
    async fn local(locks: &Client, section: &Section) -> Outcome {
        section.run(300).await;
        Ok(Some(()))
    }
    #[distributed_lock(key = "a", on_busy = rerun, on_unavailable = run, client = locks)]
    async fn run(locks: &Client, section: &Section) -> Outcome {
        section.run(10).await;
        Ok(Some(()))
    }
    let (_server, proxy, locks) = behind_a_proxy().await;
    proxy.refuse();
    let section = Section::default();
    let calls = [(); 4].map(|()| local(&locks, &section));
    let [a, b, c, d] = calls;
    let all = tokio::join!(a, b, c, d);
    let all = [all.0, all.1, all.2, all.3].map(Result::unwrap);
    assert_eq!(all.iter().flatten().count(), 2, "{all:?}");
    assert_eq!((section.runs(), section.most()), (2, 1));
    let all = tokio::join!(run(&locks, &section), run(&locks, &section));
    assert_eq!((all.0.unwrap(), all.1.unwrap()), (Some(()), Some(())));
}

#[tokio::test(start_paused = true)]
async fn in_memory_and_in_paused_time_it_is_the_same() {
    let locks = Client::connect("memory:").await.unwrap();
    let (section, first) = running(&locks, 60_000).await;
    let calls = [(); 5].map(|()| spawn(&locks, &section, 1_000));
    let mut ran = 0;
    for call in calls {
        ran += usize::from(call.await.unwrap().unwrap().is_some());
    }
    assert!(first.is_finished());
    assert_eq!((ran, section.runs(), section.most()), (1, 2, 1));
}

#[tokio::test]
async fn one_that_is_not_polled_gives_its_place_up_with_its_future() {
    let (server, [locks, other]) = both().await;
    let held = other.lock("report").acquire().await.unwrap();
    let section = Section::default();
    let mut waits = Box::pin(report(&locks, &section, 0));
    tokio::select! {
        told = waits.as_mut() => panic!("{told:?}"),
        () = wait::until("it is queued", || server.waiters("lock:report") == 1) => {}
    }
    assert_eq!(places(&server), 1);
    held.release().await.unwrap();
    drop(waits);
    assert_eq!(report(&other, &section, 0).await.unwrap(), Some(()));
    nothing_left(&server).await;
}

#[tokio::test]
async fn on_a_quorum_and_on_a_cluster_a_burst_costs_two_runs_as_well() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let quorum = async || {
        let urls = servers.iter().map(Server::url);
        Client::builder().quorum(urls).await.unwrap()
    };
    let cluster = Cluster::start(3, 0);
    let on_cluster = async || Client::connect(cluster.url()).await.unwrap();
    let ttl = Duration::from_secs(10);
    let (locks, other) = (quorum().await, quorum().await);
    let (one, two) = (on_cluster().await, on_cluster().await);
    tokio::join!(
        a_burst_costs_two_runs(&locks, &other, ttl),
        a_burst_costs_two_runs(&one, &two, ttl)
    );
}

fn workers(count: usize, server: &Server, record: &Record, words: &[&str]) -> Vec<Worker> {
    let start = |_| Worker::start("events", &server.url(), record, words);
    let workers: Vec<_> = (0..count).map(start).collect();
    for worker in &workers {
        worker.says("ready");
    }
    workers
}

fn times(entries: &[Entry], event: Event) -> Vec<Duration> {
    let of_it = entries.iter().filter(|entry| entry.event == event);
    of_it.map(|entry| entry.at).collect()
}

#[test]
fn a_burst_of_a_hundred_over_four_processes_costs_two_runs() {
    let (server, record) = (Server::start(), Record::new());
    let mut workers = workers(4, &server, &record, &["10000", "1500"]);
    for worker in &mut workers {
        worker.tell("25");
        worker.tell("end");
    }
    for worker in &mut workers {
        assert!(worker.finish().success());
    }
    let entries = record.entries();
    let calls = times(&entries, Event::Call);
    let entered = times(&entries, Event::Enter);
    assert_eq!((calls.len(), entered.len()), (100, 2));
    assert!(entered.last() > calls.last());
    assert!(times(&entries, Event::Leave)[0] < entered[1]);
    assert_eq!(server.keys(), [""; 0]);
}

/// Every call that is skipped is followed by a run, also while the processes that run and wait are killed:
/// but those that are skipped for the sake of one that is dead, until its place has expired.
#[test]
fn every_skipped_event_is_seen_by_a_run_that_begins_later() {
    const TTL: Duration = Duration::from_secs(1);
    let mut random = Random::announced("events under kills");
    let (server, record) = (Server::start(), Record::new());
    let words = ["1000", "30"];
    let mut workers = workers(4, &server, &record, &words);
    let mut deaths = Vec::new();
    for round in 0..400 {
        let one = usize::try_from(random.below(4)).unwrap();
        if round % 80 == 79 {
            workers[one].kill();
            deaths.push(tests::record::now());
            workers[one] = self::workers(1, &server, &record, &words).remove(0);
        }
        workers[one].tell(&random.below(6).to_string());
        std::thread::sleep(random.millis(0, 20));
    }
    std::thread::sleep(TTL + TTL / 2);
    for worker in &mut workers {
        worker.tell("3");
        worker.tell("end");
    }
    for worker in &mut workers {
        assert!(worker.finish().success());
    }
    let entries = record.entries();
    let (entered, left) = (times(&entries, Event::Enter), times(&entries, Event::Leave));
    assert!(entered.len() > 20, "{}", entered.len());
    let skipped = entries
        .iter()
        .filter(|entry| entry.event == Event::Outcome && entry.note == "busy");
    let mut count = 0;
    for skipped in skipped {
        let same = |entry: &&Entry| {
            (entry.process, entry.call, entry.event) == (skipped.process, skipped.call, Event::Call)
        };
        let begun = entries.iter().find(same).unwrap().at;
        let seen = entered.iter().find(|entered| **entered > begun);
        let seen = *seen.expect("a run after it");
        // It waited for what ran, and for no event that came later.
        let runs_before = left
            .iter()
            .filter(|left| begun <= **left && **left < seen)
            .count();
        let hurt_from = begun.saturating_sub(TTL + TTL / 2);
        let hurts = |death: &Duration| hurt_from <= *death && *death < seen;
        if !deaths.iter().any(hurts) {
            assert!(
                runs_before <= 1,
                "{skipped:?} begun at {begun:?} is seen at {seen:?}"
            );
            assert!(
                seen < begun + Duration::from_millis(30) + SLACK,
                "{skipped:?}"
            );
        }
        count += 1;
    }
    assert!(count > 100, "{count}");
    assert_eq!(server.keys(), [""; 0]);
}

/// The store goes away while a call waits, or before it has heard of its place.
#[tokio::test]
async fn a_call_is_not_skipped_by_one_whose_body_runs_without_the_store() {
    #[distributed_lock(key = "k", ttl = "2s", on_busy = rerun, on_unavailable = local, client = locks)]
    async fn rerun(locks: &Client, section: &Section, millis: u64) -> Outcome {
        section.run(millis).await;
        Ok(Some(()))
    }
    for hears_of_its_place in [true, false] {
        let (server, proxy, locks) = behind_a_proxy().await;
        let other = client(&server).await;
        let held = other.lock("k").acquire().await.unwrap();
        let section = Arc::new(Section::default());
        if !hears_of_its_place {
            proxy.treat(Way::Replies, Treatment::Delay(Duration::from_millis(300)));
        }
        let waits = {
            let (locks, section) = (locks.clone(), Arc::clone(&section));
            tokio::spawn(async move { rerun(&locks, &section, 1000).await })
        };
        wait::until("it has a place", || places(&server) == 1).await;
        if hears_of_its_place {
            wait::until("it waits", || server.waiters("lock:k") == 1).await;
        }
        proxy.refuse();
        wait::until("it runs", || section.inside() == 1).await;
        // What happens now is not seen by the body that has begun.
        let event = {
            let other = other.clone();
            tokio::spawn(async move { rerun(&other, &Section::default(), 0).await })
        };
        // Time enough to be skipped.
        nap(300).await;
        held.release().await.unwrap();
        assert_eq!(event.await.unwrap().unwrap(), Some(()));
        waits.await.unwrap().unwrap();
    }
}

#[test]
fn threads_run_again_also_on_local_locks() {
    #[distributed_lock(key = "k", ttl = "2s", on_busy = rerun, on_unavailable = local, client = locks, blocking)]
    fn rerun(locks: &Client, runs: &AtomicUsize, inside: &AtomicUsize) -> Outcome {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
        runs.fetch_add(1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(600));
        inside.fetch_sub(1, Ordering::SeqCst);
        Ok(Some(()))
    }
    let server = Server::start();
    let proxy = Proxy::before(server.address());
    let locks = Client::connect_blocking(proxy.url()).unwrap();
    for away in [false, true] {
        if away {
            proxy.refuse();
        }
        let (runs, inside) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| rerun(&locks, &runs, &inside).unwrap());
            }
        });
        assert_eq!(runs.load(Ordering::SeqCst), 2, "{away}");
    }
}
