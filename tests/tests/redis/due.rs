//! Leases that fall due for renewal in the very moment in which they go to the next caller.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use lockattr::store::{
    Acquired, Attempt, Claim, Found, Held, Release, Renewed, Reply, Store, Token,
};
use lockattr::{Client, Memory};
use tests::seed::Random;

const PATIENT: Duration = Duration::from_secs(60);

/// A store that knows which leases are in use.
#[derive(Clone, Debug, Default)]
struct Watched {
    memory: Memory,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    in_use: HashMap<String, usize>,
    /// Releases of leases that were in use.
    wrong: usize,
}

impl Watched {
    fn begin(&self, owner: &str) {
        let mut state = self.state.lock().unwrap();
        *state.in_use.entry(owner.to_owned()).or_default() += 1;
    }

    fn end(&self, owner: &str) {
        let mut state = self.state.lock().unwrap();
        let count = state.in_use.get_mut(owner).expect("it was begun");
        *count -= 1;
        if *count == 0 {
            state.in_use.remove(owner);
        }
    }
}

impl Store for Watched {
    fn acquire<'a>(&'a self, claim: Claim<'a>, attempt: Attempt) -> Reply<'a, Acquired> {
        self.memory.acquire(claim, attempt)
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], patience: Duration) -> Reply<'a, Vec<Renewed>> {
        self.memory.renew(leases, patience)
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        let mut state = self.state.lock().unwrap();
        if state.in_use.contains_key(claim.owner) {
            state.wrong += 1;
        }
        drop(state);
        self.memory.release(claim, release)
    }

    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        self.memory.token(lease)
    }
}

/// A short ttl and many keys: some lease is always due while it is handed over.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn nobody_gives_back_what_has_gone_to_the_next_caller() {
    let store = Watched::default();
    let locks = Client::builder().store(store.clone()).unwrap();
    let end = Instant::now() + Duration::from_secs(5);
    let mut callers = Vec::new();
    for caller in 0..900 {
        let (locks, store) = (locks.clone(), store.clone());
        callers.push(tokio::spawn(async move {
            let mut random = Random::new(caller);
            while Instant::now() < end {
                let request = locks.lock(format!("k:{}", caller % 300));
                let ttl = Duration::from_millis(120);
                let lease = request.ttl(ttl).wait(PATIENT).acquire().await.unwrap();
                let owner = lease.owner().to_owned();
                store.begin(&owner);
                tokio::time::sleep(random.millis(5, 40)).await;
                store.end(&owner);
                drop(lease);
            }
        }));
    }
    for caller in callers {
        caller.await.unwrap();
    }
    assert_eq!(store.state.lock().unwrap().wrong, 0);
}
