//! Everything that needs a Redis, one topic a file; `README.md` says what each proves.
//!
//! Nothing in this program installs a client: each test has a server and a client of its own.

#![allow(missing_docs, reason = "the names of tests say what they show")]

mod support;

mod acquire;
mod after_faults;
mod after_shutdown;
mod blocked_log;
mod checkers;
mod cluster;
mod cluster_connecting;
mod cluster_moves;
mod cluster_outages;
mod connecting;
mod credentials;
mod custom_stores;
mod done_together;
mod dropped_in_flight;
mod due;
mod ended_connections;
mod events;
mod extend;
mod fail_fast;
mod fail_fast_parts;
mod failed_waiters;
mod fallback;
mod fallback_grants;
mod fallback_in_paused_time;
mod faults;
mod faulty_stores;
mod forged;
mod handed_on;
mod handovers;
mod harness;
mod holds;
mod hostile;
mod inline_wakers;
mod introduction;
mod invalid_requests;
mod joined_ends;
mod joining;
mod kept_marks;
mod keys;
mod late_renewals;
mod late_requests;
mod lifetimes;
mod matrix;
mod memory;
mod mixture;
mod outage;
mod outstanding_extend;
mod pending_marks;
mod permits;
mod points;
mod processes;
mod protocol_errors;
mod quorum;
mod random_faults;
mod release;
mod renewal;
mod renewal_batches;
mod repeated_releases;
mod replicas;
mod replicas_cluster;
mod replicas_faults;
mod rights;
mod runtimes;
mod secrets;
mod sentinel;
mod shutdown;
mod shutdown_of_unpolled;
mod simulated;
mod slots_at_once;
mod stalled_waiters;
#[cfg(feature = "tls")]
mod tls;
mod together;
mod unpolled;
mod unpolled_futures;
mod wait_queue;
mod waiting;
mod wakeups;
mod wire;
