//! A client that was shut down asks for nothing more: its program may have ended by then.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lockattr::store::{
    Acquired, Attempt, Claim, Found, Held, Release, Renewed, Reply, Store, Token,
};
use lockattr::{Client, Memory};
use tests::wait;

use crate::support::{by_hand, told_of_the_end};

/// Stops a caller on its way to the store for as long as a test holds the gate.
#[derive(Clone, Debug, Default)]
struct Gated {
    memory: Memory,
    gate: Arc<Mutex<()>>,
    stopped: Arc<AtomicBool>,
    asked: Arc<AtomicBool>,
}

impl Store for Gated {
    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        self.asked.store(true, Ordering::SeqCst);
        self.memory.acquire(claim, attempt)
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        self.memory.renew(leases, patience)
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        self.memory.release(claim, release)
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        self.memory.token(lease)
    }

    /// What a call asks first of all.
    fn in_callers_time(&self) -> bool {
        if thread::current().name() == Some("caller") {
            self.stopped.store(true, Ordering::SeqCst);
            drop(self.gate.lock().unwrap_or_else(PoisonError::into_inner));
        }
        false
    }
}

/// The whole shutdown goes by while a call is about to ask.
#[test]
fn a_call_that_begins_beside_a_shutdown_asks_for_nothing_after_it() {
    let store = Gated::default();
    let locks = Client::builder().store(store.clone()).unwrap();
    let gate = store.gate.lock().unwrap();
    let call = locks.lock("sync:42").acquire();
    let caller = thread::Builder::new().name("caller".to_owned());
    let caller = caller.spawn(move || by_hand(call)).unwrap();
    let is_stopped = || store.stopped.load(Ordering::SeqCst);
    wait::block_until("the call is on its way", is_stopped);
    by_hand(locks.shutdown());
    drop(gate);
    told_of_the_end(caller.join().unwrap());
    assert!(!store.asked.load(Ordering::SeqCst), "asked after it");
}
