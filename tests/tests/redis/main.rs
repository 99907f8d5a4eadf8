//! Everything that needs a Redis, one topic a file; `README.md` says what each proves.
//!
//! Nothing in this program installs a client: each test has a server and a client of its own.

#![allow(missing_docs, reason = "the names of tests say what they show")]

mod support;

mod acquire;
mod after_faults;
mod blocked_log;
mod broken_batches;
mod broken_clocks;
mod broken_done;
mod broken_fallback;
mod broken_joined;
mod broken_late_renewals;
mod broken_marks;
mod broken_shutdown;
mod broken_stores;
mod broken_unpolled;
mod connecting;
mod dropped_in_flight;
mod due;
mod events;
mod extend;
mod failed_waiters;
mod fallback;
mod faults;
mod forged;
mod handed;
mod harness;
mod holds;
mod hostile;
mod inline_wakers;
mod joining;
mod judges;
mod keys;
mod late_requests;
mod lifetimes;
mod line;
mod matrix;
mod memory;
mod mixture;
mod nonsense;
mod outage;
mod owed_marks;
mod permits;
mod points;
mod processes;
mod referee;
mod release;
mod renewal;
mod rights;
mod runtimes;
mod secrets;
mod shutdown;
mod simulated;
mod slots_at_once;
mod stores_of_ones_own;
mod stuck;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod unpolled;
mod waiting;
mod wakeups;
mod wire;
