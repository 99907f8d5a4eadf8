//! What is measured: ourselves, the raw commands, and other libraries.
//!
//! Each Rust library has an adapter of one shape, so that every role treats all alike. Those in other
//! languages have a script in `peers/` that knows the same roles.

use std::any::Any;
use std::future::{Future, pending};
use std::time::Duration;

pub mod async_redis_lock;
pub mod attribute;
pub mod dist_lock;
pub mod distributed_lock_redis;
pub mod lockattr;
pub mod raw;
pub mod rslock;

/// Whatever keeps a lease alive until it is dropped.
pub type Kept = Box<dyn Any + Send>;

/// A library that can guard a call.
pub trait Calls: Clone + Send + Sync + 'static {
    /// A client of its own, with connections of its own.
    fn connect(url: &str, ttl: Duration) -> impl Future<Output = Self> + Send;

    /// Takes a free key and gives it back.
    fn pair(&self, key: &str) -> impl Future<Output = ()> + Send;

    /// Holds a key under a body that does not end, until the library says that the key is lost.
    fn lost(&self, _key: &str) -> impl Future<Output = ()> + Send {
        pending()
    }
}

/// A library that hands out what it holds.
pub trait Locks: Calls {
    type Held: Send + 'static;

    /// One try; nothing where another holds the key.
    fn attempt(&self, key: &str) -> impl Future<Output = Option<Self::Held>> + Send;

    /// Waits for the key in the library's own way.
    fn wait(&self, key: &str) -> impl Future<Output = Self::Held> + Send;

    fn release(&self, held: Self::Held) -> impl Future<Output = ()> + Send;

    /// Holds the key and renews it until what is returned is dropped.
    fn keep(&self, key: &str) -> impl Future<Output = Kept> + Send;
}

/// Waits for a key of a library that has no waiting, as its users would have to.
pub async fn poll<L: Locks>(locks: &L, key: &str) -> L::Held {
    loop {
        if let Some(held) = locks.attempt(key).await {
            return held;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

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
    /// How often it renews a lease of 30 s, and how a holder hears of a loss, where it does.
    pub renews: Option<Renewal>,
}

/// How a library keeps what it holds.
#[derive(Clone, Copy, Debug)]
pub struct Renewal {
    /// From one renewal of a lease of 30 s to the next.
    pub every: Duration,
    /// How a holder hears of a loss.
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
};

pub const LOCKATTR: Subject = Subject {
    id: "lockattr",
    name: "lockattr, by hand",
    language: Language::Rust,
    waits: true,
    renews: Some(renewal(10, Some("`lease.lost()` returns"))),
};

pub const ATTRIBUTE: Subject = Subject {
    id: "attribute",
    name: "lockattr, attribute",
    language: Language::Rust,
    waits: true,
    renews: Some(renewal(10, Some("the body is dropped"))),
};

pub const RSLOCK: Subject = Subject {
    id: "rslock",
    name: "rslock",
    language: Language::Rust,
    waits: true,
    // `using` extends 500 ms before the end.
    renews: Some(renewal(29, Some("`using` returns an error"))),
};

pub const DISTRIBUTED_LOCK_REDIS: Subject = Subject {
    id: "distributed-lock-redis",
    name: "distributed-lock-redis",
    language: Language::Rust,
    waits: false,
    renews: Some(renewal(10, Some("a watch channel tells"))),
};

pub const DIST_LOCK: Subject = Subject {
    id: "dist_lock",
    name: "dist_lock",
    language: Language::Rust,
    waits: false,
    renews: None,
};

pub const ASYNC_REDIS_LOCK: Subject = Subject {
    id: "async-redis-lock",
    name: "async-redis-lock",
    language: Language::Rust,
    waits: true,
    renews: Some(renewal(10, Some("a flag, to be looked at"))),
};

pub const REDIS_PY: Subject = Subject {
    id: "redis-py",
    name: "redis-py, asyncio",
    language: Language::Python,
    waits: true,
    renews: None,
};

pub const REDLOCK: Subject = Subject {
    id: "redlock",
    name: "redlock, node",
    language: Language::Node,
    waits: true,
    renews: None,
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

/// Runs a generic expression for the library of an id, all that guard calls.
macro_rules! with_calls {
    ($id:expr, $L:ident => $run:expr) => {
        match $id {
            "attribute" => {
                type $L = $crate::subject::attribute::Attribute;
                $run
            }
            id => $crate::subject::with_locks!(id, $L => $run),
        }
    };
}

/// The same for all that hand out what they hold.
macro_rules! with_locks {
    ($id:expr, $L:ident => $run:expr) => {
        match $id {
            "raw" => {
                type $L = $crate::subject::raw::Raw;
                $run
            }
            "lockattr" => {
                type $L = $crate::subject::lockattr::ByHand;
                $run
            }
            "rslock" => {
                type $L = $crate::subject::rslock::Rslock;
                $run
            }
            "distributed-lock-redis" => {
                type $L = $crate::subject::distributed_lock_redis::DistributedLockRedis;
                $run
            }
            "dist_lock" => {
                type $L = $crate::subject::dist_lock::DistLock;
                $run
            }
            "async-redis-lock" => {
                type $L = $crate::subject::async_redis_lock::AsyncRedisLock;
                $run
            }
            other => panic!("no library is called {other}"),
        }
    };
}

pub(crate) use {with_calls, with_locks};
