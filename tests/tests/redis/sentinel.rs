//! Redis Sentinel: the primary is found whatever some sentinels say, and followed to where it moves.

mod failover;
mod finding;
mod isolated;
