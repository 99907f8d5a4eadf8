//! Everything that needs ZooKeeper servers, one topic a file; `README.md` says what each proves.

#![allow(missing_docs, reason = "the names of tests say what they show")]

mod support;
#[cfg(feature = "tls")]
mod tls;

mod behind;
mod connecting;
mod costs;
mod drops;
mod faults;
mod hand_off;
mod inspect;
mod locks;
mod marks;
mod one_session;
mod random_faults;
mod readers;
mod replay;
mod stored;
mod weights;
