//! Soon after each kind of fault nothing is left of calls that have ended: no lock, no slot, no place
//! in a wait queue.

use std::time::Duration;

use lockattr::{Client, LockRequest};
use tests::proxy::{Proxy, Treatment, Way};
use tests::seed::Random;
use tests::server::Server;
use tests::wait;
use tokio::task::JoinHandle;

use crate::support::{client, nap, nothing_left};

/// Nothing in here waits for that.
const TTL: Duration = Duration::from_secs(60);
/// How long a fault lasts.
const FAULT: Duration = Duration::from_millis(1_500);

/// A server, the way to it that can be hurt, and a client that goes that way.
struct Ground {
    server: Server,
    proxy: Proxy,
    far: Client,
}

/// A request of some kind, for locks some of which a healthy client holds.
fn request(locks: &Client, random: &mut Random) -> LockRequest {
    let request = match random.below(4) {
        0 => locks.lock(format!("free:{}", random.below(20))),
        1 => locks.lock("held"),
        2 => locks.lock("slots").permits(3),
        _ => locks.lock_all(["held".to_owned(), format!("free:{}", random.below(20))]),
    };
    match random.below(3) {
        0 => request.ttl(TTL),
        _ => request.ttl(TTL).wait(random.millis(100, 2_000)),
    }
}

/// A call that takes its turn, if it has one, or is dropped at some moment.
fn caller(locks: &Client, random: &mut Random) -> JoinHandle<()> {
    let (request, turn) = (request(locks, random), random.millis(0, 20));
    let (begins, drops) = (random.millis(0, 1_500), random.millis(1, 1_500));
    let patient = random.below(2) == 0;
    tokio::spawn(async move {
        tokio::time::sleep(begins).await;
        let call = async {
            if let Ok(lease) = request.acquire().await {
                tokio::time::sleep(turn).await;
                let _ = lease.release().await;
            }
        };
        if patient {
            call.await;
        } else {
            let _ = tokio::time::timeout(drops, call).await;
        }
    })
}

async fn nothing_is_left_after(
    options: &[&str],
    fault: impl AsyncFnOnce(&Ground),
    recovery: impl AsyncFnOnce(&Ground),
) {
    let mut random = Random::announced("callers under a fault");
    let server = Server::with(options);
    let proxy = Proxy::before(server.address());
    let far = Client::connect(proxy.url()).await.unwrap();
    let healthy = client(&server).await;
    let held = healthy.lock_all(["held", "other"]).ttl(TTL);
    let held = held.acquire().await.unwrap();
    let slot = healthy.lock("slots").permits(3).ttl(TTL);
    let slot = slot.acquire().await.unwrap();
    let ground = Ground { server, proxy, far };
    let early: Vec<_> = (0..20).map(|_| caller(&ground.far, &mut random)).collect();
    nap(700).await;
    fault(&ground).await;
    let late: Vec<_> = (0..20).map(|_| caller(&ground.far, &mut random)).collect();
    tokio::time::sleep(FAULT).await;
    recovery(&ground).await;
    // Some wait for what is held for as long as they may.
    for call in early.into_iter().chain(late) {
        call.await.unwrap();
    }
    // Their client stays subscribed, and would receive whatever is granted to it.
    let listening = tokio::spawn(ground.far.lock("other").wait(TTL).acquire());
    let server = &ground.server;
    let is_queued = || server.waiters("lock:other") == 1;
    wait::until("it is queued", is_queued).await;
    nap(200).await;
    listening.abort();
    let _ = held.release().await;
    let _ = slot.release().await;
    nothing_left(server).await;
}

#[tokio::test]
async fn nothing_is_left_after_the_server_stood_still() {
    let fault = async |ground: &Ground| ground.server.freeze();
    nothing_is_left_after(&[], fault, async |ground| ground.server.thaw()).await;
}

#[tokio::test]
async fn nothing_is_left_after_the_network_was_away() {
    let fault = async |ground: &Ground| ground.proxy.refuse();
    nothing_is_left_after(&[], fault, async |ground| ground.proxy.heal()).await;
}

#[tokio::test]
async fn nothing_is_left_after_connections_were_cut_again_and_again() {
    let fault = async |ground: &Ground| {
        for _ in 0..20 {
            ground.proxy.cut();
            nap(50).await;
        }
    };
    nothing_is_left_after(&[], fault, async |_| {}).await;
}

#[tokio::test]
async fn nothing_is_left_after_requests_were_lost() {
    let fault = async |ground: &Ground| ground.proxy.treat(Way::Requests, Treatment::Swallow);
    nothing_is_left_after(&[], fault, async |ground| ground.proxy.heal()).await;
}

#[tokio::test]
async fn nothing_is_left_after_replies_were_lost() {
    let fault = async |ground: &Ground| ground.proxy.treat(Way::Replies, Treatment::Swallow);
    nothing_is_left_after(&[], fault, async |ground| ground.proxy.heal()).await;
}

#[tokio::test]
async fn nothing_is_left_after_requests_were_late() {
    let late = Treatment::Delay(Duration::from_millis(1_300));
    let fault = async |ground: &Ground| ground.proxy.treat(Way::Requests, late);
    let recovery = async |ground: &Ground| {
        ground.proxy.heal();
        nap(1_300).await;
    };
    nothing_is_left_after(&[], fault, recovery).await;
}

#[tokio::test]
async fn nothing_is_left_after_replies_were_late() {
    let late = Treatment::Delay(Duration::from_millis(1_300));
    let fault = async |ground: &Ground| ground.proxy.treat(Way::Replies, late);
    nothing_is_left_after(&[], fault, async |ground| ground.proxy.heal()).await;
}

#[tokio::test]
async fn nothing_is_left_after_the_server_was_paused() {
    let fault = async |ground: &Ground| ground.server.pause(FAULT);
    nothing_is_left_after(&[], fault, async |_| {}).await;
}

#[tokio::test]
async fn nothing_is_left_after_the_server_was_out_of_memory() {
    let fault = async |ground: &Ground| ground.server.ask("CONFIG SET maxmemory 1");
    let recovery = async |ground: &Ground| ground.server.ask("CONFIG SET maxmemory 0");
    nothing_is_left_after(&[], fault, recovery).await;
}

#[tokio::test]
async fn nothing_is_left_after_the_server_had_too_few_replicas() {
    let fault = async |ground: &Ground| ground.server.ask("CONFIG SET min-replicas-to-write 1");
    let recovery = async |ground: &Ground| ground.server.ask("CONFIG SET min-replicas-to-write 0");
    nothing_is_left_after(&[], fault, recovery).await;
}

#[tokio::test]
async fn nothing_is_left_after_rights_were_withdrawn() {
    let fault = async |ground: &Ground| ground.server.ask("ACL SETUSER default -evalsha");
    let recovery = async |ground: &Ground| ground.server.ask("ACL SETUSER default +evalsha");
    nothing_is_left_after(&[], fault, recovery).await;
}

/// It keeps what it had.
#[tokio::test]
async fn nothing_is_left_after_the_server_was_killed_and_restarted() {
    let options = ["--appendonly", "yes", "--appendfsync", "always"];
    let fault = async |ground: &Ground| ground.server.kill();
    nothing_is_left_after(&options, fault, async |ground| ground.server.restart()).await;
}
