//! Leases handed on within a client to callers that go away in that very moment: each goes back, and is
//! counted once.

use std::sync::mpsc::{Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use lockattr::Client;
use tests::server::Server;

use crate::support::{Call, by_hand, nothing_left, runtimes};

const SECOND: Duration = Duration::from_secs(1);

/// Drops its call when it is woken.
struct DropsInline(Mutex<Option<Call>>);

impl Wake for DropsInline {
    fn wake(self: Arc<Self>) {
        let call = self.0.lock().unwrap().take();
        drop(call);
    }
}

#[test]
fn a_lease_that_is_dropped_while_it_is_handed_on_is_counted_once() {
    let server = Server::start();
    let locks = by_hand(Client::connect(server.url())).unwrap();
    let lease = by_hand(locks.lock("sync:42").ttl(30 * SECOND).acquire()).unwrap();
    let call = locks
        .lock("sync:42")
        .ttl(30 * SECOND)
        .wait(60 * SECOND)
        .acquire();
    let task = Arc::new(DropsInline(Mutex::new(None)));
    let mut call: Call = Box::pin(call);
    let waker = Waker::from(Arc::clone(&task));
    assert!(
        call.as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    *task.0.lock().unwrap() = Some(call);
    by_hand(lease.release()).unwrap();
    by_hand(locks.shutdown());
    assert_eq!(server.size(), 0);
    let stats = locks.stats();
    assert_eq!((stats.granted, stats.released, stats.lost), (1, 1, 0));
}

/// Has another thread drop its call when it is woken, and takes a while.
struct DropsElsewhere {
    call: Mutex<Option<Call>>,
    to: Mutex<Sender<Call>>,
    hold_up: Duration,
}

impl Wake for DropsElsewhere {
    fn wake(self: Arc<Self>) {
        let call = self.call.lock().unwrap().take();
        if let Some(call) = call {
            let _ = self.to.lock().unwrap().send(call);
            let start = Instant::now();
            while start.elapsed() < self.hold_up {
                std::hint::spin_loop();
            }
        }
    }
}

/// The waiter is dropped on another thread in the very moment that it is handed the lease.
#[test]
fn a_lease_whose_next_holder_is_dropped_as_it_is_handed_on_goes_back() {
    let server = Server::start();
    let [_, runtime] = runtimes();
    let locks = runtime.block_on(Client::connect(server.url())).unwrap();
    let (to, calls) = channel::<Call>();
    let dropper = thread::spawn(move || {
        loop {
            match calls.try_recv() {
                Ok(call) => drop(call),
                Err(TryRecvError::Empty) => std::hint::spin_loop(),
                Err(_) => return,
            }
        }
    });
    let begun = Instant::now();
    let mut round = 0_u64;
    let mut handed = 0;
    while begun.elapsed() < 10 * SECOND {
        round += 1;
        let key = format!("sync:{round}");
        let lease = runtime
            .block_on(locks.lock(&key).ttl(30 * SECOND).acquire())
            .unwrap();
        let mut call: Call = Box::pin(
            locks
                .lock(&key)
                .ttl(30 * SECOND)
                .wait(60 * SECOND)
                .acquire(),
        );
        let task = Arc::new(DropsElsewhere {
            call: Mutex::new(None),
            to: Mutex::new(to.clone()),
            hold_up: Duration::from_nanos((round * 37) % 30_000),
        });
        let waker = Waker::from(Arc::clone(&task));
        let context = runtime.enter();
        assert!(
            call.as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        *task.call.lock().unwrap() = Some(call);
        drop(context);
        runtime.block_on(lease.release()).unwrap();
        if task.call.lock().unwrap().is_none() {
            handed += 1;
        }
        if round.is_multiple_of(200) {
            runtime.block_on(nothing_left(&server));
        }
    }
    assert!(handed > 0, "nothing was handed on in {round} rounds");
    drop(to);
    dropper.join().unwrap();
}
