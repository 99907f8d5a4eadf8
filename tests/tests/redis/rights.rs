//! What a client may do, found out when it connects; and the ways to say where and as whom.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, LossCause};
use tests::server::Server;
use tests::version::{has_channel_rights, version};
use tests::{log, wait};

use crate::support::{client, job, nap, pair, timed};

const README: &str = include_str!("../../../README.md");

/// What those who wait are woken with, and can do without.
const CHANNEL: [&str; 4] = ["+publish", "+subscribe", "+pubsub|numsub", "&lock:*"];

/// What a client hears of changed keys with, and can do without.
const TRACKING: [&str; 3] = ["+hello", "+client|tracking", "+client|caching"];

/// The same as far as the server knows it.
fn channel() -> &'static [&'static str] {
    let known = if has_channel_rights() { 4 } else { 3 };
    &CHANNEL[..known]
}

/// How the README makes the user `jobs`.
fn documented() -> &'static str {
    let mut lines = README.lines();
    let rights = lines.find_map(|line| line.strip_prefix("ACL SETUSER jobs "));
    rights.expect("documented")
}

/// What the README says that a user needs.
pub(crate) fn least() -> String {
    let rights = documented()
        .split(' ')
        .filter(|word| word.starts_with(['~', '&', '+']));
    rights.collect::<Vec<_>>().join(" ")
}

pub(crate) fn user(server: &Server, rights: &str) -> String {
    let rights = format!("reset on >pw resetchannels -@all {rights}");
    server.set_user("worker", &rights);
    server.url_as("worker", "pw")
}

/// A user with the least rights but for one.
fn user_without(server: &Server, missing: &str) -> String {
    let least = least();
    let rights: Vec<&str> = least.split(' ').filter(|word| *word != missing).collect();
    user(server, &rights.join(" "))
}

/// What users were refused, without the name of the library, which is offered once to every server.
fn denied(server: &Server) -> Vec<String> {
    let log: Vec<BTreeMap<String, redis::Value>> = server.ask("ACL LOG");
    let objects = log.iter().map(|entry| match &entry["object"] {
        redis::Value::BulkString(object) => String::from_utf8_lossy(object).into_owned(),
        other => panic!("{other:?}"),
    });
    objects
        .filter(|object| !["client", "client|setinfo"].contains(&object.as_str()))
        .collect()
}

async fn whole_cycle(locks: &Client, server: &Server) {
    let lease = locks
        .lock("sync:42")
        .ttl(Duration::from_millis(600))
        .acquire()
        .await
        .unwrap();
    assert!(matches!(
        locks.lock("sync:42").acquire().await,
        Err(Error::Busy { .. })
    ));
    lease.token().await.unwrap();
    wait::until("a renewal", || locks.stats().renewed > 0).await;
    lease.extend(Duration::from_secs(5)).await.unwrap();
    lease.release().await.unwrap();
    assert_eq!(server.get("lock:sync:42"), None);
    assert_eq!(locks.stats().renewal_failed, 0);
}

#[tokio::test]
async fn field_21_the_least_rights_are_enough_for_the_whole_cycle() {
    let server = Server::start();
    let url = user(&server, &least());
    let locks = Client::connect(&url).await.unwrap();
    whole_cycle(&locks, &server).await;
    // Also where the scripts have to be sent again.
    let _: () = server.ask("SCRIPT FLUSH");
    whole_cycle(&locks, &server).await;
    // It asked for nothing that it was refused.
    assert_eq!(denied(&server), [""; 0]);
}

/// Servers before 7 give all channels to a new user, and refuse a pattern beside that.
#[tokio::test]
async fn the_documented_user_can_be_made_and_works() {
    let all_channels = ["--acl-pubsub-default", "allchannels"];
    let has_default = has_channel_rights();
    let server = Server::with(if has_default { &all_channels } else { &[] });
    server.set_user("jobs", documented());
    let url = server.url_as("jobs", "secret");
    let locks = Client::connect(&url).await.unwrap();
    whole_cycle(&locks, &server).await;
    whole_cycle_of_a_waiter(&locks, &server, "lock:").await;
    assert_eq!(denied(&server), [""; 0]);
}

#[tokio::test]
async fn with_the_right_to_it_the_library_is_shown_in_the_servers_list() {
    // Earlier servers have no place for it.
    if version() < (7, 2) {
        return;
    }
    let server = Server::start();
    let url = user(&server, &format!("{} +client|setinfo", least()));
    let locks = Client::connect(&url).await.unwrap();
    whole_cycle(&locks, &server).await;
    let list: String = server.ask("CLIENT LIST TYPE normal");
    let library = format!(" lib-name=lockattr lib-ver={}", env!("CARGO_PKG_VERSION"));
    let users = list.lines().filter(|line| line.contains(" user=worker "));
    for line in users.clone() {
        assert!(line.contains(&library), "{line}");
    }
    // Of its caller, and for renewals.
    assert_eq!(users.count(), 2, "{list}");
    let denied: Vec<redis::Value> = server.ask("ACL LOG");
    assert!(denied.is_empty(), "{denied:?}");
}

#[tokio::test]
async fn field_21_each_missing_right_is_named_when_connecting() {
    let server = Server::start();
    // Another client has made the scripts known: a missing right to send them must show all the same.
    Client::connect(server.url()).await.unwrap();
    let least = least();
    let words: Vec<&str> = least
        .split(' ')
        .filter(|word| word.starts_with('+') && !CHANNEL.contains(word) && !TRACKING.contains(word))
        .collect();
    for missing in words {
        let url = user_without(&server, missing);
        let Err(error) = Client::connect(&url).await else {
            panic!("nobody missed {missing}")
        };
        assert!(
            matches!(error, Error::Unavailable { .. }),
            "{missing}: {error:?}"
        );
        let text = error.to_string().to_lowercase();
        // Of what a script may not do, older servers do not say the name.
        let unnamed = text.contains("can't run this command")
            && !["+set", "+evalsha", "+eval"].contains(&missing);
        assert!(
            unnamed || text.contains(&format!("'{}'", &missing[1..])),
            "{missing}: {text}"
        );
        // The next one starts from nothing, without scripts that this one loaded.
        let _: () = server.ask("FLUSHALL");
        let _: () = server.ask("SCRIPT FLUSH");
    }
}

#[tokio::test]
async fn without_the_rights_to_a_channel_it_is_told_and_waits_end_all_the_same() {
    log::listen();
    let server = Server::start();
    for missing in channel() {
        let prefix = format!("lock:{}:", missing.len());
        let locks = Client::builder()
            .prefix(&prefix)
            .connect(user_without(&server, missing))
            .await
            .unwrap();
        whole_cycle_of_a_waiter(&locks, &server, &prefix).await;
    }
    let told = log::about("cannot be woken");
    let refused = ["publish", "subscribe", "channels"];
    for missing in &refused[..channel().len() - 1] {
        assert!(
            told.iter().any(|told| told.text.contains(missing)),
            "{missing}: {told:?}"
        );
    }
}

/// What is told is what is so: who may listen is woken, whatever it may publish itself.
#[tokio::test]
async fn that_callers_are_woken_again_is_told_when_they_were_not_and_are() {
    log::listen();
    let server = Server::start();
    for (missing, told) in [
        ("+publish", ["cannot be woken"].as_slice()),
        ("+subscribe", ["cannot be woken", "woken again"].as_slice()),
        ("&lock:*", ["cannot be woken", "woken again"].as_slice()),
    ] {
        if !channel().contains(&missing) {
            continue;
        }
        let prefix = format!("lock:told:{}:", &missing[1..3]);
        let locks = Client::builder()
            .prefix(&prefix)
            .connect(user_without(&server, missing))
            .await
            .unwrap();
        whole_cycle_of_a_waiter(&locks, &server, &prefix).await;
        let so_far = || log::about(&format!("{prefix}wake:"));
        assert_eq!(so_far().len(), 1, "{missing}: {:?}", so_far());
        let _: () = server.ask(&format!("ACL SETUSER worker {missing}"));
        for _ in 0..2 {
            whole_cycle_of_a_waiter(&locks, &server, &prefix).await;
        }
        let so_far = so_far();
        assert_eq!(so_far.len(), told.len(), "{missing}: {so_far:?}");
        for (line, told) in so_far.iter().zip(told) {
            assert!(line.text.contains(told), "{missing}: {line:?}");
        }
    }
}

/// Waits for a key that another process's client holds, and gets it after its release.
async fn whole_cycle_of_a_waiter(locks: &Client, server: &Server, prefix: &str) {
    let other = Client::builder()
        .prefix(prefix)
        .connect(server.url())
        .await
        .unwrap();
    let lease = other.lock("sync:42").acquire().await.unwrap();
    let waits = async {
        let request = locks.lock("sync:42").wait(Duration::from_secs(20));
        request.acquire().await.unwrap().release().await.unwrap();
    };
    let gives_back = async {
        let queue = format!("{prefix}wait:{{{prefix}sync:42}}");
        wait::until("it waits", || server.keys().contains(&queue)).await;
        lease.release().await.unwrap();
    };
    let start = Instant::now();
    tokio::join!(waits, gives_back);
    assert!(
        start.elapsed() < Duration::from_secs(3),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn field_21_a_user_without_eval_is_refused_before_a_body_runs() {
    let server = Server::start();
    let url = user(&server, "~* +set +get +del +pexpire");
    let error = Client::connect(&url).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().to_lowercase().contains("eval"), "{error}");
    assert_eq!(server.keys(), [""; 0], "the throw-away key was left behind");
}

#[tokio::test]
async fn a_user_without_the_prefix_is_refused_when_connecting() {
    let server = Server::start();
    let url = user(&server, "~other:* +@all");
    let error = Client::connect(&url).await.unwrap_err();
    assert!(error.to_string().contains("NOPERM"), "{error}");
    let mine = Client::builder()
        .prefix("other:")
        .connect(&url)
        .await
        .unwrap();
    job(&mine, 42, async {}).await.unwrap();
    assert_eq!(server.size(), 0);
}

#[tokio::test]
async fn a_replica_is_refused_when_connecting() {
    let server = Server::start();
    let replica = server.replica();
    let error = Client::connect(replica.url()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("READONLY"), "{error}");
}

#[tokio::test]
async fn connecting_leaves_nothing_behind() {
    let (server, _locks) = pair().await;
    assert_eq!(server.keys(), [""; 0]);
    let lazy = Client::builder().connect_lazily(server.url()).unwrap();
    assert_eq!(job(&lazy, 42, async {}).await.unwrap(), Some(()));
    assert_eq!(server.keys(), [""; 0]);
}

#[tokio::test]
async fn a_url_names_socket_database_user_and_password() {
    let server = Server::with(&["--requirepass", "mainpass"]);
    let _: () = server
        .words(&["ACL", "SETUSER", "ann", "on", ">p@ss:w/rd", "~*", "+@all"])
        .unwrap();
    let (port, socket) = (server.address().port(), server.socket_url());
    let urls = [
        (format!("redis://:mainpass@127.0.0.1:{port}"), "default", 0),
        (
            format!("redis://:mainpass@127.0.0.1:{port}/3"),
            "default",
            3,
        ),
        (
            format!("redis://ann:p%40ss%3Aw%2Frd@127.0.0.1:{port}/4"),
            "ann",
            4,
        ),
        (format!("{socket}?pass=mainpass"), "default", 0),
        (
            format!("{socket}?db=5&user=ann&pass=p%40ss%3Aw%2Frd"),
            "ann",
            5,
        ),
    ];
    for (url, user, database) in urls {
        let locks = Client::connect(&url)
            .await
            .unwrap_or_else(|error| panic!("{url}: {error}"));
        let value = timed(&locks, 42, Duration::from_millis(900), async {
            let list: String = server.ask("CLIENT LIST");
            let mine = format!("user={user}");
            assert!(list.split_whitespace().any(|word| word == mine), "{list}");
            let space = server.info("keyspace");
            assert!(
                space.contains_key(&format!("db{database}")),
                "{url}: {space:?}"
            );
            nap(1_200).await;
            7
        });
        assert_eq!(value.await.unwrap(), 7);
        assert!(server.info("keyspace").is_empty(), "{url}");
    }
}

#[tokio::test]
async fn a_url_may_ask_for_the_newer_protocol() {
    let server = Server::start();
    let locks = Client::connect(format!("{}?protocol=resp3", server.url()))
        .await
        .unwrap();
    whole_cycle(&locks, &server).await;
    assert_eq!(job(&locks, 42, async {}).await.unwrap(), Some(()));
    let _: () = server.ask("HSET lock:sync:42 f v");
    let foreign = job(&locks, 42, async {}).await.unwrap_err();
    assert!(matches!(foreign, Error::Foreign { .. }), "{foreign:?}");
}

#[tokio::test]
async fn databases_and_prefixes_keep_locks_apart() {
    let server = Server::start();
    let (zero, one) = (
        client(&server).await,
        Client::connect(&format!("{}1", server.url()))
            .await
            .unwrap(),
    );
    let mine = Client::builder()
        .prefix("mine:")
        .connect(server.url())
        .await
        .unwrap();
    let first = zero.lock("sync:42").acquire().await.unwrap();
    let second = one.lock("sync:42").acquire().await.unwrap();
    let third = mine.lock("sync:42").acquire().await.unwrap();
    assert!(zero.lock("sync:42").acquire().await.is_err());
    for lease in [first, second, third] {
        lease.release().await.unwrap();
    }
}

#[tokio::test]
async fn a_name_is_seen_in_the_servers_list() {
    let server = Server::start();
    let locks = Client::builder()
        .name("billing-jobs")
        .connect(server.url())
        .await
        .unwrap();
    job(&locks, 42, async {}).await.unwrap();
    let list: String = server.ask("CLIENT LIST");
    assert!(list.contains("name=billing-jobs"), "{list}");
}

/// What a user may not read says nothing of who holds it.
#[tokio::test]
async fn a_right_that_is_withdrawn_for_a_while_costs_no_lease() {
    for right in ["get", "pexpire", "evalsha"] {
        // Who holds a lock with others is renewed by another command.
        let both = |sign| match right {
            "pexpire" => format!("ACL SETUSER worker {sign}pexpire {sign}pexpireat"),
            right => format!("ACL SETUSER worker {sign}{right}"),
        };
        let server = Server::start();
        let locks = Client::connect(user(&server, &least())).await.unwrap();
        let ttl = Duration::from_secs(2);
        let one = locks.lock("sync:42").ttl(ttl).acquire().await.unwrap();
        let several = locks.lock_all(["a", "b"]).ttl(ttl).acquire().await.unwrap();
        let slot = locks.lock("geo").permits(3).ttl(ttl).acquire().await;
        let leases = [one, several, slot.unwrap()];
        let _: () = server.ask(&both('-'));
        let refused = |told: Result<_, Error>| match told {
            Err(Error::Unavailable { source, .. }) => source.to_string(),
            told => panic!("{right}: {told:?}"),
        };
        for lease in &leases {
            refused(lease.extend(ttl * 2).await);
            if right != "pexpire" {
                refused(lease.token().await.map(drop));
            }
        }
        wait::until("renewals are refused", || locks.stats().renewal_failed >= 6).await;
        let _: () = server.ask(&both('+'));
        let renewed = locks.stats().renewed;
        wait::until("they are renewed", || locks.stats().renewed >= renewed + 6).await;
        for lease in leases {
            lease.token().await.unwrap();
            lease.release().await.unwrap();
        }
        assert_eq!(locks.stats().lost, 0, "{right}");
    }
}

#[tokio::test]
async fn a_right_that_stays_withdrawn_costs_a_lease_at_its_deadline() {
    let server = Server::start();
    let locks = Client::connect(user(&server, &least())).await.unwrap();
    let ttl = Duration::from_secs(1);
    let lease = locks.lock("sync:42").ttl(ttl).acquire().await.unwrap();
    let _: () = server.ask("ACL SETUSER worker -get");
    let lost = tokio::time::timeout(3 * ttl, lease.lost()).await.unwrap();
    let expired = matches!(
        lost,
        Error::Lost { cause: LossCause::Expired, held, .. } if held > ttl / 2
    );
    assert!(expired, "{lost:?}");
}

#[tokio::test]
async fn a_release_that_was_refused_is_tried_again() {
    let server = Server::start();
    let locks = Client::connect(user(&server, &least())).await.unwrap();
    for right in ["get", "del"] {
        let failed = locks.stats().release_failed;
        let one = locks.lock("sync:42").acquire().await.unwrap();
        let several = locks.lock_all(["a", "b"]).acquire().await.unwrap();
        let _: () = server.ask(&format!("ACL SETUSER worker -{right}"));
        drop((one, several));
        wait::until("releases are refused", || {
            locks.stats().release_failed == failed + 2
        })
        .await;
        let _: () = server.ask(&format!("ACL SETUSER worker +{right}"));
        wait::until("all is given back", || server.size() == 0).await;
    }
    assert_eq!(locks.stats().lost, 0);
}

#[tokio::test]
async fn a_key_that_may_not_be_touched_any_more_fails_no_other_lease() {
    let server = Server::start();
    let locks = Client::connect(user(&server, &least())).await.unwrap();
    let take = |key: String| locks.lock(key).ttl(Duration::from_millis(1_500)).acquire();
    let mut leases = Vec::new();
    for number in 0..20 {
        leases.push(take(format!("mine:{number}")).await.unwrap());
    }
    let other = take("other".to_owned()).await.unwrap();
    for number in 20..40 {
        leases.push(take(format!("mine:{number}")).await.unwrap());
    }
    let _: () = server.ask("ACL SETUSER worker resetkeys ~lock:mine:* ~lock:wait:*");
    let lost = other.lost().await;
    let expired = matches!(
        lost,
        Error::Lost {
            cause: LossCause::Expired,
            ..
        }
    );
    assert!(expired, "{lost:?}");
    for lease in leases {
        lease.release().await.unwrap();
    }
    assert_eq!(locks.stats().lost, 1);
}
