//! Everything that needs an etcd cluster, one topic a file; `README.md` says what each proves.

#![allow(missing_docs, reason = "the names of tests say what they show")]

mod support;

mod costs;
mod drops;
mod hand_off;
mod inspect;
mod keep_alives;
mod login;
mod many;
mod members;
mod names;
mod partitions;
mod processes;
mod random_faults;
mod readers;
mod replay;
#[cfg(feature = "tls")]
mod tls;
mod waiting;
mod weights;
