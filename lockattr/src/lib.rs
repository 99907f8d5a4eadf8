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
//! the lease is lost, the body's future is dropped before it is polled again. A function that is not async, and
//! [blocks its thread](distributed_lock#blocking), is one too.
//!
//! - [`distributed_lock`] lists the arguments, each with an example.
//! - [The guide](guide) says which ttl, key and store to take, and what to do when something is wrong.
//! - [`Client`] is the connection to a Redis or Valkey server, or another [store](Client::connect); `memory:` needs none.
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
#![doc = include_str!("events.md")]
//!
//! [`Client::hold_times`] says how long the leases of each function are held. One that is not renewed and takes more than half
//! of its ttl is told at WARN, once, with a ttl that would be enough.
//!
//! # Metrics
//!
//! With the feature `metrics`, every locked function is recorded through the facade of the crate
//! [`metrics`](https://docs.rs/metrics), 0.24, for whatever exporter the application installs as its global
//! recorder. Each metric has the labels `function`, the function with its module, and `template`, its key's
//! template as written, `sync:<user_id>`; never a key. A list of keys is joined by `, `. Requests by hand have an
//! empty `function`, and the [`template`](LockRequest::template) that they name, which is empty where they name
//! none. What several clients do is added up.
//!
//! | name | kind | counts or measures |
//! |---|---|---|
//! | `lockattr_acquired_total` | counter | calls that got a lease |
//! | `lockattr_busy_total` | counter | calls that found the key busy, after their wait |
//! | `lockattr_done_total` | counter | calls whose work was done already, by `once` |
//! | `lockattr_unavailable_total` | counter | calls with neither: an outage, or a key or setting that was refused |
//! | `lockattr_unguarded_total` | counter | acquired calls that ran without a lock in the store: `on_unavailable = run` and `local`, disabled clients |
//! | `lockattr_lost_total` | counter | leases that ended before they were given back; label `cause`: `expired`, `deleted`, `taken`, `shutdown`, `held_too_long`, as [`LossCause`] |
//! | `lockattr_released_late_total` | counter | leases given back in the background after that had failed first |
//! | `lockattr_release_abandoned_total` | counter | leases that could not be given back before their keys ran out |
//! | `lockattr_marks_lost_total` | counter | marks of `once` that could not be written |
//! | `lockattr_replies_not_kept_total` | counter | replies that were not kept beside the mark of `once`: too large, or no JSON |
//! | `lockattr_handovers_total` | counter | leases passed on to a call that waited; label `kind`: `process`, from a call of the same client and without the store, or `store`, by a release elsewhere |
//! | `lockattr_wait_seconds` | histogram | from the beginning of a call to its lease or its refusal |
//! | `lockattr_hold_seconds` | histogram | from the grant, when the winning request was sent, until the lease was given back or lost |
//! | `lockattr_renewal_lag_seconds` | histogram | how much later than a third of its ttl after the last one a renewal was confirmed; 0 in time |
//! | `lockattr_ttl_used_ratio` | histogram | the share of its ttl that had passed when a lease was renewed, and when it ended: near 1 it was nearly lost |
//! | `lockattr_held` | gauge | leases that run now |
//! | `lockattr_waiting` | gauge | calls that have neither their lease nor a refusal yet |
//! | `lockattr_last_success_timestamp_seconds` | gauge | when the function last came to a success under its lease, since 1970; absent before the first one. Over several processes, take the largest |
//!
//! Counters agree with [`Client::stats`]. A call that joins the lease of a call around it is one that was acquired, and may be
//! lost by its own `max_hold`; it holds no lease of its own, so that its time is in no histogram but that of waiting.
//!
//! A function is recorded from its first call on that begins after a recorder was installed, and its series are there from
//! then on, at 0. It keeps to that recorder: one for a thread alone (`metrics::with_local_recorder`) is no use here, as
//! leases are renewed, lost and given back on other threads. Recorders are called where things happen, on the client's own
//! thread too, and must not block. A process that was forked off has a copy of its parent's recorder; what it drops of its
//! parent's leases and calls is taken off the gauges there.
//!
//! Where no recorder is installed a call pays for looking, without an allocation: see the repository's `BENCHMARKS.md`.
//!
//! # Spans
//!
//! Each call of a locked function is a span of the target `lockattr`, `distributed_lock`, at level DEBUG: a
//! child of the span that its caller is in, entered while the call waits for its lock, runs its body and
//! gives the lock back, and closed when it ends, however it ends. What the body tells, and what is told of
//! the call, is inside it. A request by hand has a span `lock_request` until it is answered. A call that
//! finds no client has none. Nothing is made where no subscriber takes DEBUG of `lockattr`: the
//! filter `info,lockattr=debug` does.
//!
//! | field | |
//! |---|---|
//! | `function`, `template`, `key` | as events have them |
//! | `holder` | who asks, as `host:pid` |
//! | `outcome` | `acquired`, `busy`, `done`, `unavailable` or `lost`; `unguarded` where the body ran without a lock of the store's; `cancelled` where the call was dropped, or panicked |
//! | `waited_ms` | from the call to its lease, or to its end where it got none |
//! | `held_ms` | of a locked function, from its lease until it was given back or lost |
//! | `token` | the [fencing token](Lease::token), where one was drawn |
//!
//! Whatever carries spans of `tracing` to another system, `tracing-opentelemetry` for example, carries
//! these as it does others: the fields are the attributes of the span there, and what the body asks of
//! other services belongs to it.
//!
//! # Processes and executors
//!
//! A process that was forked off makes a client of its own: it has none of its parent's threads, and
//! its leases stay the parent's. An executor that polls tasks inside `Waker::wake` is not supported
//! under a locked body: what the body wakes there would run inside its call, and join its lease.
//!
//! # Features
//!
//! - `tls`: `rediss://` URLs, and those of etcd, PostgreSQL and ZooKeeper over TLS, by rustls.
//! - `etcd`: `etcd://` URLs, the members of an etcd cluster.
//! - `postgres`: `postgres://` URLs: locks in a PostgreSQL database.
//! - `zookeeper`: `zookeeper://` URLs, the servers of a ZooKeeper ensemble; pulls no crate in.
//! - `axum`: [`Error`] is a response of axum 0.8, [a problem of RFC 9457](Error#impl-IntoResponse-for-Error): 423 Locked
//!   where a key is busy.
//! - `inspect`: [`Client::inspect`], which lists the locks of a store, shows who holds them and who waits,
//!   and ends what is stuck.
//! - `metrics`: counters, histograms and gauges of each locked function, [for a recorder](#metrics).
//! - `serde`: replies that are kept for later calls, `on_done = replay` of the [attribute](distributed_lock#once-on_done).
//! - `cli`: the command `lockattr`, for `cargo install lockattr --features cli`; the library gets nothing from it.
//! - `testing`: `testing::TestLocks`, for the tests of a service: locks that a test can break, and a record of what was
//!   locked, skipped and given back.
//! - `conformance`: `store::conformance`, which tells whether a store of one's own keeps its promises.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod acquire;
mod acquisition;
mod attribute;
mod call_site;
mod client;
mod error;
#[cfg(doc)]
pub mod guide;
mod hold_times;
mod keeper;
mod key;
mod lease;
mod limits;
mod listed;
mod observe;
mod owner;
mod percent;
mod queue;
mod redaction;
mod reply;
mod runtime;
mod stats;
pub mod store;
#[cfg(feature = "testing")]
#[cfg_attr(docsrs, doc(cfg(feature = "testing")))]
pub mod testing;

pub use acquire::around::current;
#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
pub use attribute::policy::Replay;
pub use attribute::policy::{Fail, Skip};
pub use client::{Client, ClientBuilder, Holder, LockRequest, Status, StatusRequest};
#[cfg(feature = "inspect")]
#[cfg_attr(docsrs, doc(cfg(feature = "inspect")))]
pub use client::{Inspector, Listing};
pub use error::{Error, LossCause, StoreError};
pub use hold_times::HoldTimes;
pub use key::{Key, KeyError};
pub use lease::{HandedOff, Lease, OnceFrom};
pub use reply::{KeptReply, ReplyError};
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
        End, Judge, answered, busy_error, busy_rerun, busy_return, busy_skip, done_error,
        done_return, done_skip, down_error, down_return, down_skip, lost_cancel, lost_continue,
        lost_return, unless_lost,
    };
    pub use crate::attribute::blocking::{Body, enter_blocking, unless_lost_blocking};
    pub use crate::attribute::client_argument::client;
    pub use crate::attribute::guarded::Guarded;
    pub use crate::attribute::replay::{
        done_replay, done_replay_errors, keep_replay, keep_replay_errors,
    };
    pub use crate::attribute::stream::{
        Ended, Items, Slot, busy_error_item, done_error_item, locked_stream, pass_on, stream_of,
    };
    pub use crate::attribute::within::{Ending, leave};
    pub use crate::attribute::{Entered, at_once, enter};
    pub use crate::call_site::CallSite;
    pub use crate::key::list::{KeyListWriter, ListValue};
    pub use crate::key::{KeyValue, KeyWriter, Keys};
    pub use crate::lease::OnceFrom;
}
