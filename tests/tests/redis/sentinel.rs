//! Redis Sentinel: the primary is found whatever some sentinels say, and followed to where it moves.

mod access;
mod failover;
mod finding;
mod isolated;
#[cfg(feature = "tls")]
mod tls;
