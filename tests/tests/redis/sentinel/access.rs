//! Logins, rights, TLS and names: each of the sentinels and of the Redis servers, and never the one's
//! told to the other.

use std::net::SocketAddr;
use std::panic;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use redis::Value;
use tests::fake::Fake;
use tests::sentinel::{SERVICE, Sentinels, Setup};
use tests::server::Server;
use tests::wait;

use super::named;
use crate::support::{BOUND, SLACK, job, nap};

/// The one line that a refused client is told.
async fn refused(url: &str, words: &[&str]) {
    let start = Instant::now();
    let error = Client::connect(url).await.expect_err("refused");
    assert!(start.elapsed() < BOUND + SLACK, "{:?}", start.elapsed());
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    let text = error.to_string();
    assert!(!text.contains(char::is_control), "{text:?}");
    for word in words {
        assert!(text.contains(word), "no {word:?} in {text:?}");
    }
}

/// A deployment in which the Redis servers or the sentinels, or both, want a password.
fn locked(redis: bool, sentinels: bool) -> Sentinels {
    Setup {
        server_options: if redis {
            vec!["--requirepass", "ofredis", "--masterauth", "ofredis"]
        } else {
            Vec::new()
        },
        sentinel_options: if sentinels {
            vec!["--requirepass", "ofsentinels"]
        } else {
            Vec::new()
        },
        sentinel_lines: if redis {
            "sentinel auth-pass mymaster ofredis\n"
        } else {
            ""
        },
        ..Setup::default()
    }
    .start()
}

/// The URL with a password for each kind, where there is one.
fn url_with(all: &Sentinels, redis: Option<&str>, sentinels: Option<&str>) -> String {
    let login = redis.map_or(String::new(), |password| format!(":{password}@"));
    let query = sentinels.map_or(String::new(), |password| {
        format!("?sentinel_password={password}")
    });
    let url = all.url().replace("://", &format!("://{login}"));
    format!("{url}{query}")
}

#[tokio::test]
async fn passwords_of_one_kind_or_both_are_used_where_they_belong() {
    for (redis, sentinels) in [(true, false), (false, true), (true, true)] {
        let all = locked(redis, sentinels);
        let (redis, sentinels) = (
            redis.then_some("ofredis"),
            sentinels.then_some("ofsentinels"),
        );
        let locks = Client::connect(url_with(&all, redis, sentinels))
            .await
            .unwrap();
        job(&locks, 42, async {}).await.unwrap();
        // Nobody was told a password that is not his: it would be in the log of refused logins.
        for server in all.servers.iter().chain(&all.sentinels) {
            let denied: Vec<Value> = server.ask("ACL LOG");
            assert!(denied.is_empty(), "{denied:?}");
        }
        // Each that is missing or wrong is told with the address and the kind of the server.
        let at = all.servers[0].address().to_string();
        if redis.is_some() {
            let of_redis = ["the Redis server at", &at];
            refused(&url_with(&all, None, sentinels), &of_redis).await;
            refused(&url_with(&all, Some("wrong"), sentinels), &of_redis).await;
        }
        if sentinels.is_some() {
            let told = ["the sentinel at", "NOAUTH", "?sentinel_password="];
            refused(&url_with(&all, redis, None), &told).await;
            let told = ["the sentinel at", "login", "sentinel_user"];
            refused(&url_with(&all, redis, Some("wrong")), &told).await;
        }
    }
}

/// A sentinel and a Redis server that both write down what they are told.
#[tokio::test]
async fn no_password_is_told_to_the_other_kind_of_server() {
    let record = || {
        let said = Arc::new(Mutex::new(String::new()));
        (Arc::clone(&said), said)
    };
    let (redis_said, to_redis) = record();
    let redis = Fake::start(move |words| {
        to_redis.lock().unwrap().push_str(&words.join(" "));
        Some(match words[0].as_str() {
            "ROLE" => b"*3\r\n$6\r\nmaster\r\n:0\r\n*0\r\n".to_vec(),
            _ => b"+OK\r\n".to_vec(),
        })
    });
    let port = redis.address().port();
    let (sentinel_said, to_sentinel) = record();
    let sentinel = Fake::start(move |words| {
        to_sentinel.lock().unwrap().push_str(&words.join(" "));
        Some(named(words, port, 1))
    });
    let url = format!(
        "redis+sentinel://ru:rsecret@{}/{SERVICE}?sentinel_user=su&sentinel_password=ssecret",
        sentinel.address()
    );
    let locks = Client::builder().connect_lazily(url).unwrap();
    let _ = locks
        .lock("a")
        .wait(Duration::from_millis(100))
        .acquire()
        .await;
    let heard = || {
        sentinel_said
            .lock()
            .unwrap()
            .contains("SUBSCRIBE +switch-master")
    };
    wait::until("it listens at the sentinel", heard).await;
    let (redis_said, sentinel_said) = (redis_said.lock().unwrap(), sentinel_said.lock().unwrap());
    assert!(redis_said.contains("AUTH ru rsecret"), "{redis_said}");
    assert!(!redis_said.contains("ssecret"), "{redis_said}");
    assert!(sentinel_said.contains("AUTH su ssecret"), "{sentinel_said}");
    assert!(!sentinel_said.contains("rsecret"), "{sentinel_said}");
}

/// Names a replica, a port where nobody listens, and a black hole: with an older epoch, the same and a
/// newer one. The others know better.
#[tokio::test]
async fn a_sentinel_that_lies_leads_nobody_astray() {
    let all = Sentinels::start();
    let locks = Client::connect(all.url()).await.unwrap();
    job(&locks, 42, async {}).await.unwrap();
    let hole = Server::start();
    hole.freeze();
    for lie in [all.servers[1].address().port(), 1, hole.address().port()] {
        for epoch in [0, 99] {
            let liar = Fake::start(move |words| Some(named(words, lie, epoch)));
            let others = [all.sentinels[0].address(), all.sentinels[1].address()];
            let first: [SocketAddr; 3] = [liar.address(), others[0], others[1]];
            let start = Instant::now();
            let locks = Client::connect(tests::sentinel::url(first)).await.unwrap();
            assert!(
                start.elapsed() < Duration::from_secs(2),
                "{:?}",
                start.elapsed()
            );
            let held = job(&locks, 42, async { all.servers[0].get("lock:sync:42") }).await;
            assert!(held.unwrap().flatten().is_some());
            // And stays there.
            nap(1200).await;
            job(&locks, 42, async {}).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_service_that_is_not_there_is_told_with_those_that_are() {
    let all = Sentinels::start();
    for sentinel in &all.sentinels {
        let address = all.servers[0].address();
        let (ip, port) = (address.ip(), address.port());
        let _: () = sentinel.ask(&format!("SENTINEL MONITOR other {ip} {port} 2"));
    }
    let wrong = all.url().replace(SERVICE, "mymastr");
    let words = [
        "no service `mymastr`",
        "`mymaster` and `other`",
        "is `mymaster` meant?",
    ];
    refused(&wrong, &words).await;
}

#[tokio::test]
async fn a_server_that_is_no_sentinel_is_told_as_that() {
    let server = Server::start();
    let url = tests::sentinel::url([server.address()]);
    let at = server.address().to_string();
    refused(&url, &["the sentinel at", &at, "is no sentinel"]).await;
    // All that a sentinel has to say leads to a replica.
    let replica = server.replica();
    let port = replica.address().port();
    let fake = Fake::start(move |words| Some(named(words, port, 1)));
    let at = replica.address().to_string();
    let url = tests::sentinel::url([fake.address()]);
    refused(&url, &["the Redis server at", &at, "is a replica"]).await;
}

/// The user of the documentation, without one right at a time.
#[tokio::test]
async fn each_right_at_the_sentinels_is_needed_or_can_be_done_without() {
    let all = Sentinels::start();
    let needed = ["+sentinel|get-master-addr-by-name", "+sentinel|master"];
    let useful = [
        "+sentinel|sentinels",
        "+sentinel|masters",
        "+subscribe",
        "&+switch-master",
    ];
    let url = format!(
        "{}?sentinel_user=locks&sentinel_password=pw",
        all.url_of([0])
    );
    let user = |missing: &str| {
        let all_rights = needed
            .iter()
            .chain(&useful)
            .filter(|right| **right != missing);
        let rights: Vec<_> = all_rights.copied().collect();
        let rights = rights.join(" ");
        let user = format!("ACL SETUSER locks reset on >pw resetchannels -@all {rights}");
        for sentinel in &all.sentinels {
            let _: () = sentinel.ask(&user);
            let _: () = sentinel.ask("ACL LOG RESET");
        }
    };
    let denied = || {
        all.sentinels
            .iter()
            .map(|one| one.ask::<Vec<Value>>("ACL LOG").len())
            .sum::<usize>()
    };
    user("");
    let locks = Client::connect(&url).await.unwrap();
    job(&locks, 42, async {}).await.unwrap();
    let listening = || {
        all.sentinels.iter().all(|one| {
            let list: String = one.ask("CLIENT LIST TYPE pubsub");
            list.contains(" user=locks ")
        })
    };
    wait::until("it has learnt of the others and listens at all", listening).await;
    assert_eq!(denied(), 0);
    drop(locks);
    for missing in needed {
        user(missing);
        refused(&url, &["the sentinel at", "NOPERM", missing]).await;
    }
    for missing in useful {
        user(missing);
        let locks = Client::connect(&url).await.unwrap();
        job(&locks, 42, async {}).await.unwrap();
    }
}

/// Beside those of a single server.
#[tokio::test]
async fn the_right_to_ask_for_the_role_is_needed_at_the_servers() {
    let all = Sentinels::start();
    for (rights, fits) in [("+@all", true), ("+@all -role", false)] {
        for server in &all.servers {
            let _: () = server.ask(&format!("ACL SETUSER locks reset on >pw ~* &* {rights}"));
        }
        let url = all.url().replace("://", "://locks:pw@");
        if fits {
            Client::connect(&url).await.unwrap();
        } else {
            refused(&url, &["the Redis server at", "NOPERM", "'role'"]).await;
        }
    }
}

#[tokio::test]
async fn connections_to_both_kinds_have_the_name() {
    let all = Sentinels::start();
    let named = Client::builder().name("billing-7");
    let locks = named.connect(all.url()).await.unwrap();
    let holder = Client::connect(all.url()).await.unwrap();
    let lease = holder.lock("a").acquire().await.unwrap();
    let waiter = tokio::spawn(locks.lock("a").wait(wait::PATIENCE).acquire());
    let count = |server: &Server, kind: &str| {
        let list: String = server.ask(&format!("CLIENT LIST TYPE {kind}"));
        list.matches(" name=billing-7 ").count()
    };
    wait::until("the server has all of it", || {
        count(&all.servers[0], "pubsub") == 1 && count(&all.servers[0], "normal") == 2
    })
    .await;
    for sentinel in &all.sentinels {
        wait::until("the sentinel has all of it", || {
            count(sentinel, "pubsub") == 1 && count(sentinel, "normal") == 1
        })
        .await;
    }
    lease.release().await.unwrap();
    waiter.await.unwrap().unwrap().release().await.unwrap();
}

/// A map is asked for every announced address: of the primary, and of sentinels that the URL leaves out.
/// One that panics is like none.
#[tokio::test]
async fn announced_addresses_are_mapped() {
    let all = Sentinels::start();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let notes = Arc::clone(&asked);
    let builder = Client::builder().addresses(move |host, port| {
        notes.lock().unwrap().push((host.to_owned(), port));
        panic::resume_unwind(Box::new("a map of a user's own"));
    });
    let locks = builder.connect(all.url_of([0])).await.unwrap();
    job(&locks, 42, async {}).await.unwrap();
    for server in [&all.servers[0], &all.sentinels[1], &all.sentinels[2]] {
        let address = server.address();
        let announced = (address.ip().to_string(), address.port());
        let is_asked = || asked.lock().unwrap().contains(&announced);
        wait::until("its address is asked for", is_asked).await;
    }
    // Where it leads nowhere, the one line says where.
    let nowhere = Client::builder().addresses(|_, _| Some(("127.0.0.1".to_owned(), 1)));
    let error = nowhere.connect(all.url()).await.unwrap_err().to_string();
    assert!(
        error.contains("the Redis server at 127.0.0.1:1,"),
        "{error}"
    );
    // A URL that names its server itself has nothing to map.
    let server = all.servers[0].url();
    let error = Client::builder()
        .addresses(|_, _| None)
        .connect(server)
        .await;
    let Err(Error::Config(reason)) = error else {
        panic!("{error:?}")
    };
    assert!(reason.contains("`addresses`"), "{reason}");
}

#[tokio::test]
async fn a_name_that_nobody_knows_is_told_as_that() {
    let all = Sentinels::start();
    let port = all.servers[0].address().port();
    let builder = Client::builder().addresses(move |_, announced| {
        (announced == port).then(|| ("no-such-host.invalid".to_owned(), port))
    });
    let error = builder.connect(all.url()).await.unwrap_err().to_string();
    for words in ["no-such-host.invalid", "lookup"] {
        assert!(error.contains(words), "{error}");
    }
}
