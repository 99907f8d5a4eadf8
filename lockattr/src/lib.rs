//! Runs an async function at most once at a time, across processes and machines.
//!
//! ```no_run
//! use lockattr::{Client, distributed_lock};
//!
//! #[distributed_lock(key = "sync:<user_id>", ttl = "30s", on_busy = skip)]
//! async fn sync_user(user_id: u64) {
//!     // at most one of these per user runs at a time, on any machine
//! }
//!
//! #[tokio::main]
//! async fn main() -> Result<(), lockattr::Error> {
//!     Client::connect("redis://127.0.0.1/").await?.install()?;
//!     sync_user(42).await;
//!     Ok(())
//! }
//! ```
//!
//! The function keeps its signature, its attributes and its docs. Around its body the attribute
//! acquires a lease on a key made from its arguments, renews it while the body runs, and gives it
//! back when the body ends: by value, `?`, early `return`, panic, or its future being dropped. When
//! the lease is lost, the body's future is dropped before it is polled again.
//!
//! - [`distributed_lock`] lists the arguments, each with an example.
//! - [`Client`] is the connection to a Redis or Valkey server, or to a PostgreSQL database; `memory:` needs
//!   none.
//! - [`Client::lock`] takes a [`Lease`] without the attribute.
//! - [`Error`] says which of busy, unavailable, lost, foreign … it was, and never mixes them.
//! - [`Store`](store::Store) is what other places to keep locks in implement.
//!
//! # What the lock promises
//!
//! A body is polled only while its lease is valid by this machine's monotonic clock: from the moment
//! the winning request was sent, for the ttl less a drift margin of a hundredth and 2 ms. A single
//! Redis server that keeps its data gives at most one holder. What no lock of this kind can do is
//! stop a write that is already on its way when the lease ends: where that matters, send the
//! [fencing token](Lease::token) along, and let the resource refuse smaller ones, or make the write
//! idempotent. A failover to a replica that has not yet heard of a lock loses that lock.
//!
//! # Events
//!
//! Everything is told through [`tracing`](https://docs.rs/tracing), target `lockattr`: a skipped
//! call at DEBUG; a call that did not run for an outage, or was stopped, at WARN where its caller
//! gets the error and at ERROR where nobody does; outages of renewals and releases at WARN, once
//! each; a mark of `once` that cannot be written any more at ERROR. [`Client::stats`] counts the same.
//! Where no subscriber takes errors, a call without a client, and locks that are disabled, are told on
//! stderr, once.
//!
//! A subscriber that blocks holds up no renewal: what happens in the background is told on a thread of
//! its own. When the subscriber is 256 events behind, further ones are dropped, and their number is told
//! once it goes on.
//!
//! # Processes and executors
//!
//! A process that was forked off makes a client of its own: it has none of its parent's threads, and
//! its leases stay the parent's. An executor that polls tasks inside `Waker::wake` is not supported
//! under a locked body: what the body wakes there would run inside its call, and join its lease.
//!
//! # Features
//!
//! - `postgres`: `postgres://` URLs: locks in a PostgreSQL database.
//! - `tls`: `rediss://` URLs, and `postgres://` ones with `sslmode`, by rustls.
//! - `conformance`: `store::conformance`, which tells whether a store of one's own keeps its promises.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod acquisition;
mod attribute;
mod client;
mod error;
mod keeper;
mod key;
mod lease;
mod limits;
mod listed;
mod owner;
mod queue;
mod runtime;
mod stats;
pub mod store;

pub use acquire::around::current;
pub use attribute::policy::{Fail, Skip};
pub use client::{Client, ClientBuilder, LockRequest};
pub use error::{Error, LossCause, StoreError};
pub use key::{Key, KeyError};
pub use lease::Lease;
pub use stats::Stats;
pub use store::memory::Memory;
#[cfg(feature = "postgres")]
#[cfg_attr(docsrs, doc(cfg(feature = "postgres")))]
pub use store::postgres::POSTGRES_SCHEMA;
pub use store::redis::Credentials;

#[doc = include_str!("attribute.md")]
pub use lockattr_macros::distributed_lock;

/// The README's programs, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
struct Readme;

/// What expansions of the attribute name. Not for use by hand; it may change in any release.
#[doc(hidden)]
pub mod __private {
    pub use core;
    pub use std;

    pub use crate::acquire::CallOptions as Options;
    pub use crate::attribute::answer::{
        End, answered, busy_error, busy_return, busy_skip, done_error, done_return, done_skip,
        down_error, down_return, down_skip, lost_cancel, lost_continue, lost_return, unless_lost,
    };
    pub use crate::attribute::client_argument::client;
    pub use crate::attribute::within::{Ending, leave};
    pub use crate::attribute::{Entered, at_once, enter};
    pub use crate::key::{KeyValue, KeyWriter, Keys};
}
