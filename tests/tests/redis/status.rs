//! What is known of a key without taking it.

use std::time::Duration;

use lockattr::store::{
    Acquired, Attempt, Claim, Found, Held, Release, Renewed, Reply, Store, Token,
};
use lockattr::{Client, Error, Memory, Status};
use tests::cluster::Cluster;
use tests::sentinel::Sentinels;
use tests::server::Server;
use tests::statuses::{is_told_of_everything, is_told_of_slots, status};

use crate::support::{client, pair};

const TTL: Duration = Duration::from_secs(10);

#[tokio::test]
async fn on_a_server_all_is_told() {
    let (server, locks) = pair().await;
    let other = client(&server).await;
    is_told_of_everything(&locks, &other, TTL).await;
    is_told_of_slots(&locks, &other, TTL).await;
}

#[tokio::test]
async fn in_memory_all_is_told() {
    let memory = Memory::new();
    let [locks, other] = [(); 2].map(|()| Client::builder().store(memory.clone()).unwrap());
    is_told_of_everything(&locks, &other, TTL).await;
    is_told_of_slots(&locks, &other, TTL).await;
}

#[tokio::test]
async fn it_is_one_command_that_writes_nothing() {
    let (server, locks) = pair().await;
    let _held = locks.lock("k").acquire().await.unwrap();
    status(&locks, "k").await;
    let before = (server.commands(), server.pttl("lock:k"));
    for key in ["k", "free"] {
        status(&locks, key).await;
    }
    let cost = server.commands().since(&before.0);
    assert_eq!(cost.of("evalsha"), 2, "{cost:?}");
    for written in ["set", "pexpire", "del", "zadd", "publish"] {
        assert_eq!(cost.of(written), 0, "{cost:?}");
    }
    assert!(server.pttl("lock:k") <= before.1);
    // It is answered also where nothing may be written.
    server.refuse_writes();
    assert!(matches!(status(&locks, "k").await, Status::Held { .. }));
}

#[tokio::test]
async fn what_is_no_lock_is_foreign() {
    let (server, locks) = pair().await;
    let _: () = server.ask("HSET lock:hash a b");
    let _: () = server.ask("SET lock:text something PX 60000");
    let _: () = server.ask("SET lock:for-ever 7");
    for (key, what) in [
        ("hash", "a hash"),
        ("text", "a string that no lock has written"),
        ("for-ever", "a string without expiry"),
    ] {
        match locks.status(key).await {
            Err(Error::Foreign { key: told, found }) => {
                assert_eq!((told.as_str(), found.as_str()), (key, what));
            }
            status => panic!("{status:?}"),
        }
    }
}

#[tokio::test]
async fn keys_are_checked_prefixed_and_redacted() {
    let server = Server::start();
    let builder = Client::builder().prefix("app:").redact(true);
    let locks = builder.connect(server.url()).await.unwrap();
    for bad in ["", " ", "a{b}"] {
        let told = locks.status(bad).await;
        assert!(matches!(told, Err(Error::Key(_))), "{told:?}");
    }
    let _held = locks.lock("ann@example.com").acquire().await.unwrap();
    let told = status(&locks, "ann@example.com").await;
    assert!(matches!(told, Status::Held { .. }), "{told:?}");
    assert!(!format!("{:?}", locks.status("ann@example.com")).contains("ann"));
    let _: () = server.ask("HSET app:bob@example.com a b");
    let told = locks.status("bob@example.com").await.unwrap_err();
    assert!(!told.to_string().contains("bob"), "{told}");
}

#[tokio::test]
async fn a_store_that_is_away_is_unavailable_and_one_that_cannot_say_refuses() {
    #[derive(Debug)]
    struct Mute(Memory);
    impl Store for Mute {
        fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
            self.0.acquire(claim, attempt)
        }
        fn renew<'a>(
            &'a self,
            leases: &'a [Held<'a>],
            patience: Duration,
        ) -> Reply<'a, Vec<Renewed>> {
            self.0.renew(leases, patience)
        }
        fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
            self.0.release(claim, release)
        }
        fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
            self.0.token(lease)
        }
    }
    let mute = Client::builder().store(Mute(Memory::new())).unwrap();
    let told = mute.status("k").await;
    let Err(Error::Invalid { key, reason }) = told else {
        panic!("{told:?}")
    };
    assert_eq!(
        (key.as_str(), reason.contains("does not tell")),
        ("k", true)
    );
    let (server, locks) = pair().await;
    server.kill();
    let told = locks.status("k").await;
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
}

#[tokio::test]
async fn on_the_primary_of_sentinels_and_on_a_cluster_all_is_told() {
    let sentinels = Sentinels::start();
    let cluster = Cluster::start(3, 0);
    for url in [sentinels.url(), cluster.url()] {
        let locks = Client::connect(&url).await.unwrap();
        let other = Client::connect(&url).await.unwrap();
        is_told_of_everything(&locks, &other, TTL).await;
        is_told_of_slots(&locks, &other, TTL).await;
    }
}

#[tokio::test]
async fn while_its_hash_slot_moves_a_lock_is_told() {
    let cluster = Cluster::start(3, 0);
    let locks = Client::connect(cluster.url()).await.unwrap();
    let keys = [cluster.key_at(0, 0), cluster.key_at(0, 1)];
    let _held = locks.lock(&keys[0]).acquire().await.unwrap();
    for key in &keys {
        let lock = format!("lock:{key}");
        let expected = *key == keys[0];
        let is_held = async || matches!(status(&locks, key).await, Status::Held { .. });
        let moving = cluster.begin_to_move(&lock, 1);
        assert_eq!(is_held().await, expected);
        moving.key(&lock);
        assert_eq!(is_held().await, expected);
        moving.end();
        assert_eq!(is_held().await, expected);
    }
}

#[tokio::test]
async fn over_a_quorum_a_majority_tells() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let connected = async || {
        let urls = servers.iter().map(Server::url);
        Client::builder().quorum(urls).await.unwrap()
    };
    let (locks, other) = (connected().await, connected().await);
    is_told_of_everything(&locks, &other, TTL).await;
    let owner = format!("{:032x}@web-3:7", 7);
    for server in &servers[..2] {
        let words = ["SET", "lock:most", &owner, "PX", "60000"];
        server.words::<()>(&words).unwrap();
    }
    let words = ["SET", "lock:one", &owner, "PX", "60000"];
    servers[0].words::<()>(&words).unwrap();
    let told = status(&locks, "most").await;
    assert!(
        matches!(&told, Status::Held { holders, .. } if holders[0].origin == "web-3:7"),
        "{told:?}"
    );
    assert!(status(&locks, "one").await.is_free());
    servers[2].kill();
    assert!(matches!(status(&locks, "most").await, Status::Held { .. }));
    servers[1].kill();
    let told = locks.status("most").await;
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
}

#[tokio::test]
async fn a_client_that_was_shut_down_is_not_asked() {
    let (server, locks) = pair().await;
    locks.shutdown().await;
    let before = server.commands();
    let told = locks.status("k").await;
    assert!(matches!(told, Err(Error::Unavailable { .. })), "{told:?}");
    let asked = server.commands().since(&before);
    assert_eq!(asked.of("evalsha") + asked.of("eval"), 0);
}
