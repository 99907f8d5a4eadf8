//! Everything that needs a Redis, one topic a file; `README.md` says what each proves.
//!
//! Nothing in this program installs a client: each test has a server and a client of its own.

#![allow(missing_docs, reason = "the names of tests say what they show")]

mod support;

mod acquire;
mod due;
mod events;
mod faults;
mod forged;
mod handed;
mod harness;
mod holds;
mod hostile;
mod judges;
mod keys;
mod lifetimes;
mod line;
mod matrix;
mod memory;
mod mixture;
mod nonsense;
mod outage;
mod permits;
mod points;
mod processes;
mod referee;
mod release;
mod renewal;
mod rights;
mod runtimes;
mod secrets;
mod simulated;
mod stuck;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod waiting;
mod wakeups;
mod wire;
