//! `dist_lock`: a connection for each command, and a `DEL` of whatever is there as the release.

use std::time::Duration;

use dist_lock::core::{DistLock as Lock, LockConfig};
use dist_lock::error::LockResult;
use dist_lock::provider::RedisDriver;
use redis_023::Client;

use bench_roles::{Calls, Locks, Words, poll, ready, run, tell};

#[derive(Clone)]
pub struct DistLock {
    /// Its locks borrow the client.
    client: &'static Client,
    ttl: i64,
}

/// Whether a function with the attribute runs while something else is under its key.
pub(crate) fn play_attribute(words: &Words) {
    run(async {
        let client = client(words.url());
        ready();
        let mut connection = client.get_async_connection().await.expect("a server");
        let mut set = redis_023::cmd("SET");
        set.arg("dist_lock:held")
            .arg("another")
            .arg("PX")
            .arg(60_000);
        let answer: String = set.query_async(&mut connection).await.expect("a reply");
        assert_eq!(answer, "OK");
        let mut ran = false;
        guarded(client, &mut ran).await.expect("a reply");
        tell("ran", f64::from(ran));
    });
}

// The name of the lock is that of a variable in the function.
#[dist_lock::dist_lock(name = "held", at_most = "10s", transport(client))]
async fn guarded(client: &'static Client, ran: &mut bool) -> LockResult<()> {
    *ran = true;
    Ok(())
}

fn client(url: &str) -> &'static Client {
    Box::leak(Box::new(Client::open(url).expect("a URL")))
}

impl Calls for DistLock {
    async fn connect(url: &str, ttl: Duration) -> Self {
        Self {
            client: client(url),
            ttl: ttl.as_millis() as i64,
        }
    }

    async fn pair(&self, key: &str) {
        let held = self.attempt(key).await.expect("a free key");
        self.release(held).await;
    }
}

impl Locks for DistLock {
    type Held = Lock<RedisDriver<'static, Client>>;
    type Kept = ();

    async fn attempt(&self, key: &str) -> Option<Self::Held> {
        let name = key.to_owned();
        let driver = RedisDriver::new(&name, self.client);
        let lock = Lock::new(LockConfig::from_mills(name, 0, self.ttl), driver);
        lock.acquire().await.expect("a reply").then_some(lock)
    }

    async fn wait(&self, key: &str) -> Self::Held {
        poll(self, key).await
    }

    async fn release(&self, held: Self::Held) {
        held.release().await.expect("a reply");
    }

    async fn keep(&self, _key: &str) {
        unreachable!("it does not renew")
    }
}
