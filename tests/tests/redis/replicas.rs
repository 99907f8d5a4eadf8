//! Grants that count once replicas have acknowledged them: what they cost, what is told, and what is found
//! when connecting. What becomes of them while replicas come and go is `replicas_faults`.

use std::time::{Duration, Instant};

use lockattr::{Client, ClientBuilder, Error, Lease, Memory, StoreError, distributed_lock};
use tests::server::Server;
use tests::wait::{self, PATIENCE};

use crate::rights::{least, user};
use crate::support::{CLEARED, client, is_done, job, nap, nothing_left};

/// For how long replicas are waited for where they answer: not reached.
const LONG: Duration = Duration::from_secs(20);

/// The same where they do not.
const SHORT: Duration = Duration::from_secs(1);

pub(crate) fn waits_for(count: u32, timeout: Duration) -> ClientBuilder {
    Client::builder()
        .ttl(timeout.max(Duration::from_secs(15)) * 2)
        .replicas(count, timeout)
}

/// A client of that kind. Replicas that are behind for a moment, on a busy machine, are waited for.
pub(crate) async fn connected(count: u32, timeout: Duration, url: &str) -> Client {
    let start = Instant::now();
    loop {
        match waits_for(count, timeout).connect(url).await {
            Ok(locks) => return locks,
            Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
        }
    }
}

/// A server with so many replicas, all in step.
pub(crate) fn with_replicas(count: usize) -> (Server, Vec<Server>) {
    let primary = Server::start();
    let replicas = (0..count).map(|_| primary.replica()).collect();
    (primary, replicas)
}

/// Why a call was unavailable, which replicas have to be the cause of.
pub(crate) fn unacknowledged(answer: Result<Lease, Error>) -> StoreError {
    match answer {
        Err(Error::Unavailable { source, .. }) if source.is_unacknowledged() => source,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_lease_is_had_once_so_many_replicas_have_it() {
    let (primary, replicas) = with_replicas(3);
    for count in 1..=3 {
        let locks = connected(count, LONG, &primary.url()).await;
        let before = primary.commands();
        for key in 0..20 {
            let lease = locks.lock(format!("{key}")).acquire().await.unwrap();
            let lock = format!("lock:{key}");
            let owner = primary.get(&lock);
            let has = |replica: &&Server| replica.get(&lock) == owner;
            let have = replicas.iter().filter(has).count();
            assert!(have >= count as usize, "{have} of {count} have {key}");
            lease.release().await.unwrap();
            let on_all = || replicas.iter().all(|replica| replica.get(&lock).is_none());
            wait::until("it is gone everywhere", on_all).await;
        }
        // Each is written before it is waited for, also within the same millisecond.
        let used = primary.commands().since(&before);
        assert_eq!(used.of("pexpire"), 20, "{used:?}");
    }
}

#[tokio::test]
async fn field_11_fewer_than_asked_for_is_given_back_and_told() {
    let (primary, replicas) = with_replicas(3);
    let clients: Vec<Client> = {
        let mut clients = Vec::new();
        for count in 1..=3 {
            clients.push(connected(count, SHORT, &primary.url()).await);
        }
        clients
    };
    for (left, frozen) in [(2, 0), (1, 1), (0, 2)] {
        replicas[frozen].freeze();
        for (locks, count) in clients.iter().zip(1..) {
            let taken = locks.lock("sync:42").acquire().await;
            if count <= left {
                taken.unwrap().release().await.unwrap();
                continue;
            }
            let key = || primary.get("lock:sync:42").is_none();
            wait::within("it is given back", CLEARED, key).await;
            let text = taken.as_ref().unwrap_err().to_string();
            let told = format!(
                "`sync:42` was not taken: granted, but acknowledged by {left} of {count} replicas within \
                 1s: given back"
            );
            assert!(text.starts_with(&told), "{text}");
            assert!(unacknowledged(taken).is_in_doubt());
        }
    }
    nothing_left(&primary).await;
    for replica in &replicas {
        replica.thaw();
    }
    for locks in &clients {
        let start = Instant::now();
        while let Err(error) = locks.lock("sync:42").acquire().await.map(drop) {
            assert!(start.elapsed() < CLEARED, "{error}");
        }
    }
}

#[distributed_lock(key = "once:<id>", once = "20s", on_busy = skip, client = locks)]
async fn done_once(locks: &Client, id: u64) -> Result<(), Error> {
    Ok(())
}

#[tokio::test]
async fn every_kind_of_grant_is_acknowledged() {
    let (primary, replicas) = with_replicas(1);
    let locks = connected(1, SHORT, &primary.url()).await;
    let slot = || locks.lock("slots").permits(2);
    let list = || locks.lock_all(["a", "b", "c"]);
    let first = slot().acquire().await.unwrap();

    let (second, all) = (slot().acquire().await, list().acquire().await);
    let (second, all) = (second.unwrap(), all.unwrap());
    done_once(&locks, 1).await.unwrap();
    for lock in ["a", "b", "c"] {
        let lock = format!("lock:{lock}");
        assert!(replicas[0].get(&lock).is_some(), "{lock}");
    }
    assert_eq!(replicas[0].holders("lock:slots").len(), 2);
    second.release().await.unwrap();
    all.release().await.unwrap();

    replicas[0].freeze();
    unacknowledged(slot().acquire().await);
    unacknowledged(list().acquire().await);
    unacknowledged(list().wait(Duration::from_secs(5)).acquire().await);
    let again = done_once(&locks, 2).await.unwrap_err();
    assert!(again.to_string().contains("0 of 1 replicas"), "{again}");
    let cleared = || {
        let left = ["lock:once:1", "lock:slots"];
        primary.keys() == left
    };
    wait::within("nothing else is left", CLEARED, cleared).await;
    assert!(is_done(&primary, "lock:once:1"));
    replicas[0].thaw();
    first.release().await.unwrap();
    done_once(&locks, 2).await.unwrap();
    assert!(is_done(&primary, "lock:once:2"));
}

/// Those that ask at the same time share what is asked of the replicas, and one connection.
#[tokio::test]
async fn field_11_many_grants_are_acknowledged_together() {
    const CALLS: usize = 200;
    let (primary, _replicas) = with_replicas(2);
    let locks = connected(2, LONG, &primary.url()).await;
    // The connection of this runtime is made as well.
    let first = locks.lock("first").acquire().await.unwrap();
    first.release().await.unwrap();
    nothing_left(&primary).await;
    let (before, connected) = (primary.commands(), primary.clients());
    let calls = (0..CALLS).map(|key| tokio::spawn(locks.lock(format!("{key}")).acquire()));
    let mut leases = Vec::new();
    for call in calls.collect::<Vec<_>>() {
        leases.push(call.await.unwrap().unwrap());
    }
    let used = primary.commands().since(&before);
    assert!(used.of("wait") <= 20, "{used:?}");
    assert_eq!(used.of("set"), CALLS as u64, "{used:?}");
    assert_eq!(used.of("evalsha"), CALLS as u64, "{used:?}");
    assert_eq!(primary.clients(), connected);
}

#[tokio::test]
async fn what_a_call_sends() {
    let (primary, _replicas) = with_replicas(1);
    let plain = client(&primary).await;
    let locks = connected(1, SHORT, &primary.url()).await;
    for client in [&plain, &locks] {
        job(client, 1, async {}).await.unwrap();
    }
    let mut monitor = primary.monitor();
    let mut sent = async |client: &Client| {
        job(client, 1, async {}).await.unwrap();
        let seen = monitor.seen();
        let seen = seen.into_iter().filter(|seen| !seen.by_script);
        let mut sent: Vec<_> = seen.map(|seen| seen.words).collect();
        sent.retain(|words| ["SET", "EVALSHA", "EVAL", "WAIT"].contains(&words[0].as_str()));
        sent
    };
    let (without, with) = (sent(&plain).await, sent(&locks).await);
    let names = |sent: &[Vec<String>]| -> Vec<String> {
        sent.iter().map(|words| words[0].clone()).collect()
    };
    assert_eq!(names(&without), ["SET", "EVALSHA"]);
    assert_eq!(names(&with), ["SET", "EVALSHA", "WAIT", "EVALSHA"]);
    // In whole milliseconds; 0 would wait without end.
    assert_eq!(with[2][1], "1");
    let millis: u64 = with[2][2].parse().unwrap();
    assert!((1..=1_001).contains(&millis), "{millis}");
}

#[tokio::test]
async fn a_server_without_enough_replicas_is_found_when_connecting() {
    let (primary, replicas) = with_replicas(1);
    let connect = async |count| waits_for(count, SHORT).connect(primary.url()).await;
    connect(1).await.unwrap();
    for (count, frozen) in [(2, false), (1, true)] {
        if frozen {
            replicas[0].freeze();
        }
        let error = connect(count).await.unwrap_err();
        let left = count - 1;
        let told = format!("acknowledged by {left} of {count} replicas within 1s");
        assert!(error.to_string().contains(&told), "{error}");
        assert!(error.to_string().contains("`INFO replication`"), "{error}");
        assert!(matches!(error, Error::Unavailable { source, .. } if source.is_unacknowledged()));
        nothing_left(&primary).await;
    }
}

#[tokio::test]
async fn field_11_a_server_that_has_renamed_the_command_is_found_when_connecting() {
    let server = Server::with(&["--rename-command", "WAIT", ""]);
    let error = waits_for(1, LONG).connect(server.url()).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("unknown command"), "{text}");
    assert!(text.contains("`replicas` needs the command WAIT"), "{text}");
    nothing_left(&server).await;
    client(&server).await;
}

#[tokio::test]
async fn field_11_a_missing_right_is_found_when_connecting() {
    let (primary, _replica) = with_replicas(1);
    let url = user(&primary, &least());
    let error = waits_for(1, LONG).connect(&url).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("'wait'") && text.contains("the right +wait"),
        "{text}"
    );
    nothing_left(&primary).await;
    // It is all that is needed beside the others.
    let _: () = primary.ask("ACL SETUSER worker +wait");
    let _: () = primary.ask("ACL LOG RESET");
    let locks = waits_for(1, LONG).connect(&url).await.unwrap();
    let lease = locks.lock("a").acquire().await.unwrap();
    lease.release().await.unwrap();
    let denied: Vec<redis::Value> = primary.ask("ACL LOG");
    assert!(denied.is_empty(), "{denied:?}");
    // A client that has it no more is told as well.
    let _: () = primary.ask("ACL SETUSER worker -wait");
    let source = unacknowledged(locks.lock("b").acquire().await);
    assert!(source.to_string().contains("the right +wait"), "{source}");
    nothing_left(&primary).await;
}

#[tokio::test]
async fn settings_that_cannot_be_used_are_refused() {
    const HOUR: Duration = Duration::from_secs(3600);
    let refused = |builder: ClientBuilder| match builder.connect_lazily("redis://127.0.0.1/") {
        Err(Error::Config(text)) => text,
        other => panic!("{other:?}"),
    };
    let of = |count, timeout| Client::builder().ttl(2 * HOUR).replicas(count, timeout);
    for (count, timeout) in [
        (0, LONG),
        (1, Duration::ZERO),
        (1, Duration::from_micros(999)),
        (1, HOUR + Duration::from_millis(1)),
        (1, Duration::MAX),
    ] {
        let text = refused(of(count, timeout));
        assert!(text.contains("at least one replica"), "{text}");
    }
    for (count, timeout) in [(1, Duration::from_millis(1)), (u32::MAX, HOUR)] {
        of(count, timeout)
            .connect_lazily("redis://127.0.0.1/")
            .unwrap();
    }
    let short = Client::builder().ttl(LONG).replicas(1, LONG);
    assert!(refused(short).contains("ttl of 20s"));

    let kinds = [
        of(1, LONG).connect_lazily("memory:"),
        of(1, LONG).store(Memory::new()),
    ];
    for made in kinds {
        match made {
            Err(Error::Config(text)) => assert!(text.contains("a redis:// URL"), "{text}"),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_ttl_that_would_be_over_before_its_grant_counts_is_refused() {
    let (primary, _replica) = with_replicas(1);
    let locks = connected(1, SHORT, &primary.url()).await;
    for (ttl, is_refused) in [(SHORT, true), (2 * SHORT, false)] {
        let taken = locks.lock("a").ttl(ttl).renew(false).acquire().await;
        match taken {
            Err(Error::Invalid { reason, .. }) if is_refused => {
                assert!(reason.contains("ttl of 1s"), "{reason}");
                assert_eq!(primary.keys(), [""; 0]);
            }
            Ok(_) if !is_refused => {}
            other => panic!("{ttl:?}: {other:?}"),
        }
    }
}

/// Of a call that is dropped while its grant is being acknowledged nothing is left.
#[tokio::test]
async fn a_call_that_is_dropped_meanwhile_gives_back() {
    let (primary, replicas) = with_replicas(1);
    let locks = connected(1, LONG, &primary.url()).await;
    replicas[0].freeze();
    for key in 0..20 {
        let call = tokio::spawn(locks.lock(format!("{key}")).acquire());
        let granted = || primary.get(&format!("lock:{key}")).is_some();
        wait::until("it is granted", granted).await;
        nap(key).await;
        call.abort();
    }
    nothing_left(&primary).await;
}
