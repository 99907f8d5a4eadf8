//! Random numbers that can be replayed: `LOCKATTR_SEED=… cargo test …`.

use std::env;
use std::time::{Duration, SystemTime};

/// The variable that fixes the seed.
pub const VARIABLE: &str = "LOCKATTR_SEED";

/// A small generator (`SplitMix64`); its stream depends on the seed alone.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The seed from the environment, or a fresh one; printed, so that a failure shows it.
    pub fn announced(what: &str) -> Self {
        let seed = env::var(VARIABLE)
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or_else(fresh);
        println!("{what}: {VARIABLE}={seed}");
        Self(seed)
    }

    /// A stream for a known seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit.max(1)
    }

    /// A duration between the two, in whole milliseconds.
    pub fn millis(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_millis(from + self.below(to - from + 1))
    }
}

fn fresh() -> u64 {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    u64::from(now.subsec_nanos()) ^ now.as_secs().rotate_left(32) ^ u64::from(std::process::id())
}
