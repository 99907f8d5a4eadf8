//! What is measured: ourselves, the raw commands, and other libraries.

use std::time::Duration;

use bench_roles::Words;

mod attribute;
mod lockattr;
mod majority;
mod raw;

/// The language of a library, and so how its process is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    Rust,
    Python,
    Node,
}

/// One of those that are measured.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// The word by which a child process knows it.
    pub id: &'static str,
    /// How the tables call it.
    pub name: &'static str,
    pub language: Language,
    /// Whether it waits for a busy key by itself.
    pub waits: bool,
    /// How often it renews a lease of 30 s, and how a holder learns of a loss, where it does.
    pub renews: Option<Renewal>,
    /// Whether its process runs on tokio's multi-thread runtime, with two workers, and not on the
    /// current-thread one.
    pub multi_thread: bool,
}

impl Subject {
    /// The same on the multi-thread runtime, for those that are written in Rust.
    pub const fn multi_thread(self) -> Self {
        Self {
            multi_thread: true,
            ..self
        }
    }

    /// Whether it is this one, on the same runtime.
    pub fn is(&self, other: &Self) -> bool {
        self.id == other.id && self.multi_thread == other.multi_thread
    }
}

/// How a library keeps what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Renewal {
    /// From one renewal of a lease of 30 s to the next.
    pub every: Duration,
    /// How a holder learns of a loss.
    pub notice: Option<&'static str>,
}

const fn renewal(seconds: u64, notice: Option<&'static str>) -> Renewal {
    let every = Duration::from_secs(seconds);
    Renewal { every, notice }
}

pub const RAW: Subject = Subject {
    id: "raw",
    name: "raw commands",
    language: Language::Rust,
    waits: false,
    renews: Some(renewal(10, None)),
    multi_thread: false,
};

pub const MAJORITY: Subject = Subject {
    id: "majority",
    name: "raw commands",
    language: Language::Rust,
    waits: false,
    renews: None,
    multi_thread: false,
};

pub const LOCKATTR: Subject = Subject {
    id: "lockattr",
    name: "lockattr, by hand",
    language: Language::Rust,
    waits: true,
    renews: Some(renewal(10, Some("`lease.lost()` returns"))),
    multi_thread: false,
};

pub const ATTRIBUTE: Subject = Subject {
    id: "attribute",
    name: "lockattr, attribute",
    language: Language::Rust,
    waits: true,
    renews: Some(renewal(10, Some("the body is dropped"))),
    multi_thread: false,
};

pub const RSLOCK: Subject = Subject {
    id: "rslock",
    name: "rslock",
    language: Language::Rust,
    waits: true,
    // `using` extends 500 ms before the end.
    renews: Some(renewal(29, Some("`using` returns an error"))),
    multi_thread: false,
};

pub const DISTRIBUTED_LOCK_REDIS: Subject = Subject {
    id: "distributed-lock-redis",
    name: "distributed-lock-redis",
    language: Language::Rust,
    waits: false,
    renews: Some(renewal(10, Some("a watch channel tells"))),
    multi_thread: false,
};

pub const DIST_LOCK: Subject = Subject {
    id: "dist_lock",
    name: "dist_lock",
    language: Language::Rust,
    waits: false,
    renews: None,
    multi_thread: false,
};

pub const ASYNC_REDIS_LOCK: Subject = Subject {
    id: "async-redis-lock",
    name: "async-redis-lock",
    language: Language::Rust,
    waits: true,
    renews: Some(renewal(10, Some("a flag, to be looked at"))),
    multi_thread: false,
};

pub const REDIS_PY: Subject = Subject {
    id: "redis-py",
    name: "redis-py, asyncio",
    language: Language::Python,
    waits: true,
    renews: None,
    multi_thread: false,
};

pub const REDLOCK: Subject = Subject {
    id: "redlock",
    name: "redlock, node",
    language: Language::Node,
    waits: true,
    renews: None,
    multi_thread: false,
};

/// All that a lease can be taken from, ourselves first.
pub const LOCKS: [Subject; 8] = [
    LOCKATTR,
    RAW,
    RSLOCK,
    DISTRIBUTED_LOCK_REDIS,
    DIST_LOCK,
    ASYNC_REDIS_LOCK,
    REDIS_PY,
    REDLOCK,
];

/// The same and the attribute.
pub fn all() -> Vec<Subject> {
    let mut all = LOCKS.to_vec();
    all.insert(1, ATTRIBUTE);
    all
}

/// Those that wait for a busy key.
pub fn waiting() -> Vec<Subject> {
    LOCKS.into_iter().filter(|subject| subject.waits).collect()
}

/// Plays a role of a library in this process.
pub fn play(words: &Words) {
    match words.library() {
        "raw" if words.role() == "ping" => bench_roles::play_ping(words),
        "raw" => bench_roles::play_locks::<raw::Raw>(words),
        "majority" => bench_roles::play_calls::<majority::Majority>(words),
        "lockattr" => bench_roles::play_locks::<lockattr::ByHand>(words),
        "attribute" => bench_roles::play_calls::<attribute::Attribute>(words),
        _ => bench_others::play(words),
    }
}
