//! An old primary that is cut off from its replicas and the sentinels, and not from its clients: it goes
//! on as a primary, alone, until they follow the new one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::proxy::Proxy;
use tests::sentinel::{self, Sentinels, Setup};
use tests::server::Server;
use tests::wait;
use tokio::sync::Notify;
use tokio::time::timeout;

use crate::support::{SLACK, is_done, job, nap};

/// Within how long after the promotion nobody takes the old primary for the primary any more.
const FOLLOWED: Duration = Duration::from_secs(2);

/// What the connections of clients are called.
const NAME: &str = "isolable";

/// How many channels of clients are listened to.
fn listeners(server: &Server) -> usize {
    let channels: Vec<String> = server.ask("PUBSUB CHANNELS lock:wake:*");
    channels.len()
}

/// How many connections clients have.
fn connections(server: &Server) -> usize {
    let list: String = server.ask("CLIENT LIST");
    list.matches(&format!(" name={NAME} ")).count()
}

/// Servers that are announced at proxies, which lead to them for sentinels and replicas alone; clients
/// reach them where they are.
struct Isolable {
    all: Sentinels,
    proxies: Vec<Proxy>,
}

impl Isolable {
    fn start(setup: &Setup<'_>) -> Self {
        let (servers, _) = setup.servers();
        let proxies: Vec<_> = servers
            .iter()
            .map(|server| Proxy::before(server.address()))
            .collect();
        let announced = proxies.iter().map(Proxy::address).collect();
        Self {
            all: setup.watched(servers, announced),
            proxies,
        }
    }

    async fn client(&self, url: &str) -> Client {
        let ways = self.proxies.iter().map(Proxy::address);
        let servers = self.all.servers.iter().map(Server::address);
        let ways: Vec<(SocketAddr, SocketAddr)> = ways.zip(servers).collect();
        let builder = Client::builder().name(NAME).addresses(move |host, port| {
            let announced = format!("{host}:{port}").parse().ok()?;
            let (_, server) = ways.iter().find(|(proxy, _)| *proxy == announced)?;
            Some((server.ip().to_string(), server.port()))
        });
        match builder.connect(url).await {
            Ok(client) => client,
            Err(error) => panic!("{url}: {error}"),
        }
    }

    /// Cuts the primary off.
    fn isolate(&self, index: usize) {
        self.proxies[index].swallow_all();
    }
}

/// The holder had its lease from the old primary alone, so the new one grants it to another.
#[tokio::test]
async fn a_lease_of_an_isolated_primary_is_told_lost_in_time() {
    let isolable = Isolable::start(&Setup::default());
    let all = &isolable.all;
    let locks = isolable.client(&all.url()).await;
    let other = isolable.client(&all.url()).await;
    isolable.isolate(0);
    let ttl = Duration::from_millis(1500);
    let lease = locks.lock("a").ttl(ttl).acquire().await.unwrap();
    let (_, promoted) = all.promoted(&[1]);
    let taken = async {
        loop {
            if let Ok(taken) = other.lock("a").acquire().await {
                return (taken, Instant::now());
            }
            nap(5).await;
        }
    };
    let told = async {
        lease.lost().await;
        Instant::now()
    };
    let ends = timeout(wait::PATIENCE, async { tokio::join!(taken, told) });
    let ((taken, taken_at), told_at) = ends.await.expect("another has it, and it is told lost");
    assert!(all.servers[1].get("lock:a").is_some());
    let both = told_at.saturating_duration_since(taken_at);
    eprintln!("two held a lease of an isolated primary for {both:?}");
    // Until it follows, and its next renewal after that.
    let bound = FOLLOWED + ttl / 3 + SLACK;
    assert!(told_at - promoted < bound, "{:?}", told_at - promoted);
    taken.release().await.unwrap();
}

/// Calls on the isolated primary succeed, and from the failover on go to the new one.
#[tokio::test]
async fn an_isolated_primary_is_left_in_time() {
    let isolable = Isolable::start(&Setup::default());
    let all = &isolable.all;
    let locks = isolable.client(&all.url()).await;
    // Somebody waits there as well: the subscription has to move too.
    let held = locks.lock("held").acquire().await.unwrap();
    let other = isolable.client(&all.url()).await;
    let waiter = tokio::spawn(other.lock("held").wait(wait::PATIENCE).acquire());
    wait::until("it listens", || listeners(&all.servers[0]) == 1).await;
    wait::until("it is replicated", || {
        all.servers[1].get("lock:held").is_some()
    })
    .await;
    isolable.isolate(0);
    job(&locks, 42, async {}).await.unwrap();
    let (_, promoted) = all.promoted(&[1]);
    let mut last_on_old = promoted;
    let left = loop {
        let lease = locks.lock("b").acquire().await.unwrap();
        let on_new = all.servers[1].get("lock:b").is_some();
        // Its release may go to the new one already, and find nothing there.
        drop(lease.release().await);
        if on_new {
            break promoted.elapsed();
        }
        last_on_old = Instant::now();
        assert!(promoted.elapsed() < FOLLOWED + SLACK, "not left");
        nap(5).await;
    };
    eprintln!(
        "an isolated primary was left {left:?} after the promotion; its last grant {:?} after it",
        last_on_old - promoted
    );
    let moved = || listeners(&all.servers[1]) == 1 && listeners(&all.servers[0]) == 0;
    wait::within("the subscription moves", FOLLOWED + SLACK, moved).await;
    wait::within("every connection is dropped", FOLLOWED + SLACK, || {
        connections(&all.servers[0]) == 0
    })
    .await;
    held.release().await.unwrap();
    let woken = Instant::now();
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(woken.elapsed() < SLACK, "{:?}", woken.elapsed());
}

#[distributed_lock(key = "monthly:<month>", once = "1h", ttl = "9s", client = locks)]
async fn monthly(
    locks: &Client,
    month: u64,
    replicated: &Notify,
    go_on: &Notify,
) -> Result<(), Error> {
    replicated.notify_one();
    go_on.notified().await;
    Ok(())
}

/// The isolated primary confirms releases that nobody else hears of. The locks are free, and the marks
/// there, once the client has followed.
#[tokio::test]
async fn releases_that_an_isolated_primary_has_confirmed_are_not_lost() {
    let isolable = Isolable::start(&Setup::default());
    let all = &isolable.all;
    let locks = isolable.client(&all.url()).await;
    let lease = locks.lock("a").acquire().await.unwrap();
    let slot = locks.lock("slots").permits(3).acquire().await.unwrap();
    let both = locks.lock_all(["b", "c"]).acquire().await.unwrap();
    let (began, go_on) = (Notify::new(), Notify::new());
    let works = monthly(&locks, 7, &began, &go_on);
    let releases = async {
        began.notified().await;
        let is_replicated = || all.servers[1].size() == 5;
        wait::until("all are replicated", is_replicated).await;
        isolable.isolate(0);
        go_on.notify_one();
        for lease in [lease, slot, both] {
            lease.release().await.unwrap();
        }
    };
    let (worked, ()) = tokio::join!(works, releases);
    worked.unwrap();
    assert!(is_done(&all.servers[0], "lock:monthly:7"));
    assert_eq!(all.servers[1].size(), 5, "nothing of it was heard of");
    let (_, promoted) = all.promoted(&[1]);
    let new = &all.servers[1];
    let only_the_mark = || new.keys() == ["lock:monthly:7"] && is_done(new, "lock:monthly:7");
    wait::within("it is as it was confirmed", FOLLOWED + SLACK, only_the_mark).await;
    // It lasts no longer than it would have.
    let left = Duration::from_millis(new.pttl("lock:monthly:7").unsigned_abs());
    assert!(
        left + promoted.elapsed() < Duration::from_secs(3601),
        "{left:?}"
    );
    assert!(left > Duration::from_secs(3500), "{left:?}");
}

/// All sentinels are gone: calls go on, and connections are made, while the primary lives.
#[tokio::test]
async fn calls_go_on_without_any_sentinel() {
    let all = Sentinels::start();
    let locks = Client::connect(all.url()).await.unwrap();
    for sentinel in &all.sentinels {
        sentinel.freeze();
    }
    for round in 0..2 {
        job(&locks, 42, async {}).await.unwrap();
        assert!(all.servers[0].drop_clients() > 0);
        let start = Instant::now();
        job(&locks, 42, async {}).await.unwrap();
        assert!(start.elapsed() < FOLLOWED, "{:?}", start.elapsed());
        if round == 0 {
            for sentinel in &all.sentinels {
                sentinel.kill();
            }
        }
    }
    // A client that never had one is told which of them do not answer.
    let error = Client::connect(all.url()).await.unwrap_err().to_string();
    for sentinel in &all.sentinels {
        assert!(error.contains(&sentinel.address().to_string()), "{error}");
    }
    assert!(
        !error.contains('\n') && error.contains("the sentinel at"),
        "{error}"
    );
}

/// A client that is cut off with the old primary goes on with it: no sentinel can tell it otherwise.
/// Writes that no replica has end that where the server is set up for it.
#[tokio::test]
async fn a_client_on_the_side_of_the_old_primary_follows_when_it_hears_of_it() {
    let isolable = Isolable::start(&Setup::default());
    let all = &isolable.all;
    // As the documentation has it; the other one has no replica here once it is the primary.
    for setting in ["min-replicas-to-write 1", "min-replicas-max-lag 2"] {
        let _: () = all.servers[0].ask(&format!("CONFIG SET {setting}"));
    }
    wait::until("it counts its replica", || {
        let info = all.servers[0].info("replication");
        info.get("min_slaves_good_slaves").map(String::as_str) == Some("1")
    })
    .await;
    let ways: Vec<_> = all
        .sentinels
        .iter()
        .map(|one| Proxy::before(one.address()))
        .collect();
    let locks = isolable
        .client(&sentinel::url(ways.iter().map(Proxy::address)))
        .await;
    for way in &ways {
        way.refuse();
    }
    job(&locks, 42, async {}).await.unwrap();
    isolable.isolate(0);
    let (_, promoted) = all.promoted(&[1]);
    let refused = || async { locks.lock("b").acquire().await.err() };
    while refused().await.is_none() {
        assert!(
            promoted.elapsed() < FOLLOWED + SLACK,
            "the old primary goes on granting"
        );
        nap(20).await;
    }
    for way in &ways {
        way.heal();
    }
    let healed = Instant::now();
    while let Some(error) = refused().await {
        assert!(healed.elapsed() < FOLLOWED + SLACK, "not followed: {error}");
        nap(20).await;
    }
    let lease = locks.lock("c").acquire().await.unwrap();
    assert!(all.servers[1].get("lock:c").is_some());
    lease.release().await.unwrap();
}
