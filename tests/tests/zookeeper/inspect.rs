//! What is listed and shown of locks, how they are ended, and what is found on servers.

use std::time::{Duration, SystemTime};

use lockattr::store::inspect::{Ended, Entry, EntryKind, Finding, Severity};
use lockattr::{Client, Error, LossCause, distributed_lock};
use tests::inspected::{end, entry, is_held_by, list, show};
use tests::statuses::{is_told_of_everything, is_told_of_slots};
use tests::zookeeper::{Control, Ensemble};
use tokio::time::timeout;

use crate::support::{SLACK, a_client, client, millis, nodes, queued, seconds, shared};

#[distributed_lock(key = "<area>:<key>", once = "60s", on_done = error, client = locks)]
async fn done(locks: &Client, area: &str, key: &str) -> Result<(), Error> {
    Ok(())
}

/// The keys that match, sorted, each with the kinds that stand there and how many wait.
async fn listed(locks: &Client, pattern: &str) -> Vec<String> {
    let found = list(locks, pattern).await.into_values().map(|listed| {
        let kinds = listed.entries.iter().map(|entry| match entry.kind {
            EntryKind::Held { .. } => "held",
            EntryKind::Closed { .. } => "closed",
            EntryKind::Done { .. } => "done",
            _ => "foreign",
        });
        let kinds = kinds.collect::<Vec<_>>().join("+");
        format!("{} {kinds} {}", listed.lock, listed.waiters)
    });
    let mut found: Vec<_> = found.collect();
    found.sort();
    found
}

fn is_recent(since: SystemTime) -> bool {
    // The server's clock is this machine's.
    let age = since.elapsed().unwrap_or_default();
    age < seconds(30)
}

#[tokio::test]
async fn every_kind_is_listed_once_and_shown() {
    let server = shared();
    let (locks, others) = (a_client().await, a_client().await);
    let mut control = Control::of(server.address(0));
    let held = locks.lock("list:a/ä").acquire().await.unwrap();
    let mut slots = Vec::new();
    for _ in 0..2 {
        slots.push(locks.lock("list:slots").permits(3).acquire().await.unwrap());
    }
    let closed = locks.lock("list:closed").min_hold(seconds(19));
    closed.acquire().await.unwrap().release().await.unwrap();
    done(&locks, "list", "done").await.unwrap();
    drop(locks.lock("list:free").acquire().await.unwrap());
    let other = locks.lock("other").acquire().await.unwrap();
    control
        .create("/locks/lock:list:foreign", 0, false)
        .unwrap();
    control
        .create("/locks/lock:list:foreign/theirs", 0, false)
        .unwrap();
    // Of the callers of one client, one stands in the store's queue.
    let third = a_client().await;
    let mut waiting = Vec::new();
    for (client, ttl, count) in [(&others, 7, 2), (&third, 9, 3)] {
        let request = client.lock("list:a/ä").ttl(seconds(ttl));
        waiting.push(tokio::spawn(request.wait(seconds(60)).acquire()));
        queued(&mut control, "list:a%2f%c3%a4", count).await;
    }

    let all = [
        "list:a/ä held 2",
        "list:closed closed 0",
        "list:done done 0",
        "list:foreign foreign 0",
        "list:slots held+held 0",
    ];
    assert_eq!(listed(&locks, "list:*").await, all);
    assert_eq!(listed(&locks, "list:?/ä").await, all[..1]);

    let shown = show(&locks, "list:a/ä").await;
    let [
        Entry {
            kind: EntryKind::Held { owner, since },
            remaining,
            ..
        },
    ] = shown.listed.entries.as_slice()
    else {
        panic!("{shown:?}")
    };
    assert_eq!(owner, &held.owner());
    assert!(is_recent(since.unwrap()));
    assert_eq!(*remaining, Some(seconds(20)));
    let ttls: Vec<_> = shown.queue.iter().map(|waiting| waiting.ttl).collect();
    assert_eq!(ttls, [Some(seconds(7)), Some(seconds(9))]);
    assert!(
        shown
            .queue
            .iter()
            .all(|waiting| is_recent(waiting.since.unwrap()))
    );

    let shown = show(&locks, "list:slots").await.listed;
    assert_eq!(shown.permits, Some(3));
    for (entry, lease) in shown.entries.iter().zip(&slots) {
        let EntryKind::Held { owner, since } = &entry.kind else {
            panic!("{entry:?}")
        };
        assert_eq!((entry.slot, owner.as_str()), (lease.slot(), lease.owner()));
        assert!(is_recent(since.unwrap()));
    }
    for (key, length) in [("list:closed", 19), ("list:done", 60)] {
        let entry = entry(&locks, key).await;
        let (EntryKind::Closed {
            since: Some(since), ..
        }
        | EntryKind::Done { since }) = entry.kind
        else {
            panic!("{entry:?}")
        };
        assert!(is_recent(since));
        let remaining = entry.remaining.unwrap();
        assert!(
            seconds(length / 4) < remaining && remaining <= seconds(length),
            "{remaining:?}"
        );
    }
    let free = show(&locks, "list:free").await;
    assert!(free.listed.entries.is_empty() && free.queue.is_empty());
    let foreign = entry(&locks, "list:foreign").await;
    let refused = locks.inspect().unwrap().end("list:foreign", &foreign).await;
    assert!(matches!(refused, Err(Error::Foreign { .. })), "{refused:?}");
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
    drop((slots, other));
}

#[tokio::test]
async fn who_finds_a_key_closed_is_told_since_when() {
    let (locks, others) = (a_client().await, a_client().await);
    let closed = locks.lock("told:closed").min_hold(seconds(19));
    closed.acquire().await.unwrap().release().await.unwrap();
    let busy = others.lock("told:closed").acquire().await.unwrap_err();
    let Error::Busy {
        since: Some(since), ..
    } = busy
    else {
        panic!("{busy:?}")
    };
    let EntryKind::Closed { since: shown, .. } = entry(&locks, "told:closed").await.kind else {
        panic!("it is closed")
    };
    assert_eq!(Some(since), shown);
}

#[tokio::test]
async fn more_locks_than_a_page_has_are_listed_once() {
    let locks = a_client().await;
    let keys: Vec<_> = (0..450).map(|number| format!("many:{number:03}")).collect();
    let all = locks.lock_all(keys.clone()).acquire().await.unwrap();
    let listed = listed(&locks, "many:*").await;
    let expected: Vec<_> = keys.iter().map(|key| format!("{key} held 0")).collect();
    assert_eq!(listed, expected);
    drop(all);
}

#[tokio::test]
async fn the_next_waiter_is_in_at_once_and_the_holder_is_told() {
    let (locks, others, third) = (a_client().await, a_client().await, a_client().await);
    let held = locks.lock("end:held").acquire().await.unwrap();
    let mut control = Control::of(shared().address(0));
    let waits = others.lock("end:held").wait(seconds(60));
    let waiter = tokio::spawn(waits.acquire());
    queued(&mut control, "end:held", 2).await;

    let shown = entry(&third, "end:held").await;
    assert_eq!(end(&third, "end:held", &shown).await, Ended::Ended);
    let next = timeout(SLACK, waiter).await.expect("in at once");
    let next = next.unwrap().unwrap();
    let lost = timeout(seconds(1) + SLACK, held.lost())
        .await
        .expect("told");
    let is_told = matches!(
        lost,
        Error::Lost {
            cause: LossCause::Deleted | LossCause::Taken,
            ..
        }
    );
    assert!(is_told, "{lost}");
    assert_eq!(end(&third, "end:held", &shown).await, Ended::Changed);
    let stands = nodes(&mut control, "end:held");
    assert!(stands[0].starts_with(next.owner()), "{stands:?}");
    next.release().await.unwrap();
    assert_eq!(end(&third, "end:held", &shown).await, Ended::Gone);
}

#[tokio::test]
async fn one_slot_and_one_of_three_keys_end_alone() {
    let (locks, others) = (a_client().await, a_client().await);
    let mut control = Control::of(shared().address(0));
    let mut slots = Vec::new();
    for _ in 0..3 {
        slots.push(locks.lock("end:slots").permits(3).acquire().await.unwrap());
    }
    let waits = others.lock("end:slots").permits(3).wait(seconds(60));
    let waiter = tokio::spawn(waits.acquire());
    queued(&mut control, "end:slots", 7).await;
    let shown = show(&locks, "end:slots").await.listed.entries[1].clone();
    assert_eq!(end(&locks, "end:slots", &shown).await, Ended::Ended);
    let next = timeout(SLACK, waiter).await.expect("in at once");
    let next = next.unwrap().unwrap();
    assert_eq!(next.slot(), 1);
    assert_eq!(end(&locks, "end:slots", &shown).await, Ended::Changed);
    assert_eq!(show(&locks, "end:slots").await.listed.entries.len(), 3);

    // Also where the holder's own client ends it.
    let all = locks
        .lock_all(["end:a", "end:b", "end:c"])
        .acquire()
        .await
        .unwrap();
    let shown = entry(&locks, "end:b").await;
    assert_eq!(end(&locks, "end:b", &shown).await, Ended::Ended);
    assert_eq!(nodes(&mut control, "end:b"), Vec::<String>::new());
    timeout(seconds(1) + SLACK, all.lost()).await.expect("told");
    drop(all);
    for key in ["end:a", "end:c"] {
        crate::support::nothing_left(&mut control, key, seconds(5)).await;
    }
}

#[tokio::test]
async fn readers_and_weights_are_shown_and_end_alone() {
    let (one, two) = (a_client().await, a_client().await);
    let reader = |locks: &Client| locks.lock("end:doc").shared().acquire();
    let [first, second] = [reader(&one).await.unwrap(), reader(&two).await.unwrap()];
    let left = one.lock("end:doc").shared().min_hold(seconds(19));
    left.acquire().await.unwrap().release().await.unwrap();
    let shown = show(&two, "end:doc").await.listed;
    assert!(shown.shared && shown.permits.is_none(), "{shown:?}");
    let is_first = |entry: &&Entry| is_held_by(entry, &first);
    let entry = shown.entries.iter().find(is_first).unwrap();
    assert!((shown.entries.len(), entry.slot, entry.weight) == (3, 0, 1));
    assert_eq!(end(&two, "end:doc", entry).await, Ended::Ended);
    let lost = timeout(seconds(1) + SLACK, first.lost()).await;
    assert!(matches!(lost, Ok(Error::Lost { .. })), "{lost:?}");
    assert!(second.token().await.is_ok());
    assert_eq!(show(&two, "end:doc").await.listed.entries.len(), 2);
    second.release().await.unwrap();
    let closed = show(&two, "end:doc").await.listed;
    assert!(closed.shared && matches!(closed.entries[0].kind, EntryKind::Closed { .. }));
    let ended = end(&two, "end:doc", &closed.entries[0]).await;
    assert_eq!(ended, Ended::Ended);

    let units = |locks: &Client, weight| locks.lock("end:units").permits(9).weight(weight);
    let heavy = units(&one, 7).acquire().await.unwrap();
    let light = units(&two, 2).acquire().await.unwrap();
    let waits = tokio::spawn(units(&a_client().await, 6).wait(seconds(60)).acquire());
    let waiting = async || show(&two, "end:units").await.queue.len() == 1;
    while !waiting().await {}
    let shown = show(&two, "end:units").await.listed;
    let of = |entry: &Entry| (entry.slot, entry.weight);
    let all: Vec<_> = shown.entries.iter().map(of).collect();
    assert_eq!((all, shown.permits), (vec![(0, 7), (1, 2)], Some(9)));
    assert!(!shown.shared && !two.status("end:units").await.unwrap().is_free());
    let ended = end(&two, "end:units", &shown.entries[0]).await;
    assert_eq!(ended, Ended::Ended);
    let next = timeout(SLACK, waits).await.expect("in at once");
    assert_eq!(next.unwrap().unwrap().slot(), 0);
    let lost = timeout(seconds(1) + SLACK, heavy.lost()).await;
    assert!(matches!(lost, Ok(Error::Lost { .. })), "{lost:?}");
    light.release().await.unwrap();
}

#[tokio::test]
async fn marks_end_if_they_are_those_that_were_shown() {
    let (locks, others) = (a_client().await, a_client().await);
    done(&locks, "end", "done").await.unwrap();
    assert!(matches!(
        done(&locks, "end", "done").await,
        Err(Error::Done { .. })
    ));
    let shown = entry(&locks, "end:done").await;
    let mut earlier = shown.clone();
    if let EntryKind::Done { since } = &mut earlier.kind {
        *since -= millis(1);
    }
    assert_eq!(end(&locks, "end:done", &earlier).await, Ended::Changed);
    assert_eq!(end(&locks, "end:done", &shown).await, Ended::Ended);
    assert_eq!(end(&locks, "end:done", &shown).await, Ended::Gone);
    done(&locks, "end", "done").await.unwrap();

    let closed = locks.lock("end:closed").min_hold(seconds(19));
    closed.acquire().await.unwrap().release().await.unwrap();
    let waits = others.lock("end:closed").wait(seconds(60));
    let waiter = tokio::spawn(waits.acquire());
    let mut control = Control::of(shared().address(0));
    queued(&mut control, "end:closed", 2).await;
    let shown = show(&locks, "end:closed").await;
    assert_eq!(shown.listed.waiters, 1);
    let ended = end(&locks, "end:closed", &shown.listed.entries[0]).await;
    assert_eq!(ended, Ended::Ended);
    drop(
        timeout(SLACK, waiter)
            .await
            .expect("in at once")
            .unwrap()
            .unwrap(),
    );
}

async fn diagnosed(locks: &Client) -> Vec<Finding> {
    let inspector = locks.inspect().unwrap();
    inspector.diagnose().await.unwrap()
}

fn of<'a>(findings: &'a [Finding], topic: &str) -> Vec<&'a Finding> {
    findings
        .iter()
        .filter(|finding| finding.topic == topic)
        .collect()
}

#[tokio::test]
async fn servers_in_order_are_told_so_and_one_that_is_away_by_its_address() {
    let ensemble = Ensemble::three();
    let locks = client(&ensemble.url(), Duration::from_secs(20)).await;
    let mut control = Control::of(ensemble.address(0));
    let before = control.children("/locks");
    let findings = diagnosed(&locks).await;
    for topic in [
        "server",
        "load",
        "ensemble",
        "sessions",
        "latency",
        "disks",
        "clock",
        "rights",
        "marks",
        "encryption",
    ] {
        assert!(!of(&findings, topic).is_empty(), "{topic}: {findings:?}");
    }
    for finding in &findings {
        assert!(finding.severity <= Severity::Advice, "{finding:?}");
        let is_good = finding.severity == Severity::Good;
        assert_eq!(is_good, finding.advice.is_empty(), "{finding:?}");
    }
    let words = of(&findings, "server")
        .into_iter()
        .map(|server| &server.found);
    assert_eq!(words.filter(|found| found.contains("leader")).count(), 1);
    assert!(
        of(&findings, "ensemble")[0]
            .found
            .contains("3 servers vote")
    );
    assert_eq!(control.children("/locks"), before);

    let away = ensemble.follower();
    ensemble.kill(away);
    let findings = diagnosed(&locks).await;
    let bad: Vec<_> = findings
        .iter()
        .filter(|finding| finding.severity > Severity::Advice)
        .collect();
    let [bad] = bad.as_slice() else {
        panic!("{bad:?}")
    };
    assert_eq!(bad.part, ensemble.address(away).to_string());
    assert_eq!(bad.severity, Severity::Warning);
}

#[tokio::test]
async fn a_right_that_is_missing_is_a_fault_and_names_itself() {
    let server = shared();
    let mut control = Control::of(server.address(0));
    control.log_in("owner", "secret");
    control.create("/theirs", 0, true).unwrap();
    let url = server.url().replace("/locks", "/theirs");
    let locks = Client::builder().connect_lazily(url).unwrap();
    let findings = diagnosed(&locks).await;
    let rights = of(&findings, "rights")[0];
    assert_eq!(rights.severity, Severity::Fault);
    assert!(rights.found.contains("cdrw"), "{rights:?}");
    let refused = locks.inspect().unwrap().list("").next().await.unwrap_err();
    assert!(refused.to_string().contains("cdrw"), "{refused}");
}

#[tokio::test]
async fn without_taking_it_a_client_is_told_who_holds_a_key() {
    let (locks, others) = (a_client().await, a_client().await);
    is_told_of_everything(&locks, &others, seconds(5)).await;
    is_told_of_slots(&locks, &others, seconds(5)).await;
}
