//! What child processes of the benchmark do, for any library that the adapters of this shape make
//! fit.
//!
//! Apart from the program, and from the adapters of other libraries, so that a change of what is
//! measured does not compile all of them anew.

use std::future::{Future, pending};
use std::time::Duration;

mod clock;
mod role;

pub use clock::now;
pub use role::{WORKERS, Words, play_calls, play_locks, play_ping, ready, run, tell};

/// The servers of a URL, each by one of its own: one, or the nodes of a quorum.
pub fn nodes(url: &str) -> Vec<String> {
    match url.strip_prefix("redis+quorum://") {
        Some(hosts) => hosts
            .split(',')
            .map(|host| format!("redis://{host}/"))
            .collect(),
        None => vec![url.to_owned()],
    }
}

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

    /// What keeps a lease alive until it is dropped.
    type Kept: Send + 'static;

    /// One try; nothing where another holds the key.
    fn attempt(&self, key: &str) -> impl Future<Output = Option<Self::Held>> + Send;

    /// Waits for the key in the library's own way.
    fn wait(&self, key: &str) -> impl Future<Output = Self::Held> + Send;

    fn release(&self, held: Self::Held) -> impl Future<Output = ()> + Send;

    /// Holds the key and renews it until what is returned is dropped.
    fn keep(&self, key: &str) -> impl Future<Output = Self::Kept> + Send;
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
