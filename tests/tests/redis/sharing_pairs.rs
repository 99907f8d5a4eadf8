//! `shared` and `weight` beside what else a call may ask for: threads, streams, events, leases that are handed off,
//! and what a client is told of a key.

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Barrier;
use std::task::{Context, Poll};
use std::thread;
use std::time::Duration;

use futures_core::Stream;
use lockattr::{Client, Error, Lease, LossCause, Memory, Status, distributed_lock};
use tests::cluster::Cluster;
use tests::server::Server;

use crate::support::{Section, client, nap, nothing_left, pair};

const TTL: Duration = Duration::from_secs(2);
const PATIENT: Duration = Duration::from_secs(30);

#[distributed_lock(key = "doc:<id>", client = locks)]
async fn write<T: Send>(
    locks: &Client,
    id: u64,
    body: impl Future<Output = T>,
) -> Result<T, Error> {
    Ok(body.await)
}

#[track_caller]
fn is_busy<T: std::fmt::Debug>(answer: Result<T, Error>) {
    let error = answer.expect_err("it is busy");
    assert!(matches!(error, Error::Busy { .. }), "{error:?}");
}

#[track_caller]
fn is_lost(answer: Result<Lease, Error>, wanted: LossCause) {
    match answer {
        Err(Error::Lost { cause, .. }) => assert_eq!(cause, wanted),
        told => panic!("{told:?}"),
    }
}

/// Clients of one server, and of one place in memory.
async fn everywhere() -> (Server, [[Client; 2]; 2]) {
    let (server, redis) = pair().await;
    let redis = [redis, client(&server).await];
    let memory = Memory::new();
    let memory = [(); 2].map(|()| Client::builder().store(memory.clone()).unwrap());
    (server, [redis, memory])
}

#[test]
fn threads_read_together_and_wait_for_who_writes() {
    #[distributed_lock(key = "doc:<id>", shared, wait = "20s", client = locks, blocking)]
    fn read<T>(locks: &Client, id: u64, body: impl FnOnce() -> T) -> Result<T, Error> {
        Ok(body())
    }
    #[distributed_lock(key = "api", permits = 3, weight = weight, client = locks, blocking)]
    fn call<T>(locks: &Client, weight: u32, body: impl FnOnce() -> T) -> Result<T, Error> {
        Ok(body())
    }
    let server = Server::start();
    let clients = [(); 2].map(|()| Client::connect_blocking(server.url()).unwrap());
    // Each reader is inside while the other one is.
    let (meets, written) = (Barrier::new(3), Barrier::new(2));
    thread::scope(|scope| {
        for locks in &clients {
            scope.spawn(|| {
                let met = read(locks, 7, || {
                    meets.wait();
                    meets.wait();
                });
                met.unwrap();
            });
        }
        meets.wait();
        is_busy(clients[0].lock("doc:7").acquire_blocking());
        meets.wait();
        scope.spawn(|| {
            let lease = clients[1].lock("doc:7").wait(PATIENT).acquire_blocking();
            written.wait();
            thread::sleep(Duration::from_millis(100));
            lease.unwrap().release_blocking().unwrap();
        });
        written.wait();
        read(&clients[0], 7, || ()).unwrap();
    });
    let inside = call(&clients[0], 2, || {
        is_busy(call(&clients[1], 2, || ()));
        call(&clients[1], 1, || ())
    });
    inside.unwrap().unwrap();
    assert_eq!(server.owner("lock:doc:7"), None);
}

/// Yields as many numbers, each when it is asked for.
struct Numbers(u8);

impl Stream for Numbers {
    type Item = Result<u8, Error>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0 = self.0.saturating_sub(1);
        Poll::Ready((self.0 > 0).then_some(Ok(self.0)))
    }
}

#[tokio::test]
async fn streams_read_beside_one_another() {
    #[distributed_lock(key = "doc:7", shared, client = locks)]
    fn rows(locks: &Client) -> impl Stream<Item = Result<u8, Error>> + use<> {
        Numbers(3)
    }
    async fn next(stream: &mut Pin<&mut impl Stream<Item = Result<u8, Error>>>) -> Option<u8> {
        let item = poll_fn(|cx| stream.as_mut().poll_next(cx)).await;
        item.map(|item| item.unwrap())
    }
    let (server, stores) = everywhere().await;
    for [locks, other] in stores {
        let (mut one, mut two) = (pin!(rows(&locks)), pin!(rows(&other)));
        assert_eq!(
            (next(&mut one).await, next(&mut two).await),
            (Some(2), Some(2))
        );
        is_busy(write(&locks, 7, async {}).await);
        while next(&mut one).await.is_some() {}
        is_busy(write(&locks, 7, async {}).await);
        while next(&mut two).await.is_some() {}
        write(&locks, 7, async {}).await.unwrap();
    }
    nothing_left(&server).await;
}

#[tokio::test]
async fn of_events_that_meet_a_writer_one_is_seen_after_it_and_readers_do_not_wait_for_each_other()
{
    #[distributed_lock(key = "doc:7", shared, on_busy = rerun, client = locks)]
    async fn event(locks: &Client, section: &Section, millis: u64) -> Result<Option<()>, Error> {
        section.run(millis).await;
        Ok(Some(()))
    }
    let (server, stores) = everywhere().await;
    for [locks, other] in stores {
        let section = Section::default();
        let both = tokio::join!(event(&locks, &section, 300), event(&other, &section, 300));
        assert_eq!((both.0.unwrap(), both.1.unwrap()), (Some(()), Some(())));
        assert_eq!(section.most(), 2);

        let writer = locks.lock("doc:7").acquire().await.unwrap();
        let waits = event(&other, &section, 0);
        let skipped = async {
            // It waits by then.
            nap(500).await;
            for _ in 0..5 {
                let skipped = event(&locks, &section, 0).await.unwrap();
                assert_eq!(skipped, None);
            }
            assert_eq!(section.runs(), 2);
            writer.release().await.unwrap();
        };
        let (waited, ()) = tokio::join!(waits, skipped);
        assert_eq!((waited.unwrap(), section.runs()), (Some(()), 3));
    }
    nothing_left(&server).await;
}

/// A lease on its way from one client to another.
async fn handed_off(lease: Lease, heir: &Client) -> Lease {
    let text = lease.hand_off().unwrap().to_string();
    let lease = heir.take_up(&text).await.unwrap();
    // Once: nobody else has taken anything from it.
    is_lost(heir.take_up(&text).await, LossCause::Deleted);
    lease
}

#[tokio::test]
async fn readers_and_weights_are_handed_off() {
    let (server, stores) = everywhere().await;
    let cluster = Cluster::start(3, 0);
    let on_cluster = [
        Client::connect(cluster.url()).await.unwrap(),
        Client::connect(cluster.url()).await.unwrap(),
    ];
    for [locks, heir] in stores.into_iter().chain([on_cluster]) {
        let one = locks.lock("doc:7").shared().ttl(TTL).acquire();
        let two = locks.lock("doc:7").shared().ttl(TTL).acquire();
        let (one, two) = (one.await.unwrap(), two.await.unwrap());
        let one = handed_off(one, &heir).await;
        two.release().await.unwrap();
        is_busy(locks.lock("doc:7").acquire().await);
        let beside = locks.lock("doc:7").shared().acquire().await.unwrap();

        let take = |weight| locks.lock("api").permits(10).weight(weight).ttl(TTL);
        let first = take(2).acquire().await.unwrap();
        let heavy = take(6).acquire().await.unwrap();
        let heavy = handed_off(heavy, &heir).await;
        assert_eq!((heavy.slot(), heavy.key()), (1, "api"));
        is_busy(take(3).acquire().await);
        let rest = take(2).acquire().await.unwrap();
        assert_eq!(rest.slot(), 2);
        // They are renewed by who has taken them up.
        nap(2_500).await;
        is_busy(locks.lock("doc:7").acquire().await);
        is_busy(take(1).acquire().await);
        heavy.token().await.unwrap();
        let waits = tokio::spawn(take(6).wait(PATIENT).acquire());
        nap(100).await;
        heavy.release().await.unwrap();
        let next = waits.await.unwrap().unwrap();
        assert_eq!(next.slot(), 1);
        for lease in [one, beside, first, rest, next] {
            lease.release().await.unwrap();
        }
        let alone = locks.lock_all(["doc:7"]).acquire().await.unwrap();
        alone.release().await.unwrap();
    }
    nothing_left(&server).await;
}

#[tokio::test]
async fn what_nobody_takes_up_is_given_to_who_waits() {
    let (server, locks) = pair().await;
    let reader = locks.lock("doc:7").shared().ttl(TTL).acquire().await;
    let text = reader.unwrap().hand_off().unwrap();
    is_busy(locks.lock("doc:7").acquire().await);
    let writer = locks.lock("doc:7").wait(PATIENT).acquire().await.unwrap();
    is_lost(locks.take_up(&text).await, LossCause::Taken);
    writer.release().await.unwrap();
    is_lost(locks.take_up(&text).await, LossCause::Deleted);
    nothing_left(&server).await;
}

#[tokio::test]
async fn readers_and_weights_are_told_as_such() {
    let (server, stores) = everywhere().await;
    for [locks, other] in stores {
        let readers = [
            locks.lock("doc:7").shared().acquire().await.unwrap(),
            locks.lock("doc:7").shared().acquire().await.unwrap(),
        ];
        let told = other.status("doc:7").await.unwrap();
        assert!(!told.is_free());
        match told {
            Status::Held {
                holders,
                permits: 1,
                shared: true,
                waiters: 0,
                ..
            } => assert_eq!(holders.len(), 2),
            told => panic!("{told:?}"),
        }
        let take = |weight| locks.lock("api").permits(10).weight(weight).acquire();
        let leases = [take(2).await.unwrap(), take(7).await.unwrap()];
        let told = other.status("api").await.unwrap();
        assert!(told.is_free());
        match told {
            Status::Held {
                holders,
                permits: 10,
                shared: false,
                ..
            } => {
                let of = holders.iter().map(|holder| (holder.slot, holder.weight));
                assert_eq!(of.collect::<Vec<_>>(), [(0, 2), (1, 7)]);
            }
            told => panic!("{told:?}"),
        }
        let last = take(1).await.unwrap();
        assert!(!other.status("api").await.unwrap().is_free());
        for lease in readers.into_iter().chain(leases).chain([last]) {
            lease.release().await.unwrap();
        }
        assert!(other.status("api").await.unwrap().is_free());
    }
    nothing_left(&server).await;
}
