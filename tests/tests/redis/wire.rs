//! The bytes on the wire, which two releases of an application must agree on, and how many there
//! are.

use std::fs;
use std::time::Duration;

use lockattr::{Client, Error, LossCause, Memory};
use tests::monitor::{Monitor, Seen};
use tests::server::{Commands, Server};
use tests::wait;

use crate::support::{client, job, nap, pair};

/// What clients sent, without the harness's own questions.
fn sent(monitor: &mut Monitor) -> Vec<Vec<String>> {
    let by_clients = monitor
        .seen()
        .into_iter()
        .filter(|seen: &Seen| !seen.by_script);
    by_clients
        .map(|seen| seen.words)
        .filter(|words| {
            !["INFO", "GET", "PTTL", "DBSIZE", "TYPE", "KEYS"].contains(&words[0].as_str())
        })
        .collect()
}

fn used(server: &Server, before: &Commands) -> (u64, u64, u64) {
    let used = server.commands().since(before);
    (used.of("set"), used.of("evalsha"), used.total())
}

#[tokio::test]
async fn an_uncontended_call_is_one_set_and_one_evalsha() {
    let (server, locks) = pair().await;
    // The first call may load what the connection has not seen.
    assert_eq!(job(&locks, 1, async {}).await.unwrap(), Some(()));
    let mut monitor = server.monitor();
    let before = server.commands();
    for user in 0..10 {
        assert_eq!(job(&locks, user, async {}).await.unwrap(), Some(()));
    }
    // A script's own GET and DEL are counted by the server too, hence the names.
    let (set, evalsha, _) = used(&server, &before);
    assert_eq!((set, evalsha), (10, 10));
    let words = sent(&mut monitor);
    let names: Vec<&str> = words.iter().map(|words| words[0].as_str()).collect();
    assert_eq!(names, ["SET", "EVALSHA"].repeat(10));
}

/// What a client sends, and what the server runs for it in scripts: alone, with permits, as one of several
/// readers.
#[tokio::test]
async fn each_form_costs_so_many_commands() {
    let (server, locks) = pair().await;
    let ttl = Duration::from_secs(60);
    let of = |form: &str| {
        let request = locks.lock(form).ttl(ttl);
        match form {
            "alone" => request,
            "permits" => request.permits(10),
            "weight" => request.permits(1_000_000).weight(400_000),
            _ => request.shared(),
        }
    };
    let mut table = Vec::new();
    for form in ["alone", "permits", "weight", "shared"] {
        // The scripts are known, and a neighbour is there where one may be.
        drop(of(form).acquire().await.unwrap());
        wait::until("it is given back", || server.size() == 0).await;
        let neighbour = if form == "alone" {
            None
        } else {
            Some(of(form).acquire().await.unwrap())
        };
        let before = server.commands();
        let lease = of(form).acquire().await.unwrap();
        let taken = used(&server, &before);
        let before = server.commands();
        lease.release().await.unwrap();
        let given_back = used(&server, &before);
        drop(neighbour);
        wait::until("it is given back", || server.size() == 0).await;
        // What is sent, and all, in scripts as well.
        let of_both = [taken, given_back].map(|(set, evalsha, all)| {
            let sent = if evalsha == 0 { set } else { evalsha };
            (sent, all - sent)
        });
        println!("{form}: taken and given back {of_both:?}");
        table.push(of_both);
    }
    // A lock that one holds alone costs no more than a compare and a delete.
    assert_eq!(table[0], [(1, 0), (1, 2)]);
    for cost in &table[1..] {
        let is_few = |(sent, in_scripts): &(u64, u64)| *sent == 1 && *in_scripts <= 16;
        assert!(cost.iter().all(is_few), "{cost:?}");
    }
}

#[tokio::test]
async fn the_lock_is_one_string_with_an_owner_and_an_expiry() {
    let (server, locks) = pair().await;
    let mut monitor = server.monitor();
    let value = job(&locks, 42, async {
        assert_eq!(server.keys(), ["lock:sync:42"]);
        assert_eq!(server.ask::<String>("TYPE lock:sync:42"), "string");
        let ttl = server.pttl("lock:sync:42");
        assert!((1_000..=2_000).contains(&ttl), "{ttl}");
        server.get("lock:sync:42").unwrap()
    });
    let owner = value.await.unwrap().unwrap();
    assert_eq!(server.size(), 0);

    // {uuid v7, simple form}@{host}:{pid}
    let (id, place) = owner.split_once('@').unwrap();
    let parsed = uuid::Uuid::try_parse(id).unwrap();
    assert_eq!(parsed.get_version_num(), 7);
    let (seconds, _) = parsed.get_timestamp().unwrap().to_unix();
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_secs();
    assert!(now.abs_diff(seconds) < 10, "{seconds} at {now}");
    assert_eq!(parsed.simple().to_string(), id);
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    assert_eq!(place, format!("{}:{}", host.trim(), std::process::id()));

    let sent = sent(&mut monitor);
    assert_eq!(sent[0][..3], ["SET", "lock:sync:42", &owner]);
    let mut options = sent[0][3..].to_vec();
    options.sort();
    assert_eq!(options, ["2000", "NX", "PX"]);
    assert_eq!(sent[1][0], "EVALSHA");
    // The lock, and who waits for it.
    let queue = "lock:wait:{lock:sync:42}";
    assert_eq!(sent[1][2..], ["2", "lock:sync:42", queue, &owner]);
    assert_eq!(sent.len(), 2);
}

#[tokio::test]
async fn each_acquisition_is_another_owner() {
    let (server, locks) = pair().await;
    let mut owners = Vec::new();
    for _ in 0..20 {
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        assert_eq!(server.get("lock:sync:42").as_deref(), Some(lease.owner()));
        owners.push(lease.owner().to_owned());
        lease.release().await.unwrap();
    }
    owners.sort();
    owners.dedup();
    assert_eq!(owners.len(), 20);
}

#[tokio::test]
async fn the_prefix_is_put_before_every_key_once() {
    let server = Server::start();
    let plain = client(&server).await;
    let lease = plain.lock("lock:a").acquire().await.unwrap();
    assert_eq!(server.keys(), ["lock:lock:a"]);
    assert_eq!(lease.key(), "lock:a");
    lease.release().await.unwrap();

    let mine = Client::builder()
        .prefix("app:locks:")
        .connect(server.url())
        .await
        .unwrap();
    let lease = mine.lock("a").acquire().await.unwrap();
    lease.token().await.unwrap();
    assert_eq!(
        server.keys(),
        ["app:locks:a", "app:locks:token:{app:locks:a}"]
    );
    assert_eq!(lease.key(), "a");
    let error = mine.lock("a").acquire().await.unwrap_err();
    assert!(
        matches!(&error, Error::Busy { key, .. } if key == "a"),
        "{error:?}"
    );
}

#[tokio::test]
async fn the_token_counter_is_in_the_locks_own_slot_and_expires() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    assert_eq!(server.keys(), ["lock:sync:42"]);
    let token = lease.token().await.unwrap();
    let counter = "lock:token:{lock:sync:42}";
    assert_eq!(server.keys(), ["lock:sync:42", counter]);
    assert_eq!(server.get(counter), Some(token.to_string()));
    assert!(server.pttl(counter) > 0, "{}", server.pttl(counter));
    // A server in cluster mode knows what goes where.
    let cluster = Server::with(&["--cluster-enabled", "yes"]);
    let slot = |key: &str| cluster.ask::<u64>(&format!("CLUSTER KEYSLOT {key}"));
    assert_eq!(slot(counter), slot("lock:sync:42"));
    lease.release().await.unwrap();
    assert_eq!(server.keys(), [counter]);
}

#[tokio::test]
async fn a_token_is_drawn_once_and_only_by_those_who_ask() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let first = lease.token().await.unwrap();
    let before = server.commands();
    assert_eq!(lease.token().await.unwrap(), first);
    assert_eq!(used(&server, &before), (0, 0, 0));
    lease.release().await.unwrap();

    let mut last = first;
    for _ in 0..5 {
        let lease = locks.lock("sync:42").acquire().await.unwrap();
        let token = lease.token().await.unwrap();
        assert!(token > last, "{token} after {last}");
        last = token;
        lease.release().await.unwrap();
    }
}

/// Its token would be larger than that of whoever has taken the rest.
#[tokio::test]
async fn a_token_is_drawn_only_while_all_keys_are_held() {
    let (server, locks) = pair().await;
    let memory = Memory::new();
    let local = Client::builder().store(memory.clone()).unwrap();
    for index in 0..3 {
        let keys = ["a", "b", "c"];
        let lost = format!("lock:{}", keys[index]);
        for (locks, take) in [
            (&locks, false),
            (&local, false),
            (&locks, true),
            (&local, true),
        ] {
            let lease = locks.lock_all(keys).acquire().await.unwrap();
            if take {
                let _: () = server.ask(&format!("SET {lost} another PX 60000"));
                memory.take(&lost, "another", Duration::from_secs(60));
            } else {
                let _: usize = server.ask(&format!("DEL {lost}"));
                memory.expire(&lost);
            }
            let cause = if take {
                LossCause::Taken
            } else {
                LossCause::Deleted
            };
            let told = lease.token().await;
            assert!(
                matches!(told, Err(Error::Lost { cause: found, .. }) if found == cause),
                "{lost} {take}: {told:?}"
            );
            drop(lease);
            let _: usize = server.ask(&format!("DEL {lost}"));
            memory.expire(&lost);
            wait::until("the others are back", || server.size() == 0).await;
        }
    }
}

#[tokio::test]
async fn tokens_grow_across_a_restart_that_forgets_and_a_clock_that_lags() {
    let (server, locks) = pair().await;
    let token = async || {
        let lease = locks.lock("sync:42").acquire().await?;
        let token = lease.token().await?;
        lease.release().await?;
        Ok::<u64, Error>(token)
    };
    let first = token().await.unwrap();
    // The larger of the store's clock in microseconds and the last token + 1.
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap();
    let now = u64::try_from(now.as_micros()).unwrap();
    assert!(first.abs_diff(now) < 60_000_000, "{first} at {now}");

    server.restart();
    assert_eq!(server.size(), 0);
    let second = token().await.unwrap();
    assert!(second > first);

    // A counter from a server whose clock was ahead by an hour.
    let ahead = now + 3_600_000_000;
    let _: () = server.ask(&format!("SET lock:token:{{lock:sync:42}} {ahead} PX 60000"));
    assert_eq!(token().await.unwrap(), ahead + 1);
}

#[tokio::test]
async fn a_lock_that_another_release_wrote_is_respected_and_named() {
    let (server, locks) = pair().await;
    let theirs = "0123456789abcdef0123456789abcdef@web-7.example:4711";
    let _: () = server.ask(&format!("SET lock:sync:42 {theirs} PX 60000"));
    assert_eq!(job(&locks, 42, async {}).await.unwrap(), None);
    let error = locks.lock("sync:42").acquire().await.unwrap_err();
    let Error::Busy {
        key,
        holder,
        remaining,
        since: None,
    } = &error
    else {
        panic!("{error:?}")
    };
    assert_eq!(
        (key.as_str(), holder.as_str()),
        ("sync:42", "web-7.example:4711")
    );
    assert!(*remaining > Duration::from_secs(30) && *remaining <= Duration::from_secs(60));
    // Whoever reads a log must not be able to release with it.
    for text in [error.to_string(), format!("{error:?}")] {
        assert!(text.contains("web-7.example:4711"), "{text}");
        assert!(!text.contains("0123456789abcdef"), "{text}");
    }
    assert_eq!(server.get("lock:sync:42").as_deref(), Some(theirs));
}

#[tokio::test]
async fn every_script_is_given_its_keys_as_keys() {
    let (server, locks) = pair().await;
    let mut monitor = server.monitor();
    let lease = locks
        .lock("sync:42")
        .ttl(Duration::from_millis(600))
        .acquire()
        .await
        .unwrap();
    let other = client(&server).await;
    other.lock("sync:42").acquire().await.unwrap_err();
    lease.token().await.unwrap();
    lease.extend(Duration::from_millis(900)).await.unwrap();
    wait::until("a renewal", || locks.stats().renewed > 0).await;
    nap(10).await;
    lease.release().await.unwrap();
    let scripts: Vec<Vec<String>> = sent(&mut monitor)
        .into_iter()
        .filter(|words| words[0].starts_with("EVAL"))
        .collect();
    // Refused, token, extend, renewal, release.
    assert!(scripts.len() >= 4, "{scripts:?}");
    for words in scripts {
        let count: usize = words[2].parse().unwrap();
        let (keys, values) = words[3..].split_at(count);
        assert!(
            count > 0 && keys.iter().all(|key| key.starts_with("lock:")),
            "{words:?}"
        );
        // The channel of a client is no key.
        let key = |value: &&String| value.contains("lock:") && !value.contains(" lock:wake:");
        assert_eq!(values.iter().find(key), None, "{words:?}");
    }
}

/// What names a waiter, and what proves that a message is for it.
fn signed(owner: &str, text: &str) -> String {
    // The hash by which a server knows a script is SHA-1.
    let sha1 = |text: String| redis::Script::new(&text).get_hash().to_owned();
    let inner = sha1(format!("{owner} {text}"));
    let proof = sha1(format!("{owner} {inner}"));
    format!("{} {proof} {text}", sha1(format!("waiter {owner}")))
}

#[tokio::test]
async fn a_waiter_is_an_entry_of_a_sorted_set_and_is_woken_by_messages_with_a_proof() {
    let (server, locks) = pair().await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut monitor = server.monitor();
    let mut calls = Vec::new();
    for ttl in [2_000, 3_000] {
        let other = client(&server).await;
        let request = other.lock("sync:42").ttl(Duration::from_millis(ttl));
        let request = request.wait(Duration::from_secs(60));
        calls.push(tokio::spawn(async move { request.acquire().await }));
        wait::until("it is queued", || {
            server.waiters("lock:sync:42") == calls.len() as u64
        })
        .await;
    }
    let queue = "lock:wait:{lock:sync:42}";
    assert!(server.pttl(queue) > 60_000);
    let entries: Vec<String> = server.ask(&format!("ZRANGE {queue} 0 -1"));
    let entries: Vec<Vec<&str>> = entries.iter().map(|one| one.split(' ').collect()).collect();
    let waiters: Vec<&str> = entries.iter().map(|entry| entry[0]).collect();
    for (entry, ttl) in entries.iter().zip(["2000", "3000"]) {
        let channel = entry[3].strip_prefix("lock:wake:").unwrap();
        assert!(uuid::Uuid::try_parse(channel).is_ok(), "{entry:?}");
        assert_eq!(entry[1..3], [ttl, "1"]);
    }
    monitor.seen();
    lease.release().await.unwrap();
    let mut published = Vec::new();
    wait::until("both are told", || {
        let seen = monitor.seen().into_iter();
        let wakeups = seen.filter(|seen| seen.by_script && seen.words[0] == "PUBLISH");
        published.extend(wakeups.map(|seen| seen.words[2].clone()));
        published.len() == 2
    })
    .await;
    let told = |owner: &str, rest: &str, message: &str| {
        let text = message.splitn(3, ' ').nth(2).unwrap();
        assert_eq!(message, signed(owner, text));
        let mut words = text.splitn(3, ' ');
        let (what, at) = (words.next().unwrap(), words.next().unwrap());
        assert!(
            at.len() == 16 && at.bytes().all(|digit| digit.is_ascii_digit()),
            "{text}"
        );
        assert_eq!(format!("{what} {}", words.next().unwrap()), rest);
    };
    let grant = format!("grant 0 12 lock:sync:42{queue}");
    told(waiters[0], &grant, &published[0]);
    told(waiters[1], "first 2000", &published[1]);
    for call in calls {
        call.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// A release deletes what is its owner alone, and looks for those who wait where more is stored.
#[tokio::test]
async fn whoever_waits_has_the_lock_say_since_when_it_is_held() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    assert_eq!(server.get("lock:sync:42").as_deref(), Some(lease.owner()));
    let left = server.pttl("lock:sync:42");
    let request = other.lock("sync:42").wait(Duration::from_secs(60));
    let call = tokio::spawn(request.acquire());
    wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
    // As its id has it, and with the ttl that it had.
    let (id, _) = lease.owner().split_once('@').unwrap();
    let drawn = u64::from_str_radix(&id[..12], 16).unwrap();
    let value = format!("{} {drawn}", lease.owner());
    assert_eq!(server.get("lock:sync:42"), Some(value));
    let now = server.pttl("lock:sync:42");
    assert!((1..=left).contains(&now), "{now} of {left}");
    lease.release().await.unwrap();
    let lease = call.await.unwrap().unwrap();
    lease.release().await.unwrap();
    assert_eq!(server.size(), 0);
}

/// Who has stored what is no owner of ours compares it with that.
#[tokio::test]
async fn what_others_have_stored_is_left_as_it_is() {
    let (server, locks) = pair().await;
    let foreign = ["6b1f0a", "web-3:4711", "0123456789abcdef0123456789abcdef"];
    for value in foreign {
        let _: () = server.ask(&format!("SET lock:sync:42 {value} PX 60000"));
        let request = locks.lock("sync:42").wait(Duration::from_secs(60));
        let call = tokio::spawn(request.acquire());
        wait::until("it is queued", || server.waiters("lock:sync:42") == 1).await;
        assert_eq!(server.get("lock:sync:42").as_deref(), Some(value));
        call.abort();
        wait::until("it is gone", || server.waiters("lock:sync:42") == 0).await;
    }
}
