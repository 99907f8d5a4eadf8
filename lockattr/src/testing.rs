//! For the tests of a service: locks that a test can break, and what became of each call.
//!
//! [`TestLocks`] is a client on locks in memory. It can be told to [expire](TestLocks::expire) a lock, to let
//! [somebody else hold](TestLocks::hold_elsewhere) it, to [refuse](TestLocks::refuse) and to be
//! [slow](TestLocks::delay), and it keeps a [record](TestLocks::events) of which keys were locked, skipped, lost
//! and given back.
//!
//! # The tests of a service
//!
//! A service that mails invoices, with what can happen to it:
//!
//! ```
//! use std::sync::atomic::{AtomicU32, Ordering};
//! use std::time::Duration;
//!
//! use lockattr::testing::TestLocks;
//! use lockattr::{Error, distributed_lock};
//!
//! static MAILED: AtomicU32 = AtomicU32::new(0);
//!
//! #[distributed_lock(key = "invoice:<id>", ttl = "30s")]
//! async fn mail_invoice(id: u64) -> Result<(), Error> {
//!     tokio::time::sleep(Duration::from_secs(5)).await; // the mail server takes its time
//!     MAILED.fetch_add(1, Ordering::Relaxed);
//!     Ok(())
//! }
//!
//! #[tokio::test(start_paused = true)]
//! # async fn not_run() {}
//! async fn an_invoice_is_mailed_under_its_lock() {
//!     let locks = TestLocks::install();
//!
//!     mail_invoice(7).await.unwrap();
//!
//!     locks.assert_locked("invoice:7");
//!     locks.assert_nothing_held();
//! }
//!
//! #[tokio::test(start_paused = true)]
//! # async fn not_run_either() {}
//! async fn an_invoice_that_another_replica_mails_is_left_to_it() {
//!     let locks = TestLocks::install();
//!     locks.hold_elsewhere("invoice:7", Duration::from_secs(60));
//!
//!     assert!(matches!(mail_invoice(7).await, Err(Error::Busy { .. })));
//!
//!     locks.assert_skipped("invoice:7");
//! }
//!
//! #[tokio::test(start_paused = true)]
//! # async fn nor_run() {}
//! async fn a_mail_is_not_sent_once_its_lock_is_lost() {
//!     let locks = TestLocks::install();
//!     let mailing = tokio::spawn(mail_invoice(7));
//!     tokio::time::sleep(Duration::from_secs(1)).await; // paused: takes no time
//!
//!     locks.expire("invoice:7");
//!
//!     assert!(matches!(mailing.await.unwrap(), Err(Error::Lost { .. })));
//!     locks.assert_lost("invoice:7");
//! }
//!
//! #[tokio::test(start_paused = true)]
//! # async fn nor_this() {}
//! async fn an_outage_is_told() {
//!     let locks = TestLocks::install();
//!     locks.refuse("out of order");
//!
//!     assert!(matches!(mail_invoice(7).await, Err(Error::Unavailable { .. })));
//! }
//! # tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap().block_on(async {
//! #     an_invoice_is_mailed_under_its_lock().await;
//! #     an_invoice_that_another_replica_mails_is_left_to_it().await;
//! #     a_mail_is_not_sent_once_its_lock_is_lost().await;
//! #     an_outage_is_told().await;
//! #     assert_eq!(MAILED.load(Ordering::Relaxed), 1);
//! # });
//! ```
//!
//! # Time
//!
//! Leases in memory live in the time of the calling tokio runtime. In a test with `start_paused = true` a ttl of an
//! hour passes at once, in order: sleeping tasks, renewals and waiting calls take turns as they would. A test that
//! does not pause its clock runs in real time. What is given back by a call that was dropped is given back on the
//! client's own thread, in real time.

use std::time::Duration;

use tokio::runtime::{Handle, Id};

use crate::client::Client;
use crate::store::memory::Memory;

mod installed;
mod record;

pub(crate) use installed::of_runtime;
pub(crate) use record::Record;
pub use record::{Event, What};

/// The owner of a lease of another process, which errors name `elsewhere:1`.
const ELSEWHERE: &str = "0123456789abcdef0123456789abcdef@elsewhere:1";

/// A client on locks of its own, in memory, for one test.
///
/// Keys are those that functions name, without the client's prefix.
#[derive(Debug)]
pub struct TestLocks {
    client: Client,
    memory: Memory,
    /// Where it is the client of every call.
    runtime: Option<Id>,
}

impl TestLocks {
    /// Locks for the functions that are called [in their scope](Self::client), or with `client = …`.
    ///
    /// # Panics
    /// Where no thread can be started.
    #[must_use]
    pub fn new() -> Self {
        let memory = Memory::new();
        let client = Client::builder()
            .store(memory.clone())
            .expect("a client with default settings");
        client.0.keeper.counters.record.begin();
        Self {
            client,
            memory,
            runtime: None,
        }
    }

    /// Locks for every call on this tokio runtime that names no other client, until this value is dropped: one
    /// line at the beginning of a `#[tokio::test]`, each of which has a runtime of its own. They come before a
    /// client that is installed for the process, and after one [in scope](Client::scope).
    ///
    /// What runs in `spawn_blocking` is on the runtime. Other threads are not: there, and in a test without a runtime, a
    /// function that blocks is called in [`Client::scope_blocking`] of the [client](Self::client), or with `client = …`.
    ///
    /// # Panics
    /// Outside of a tokio runtime, where there are others for this runtime, and as [`new`](Self::new) does.
    #[must_use = "the locks are there until this value is dropped"]
    #[track_caller]
    pub fn install() -> Self {
        let Ok(runtime) = Handle::try_current() else {
            panic!(
                "there is no tokio runtime here to install locks for: where functions block, call them in \
                 `TestLocks::new().client().scope_blocking(…)`"
            );
        };
        let runtime = runtime.id();
        let mut locks = Self::new();
        assert!(
            installed::install(runtime, &locks.client),
            "this tokio runtime has locks already: drop the others first"
        );
        locks.runtime = Some(runtime);
        locks
    }

    /// The client, for [`scope`](Client::scope), `client = …` and requests by hand.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The store, for a second client that contends for the same locks.
    #[must_use]
    pub fn store(&self) -> Memory {
        self.memory.clone()
    }

    /// Takes a key away under its holder, as an eviction or a `DEL` by hand would. The holder is told at once.
    pub fn expire(&self, key: &str) {
        self.memory.expire(&self.lock(key));
    }

    /// Lets another process hold a key from now on for so long, whoever holds it. A holder here has lost it, and is
    /// told at once. Errors name the holder `elsewhere:1`.
    pub fn hold_elsewhere(&self, key: &str, ttl: Duration) {
        self.memory.take(&self.lock(key), ELSEWHERE, ttl);
    }

    /// The store fails from now on, with this reason, as if it could not be reached.
    pub fn refuse(&self, reason: &str) {
        self.memory.refuse(Some(reason));
    }

    /// The store takes so long for each step from now on; zero is the default. What takes longer than
    /// [a store may](crate::store::Limits::longest_answer) fails.
    pub fn delay(&self, by: Duration) {
        self.memory.delay(by);
    }

    /// The store answers again, and at once.
    pub fn mend(&self) {
        self.memory.refuse(None);
        self.memory.delay(Duration::ZERO);
    }

    /// What has become of all calls so far, in order.
    #[must_use]
    pub fn events(&self) -> Vec<Event> {
        self.client.0.keeper.counters.record.events()
    }

    /// How often that has happened to a key.
    #[must_use]
    pub fn count(&self, key: &str, what: What) -> usize {
        let events = self.events();
        let of_key = self.of_key(&events, key);
        of_key.filter(|event| event.what == what).count()
    }

    /// Whether anybody holds a key now.
    #[must_use]
    pub fn is_held(&self, key: &str) -> bool {
        self.memory.holder(&self.lock(key)).is_some()
    }

    /// A call has locked the key.
    ///
    /// # Panics
    /// If none has; with what has happened. So do the others.
    #[track_caller]
    pub fn assert_locked(&self, key: &str) {
        self.assert(key, "locked", |what| {
            matches!(what, What::Locked | What::Joined)
        });
    }

    /// A call was answered without running, since the key was busy or its work was done.
    ///
    /// # Panics
    /// If none was.
    #[track_caller]
    pub fn assert_skipped(&self, key: &str) {
        self.assert(key, "skipped", |what| {
            matches!(what, What::Busy | What::Done)
        });
    }

    /// A lease of the key was given back.
    ///
    /// # Panics
    /// If none was.
    #[track_caller]
    pub fn assert_released(&self, key: &str) {
        self.assert(key, "given back", |what| what == What::Released);
    }

    /// A lease of the key was lost, however.
    ///
    /// # Panics
    /// If none was.
    #[track_caller]
    pub fn assert_lost(&self, key: &str) {
        self.assert(key, "lost", |what| matches!(what, What::Lost(_)));
    }

    /// Every lease that was taken was given back, or is lost.
    ///
    /// # Panics
    /// If a lease still runs.
    #[track_caller]
    pub fn assert_nothing_held(&self) {
        let held = self.client.0.keeper.held();
        assert!(held.is_empty(), "still held: {}", held.join(", "));
    }

    #[track_caller]
    fn assert(&self, key: &str, wanted: &str, is: impl Fn(What) -> bool) {
        let events = self.events();
        let of_key: Vec<What> = self.of_key(&events, key).map(|event| event.what).collect();
        assert!(
            of_key.iter().any(|what| is(*what)),
            "`{key}` was not {wanted}: {}",
            record::told(&events, &of_key)
        );
    }

    /// Also where a function shows a hash in place of its key.
    fn of_key<'a>(&self, events: &'a [Event], key: &'a str) -> impl Iterator<Item = &'a Event> {
        let redacted = self.client.0.redacted(key);
        events
            .iter()
            .filter(move |event| event.key == key || event.key == redacted)
    }

    fn lock(&self, key: &str) -> String {
        format!("{}{key}", self.client.0.prefix)
    }
}

impl Default for TestLocks {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for TestLocks {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime {
            installed::remove(runtime);
        }
    }
}
