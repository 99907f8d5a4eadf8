//! The harness of the tests of `lockattr`: real servers, real processes, fault injection on
//! connections, and a record that several processes write and a checker reads.
//!
//! Everything in here ends what it started when it is dropped, also while a test panics, and waits
//! for conditions instead of for a while.

#![allow(
    clippy::missing_panics_doc,
    reason = "a harness panics when the machine does not play along: the test has failed then"
)]
#![allow(
    clippy::must_use_candidate,
    reason = "tests call for the effect as often as for the answer"
)]

pub mod chaos;
pub mod checker;
pub mod cluster;
pub mod dropping;
#[cfg(feature = "etcd")]
pub mod etcd;
pub mod fake;
pub mod fallback;
pub mod firing;
pub mod forger;
pub mod hand_offs;
pub mod inspected;
pub mod log;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod monitor;
pub mod network;
#[cfg(feature = "postgres")]
pub mod pgbouncer;
#[cfg(feature = "postgres")]
pub mod postgres;
pub mod printed;
pub mod process;
pub mod proxy;
pub mod record;
pub mod replayed;
pub mod reruns;
pub mod roles;
pub mod seed;
pub mod sentinel;
pub mod server;
pub mod statuses;
pub mod threads;
#[cfg(feature = "tls")]
pub mod tls;
pub mod turn;
pub mod version;
pub mod wait;
pub mod worker;
#[cfg(feature = "zookeeper")]
pub mod zookeeper;

mod scratch;
