//! The commands that every lock on one server comes down to, and nothing around them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, Value};

use bench_roles::{Calls, Locks, poll};
use tokio::task::JoinHandle;

const RELEASE: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                       return redis.call('DEL', KEYS[1]) else return 0 end";
const RENEW: &str = "if redis.call('GET', KEYS[1]) == ARGV[1] then \
                     return redis.call('PEXPIRE', KEYS[1], ARGV[2]) else return 0 end";

static OWNERS: AtomicU64 = AtomicU64::new(0);

#[derive(Clone)]
pub struct Raw {
    connection: MultiplexedConnection,
    ttl: u64,
    release: Arc<str>,
    renew: Arc<str>,
}

impl Raw {
    /// Takes a key for its holder, which nobody else has.
    pub async fn take(&self, held: &Held) {
        let answer: Value = query(&held.set(self.ttl), &self.connection).await;
        assert_eq!(answer, Value::Okay, "a free key");
    }

    /// Gives back what it has, if anything.
    pub async fn give_back(&self, held: &Held) {
        query::<i64>(&held.script(&self.release), &self.connection).await;
    }

    async fn renew(&self, held: &Held) {
        let mut command = held.script(&self.renew);
        command.arg(self.ttl);
        query::<i64>(&command, &self.connection).await;
    }
}

pub struct Held {
    key: String,
    owner: String,
}

impl Held {
    pub fn of(key: &str) -> Self {
        let number = OWNERS.fetch_add(1, Ordering::Relaxed);
        Self {
            key: key.to_owned(),
            owner: format!("{}:{number}", std::process::id()),
        }
    }

    fn set(&self, ttl: u64) -> Cmd {
        let mut command = redis::cmd("SET");
        command.arg(&self.key).arg(&self.owner).arg("NX").arg("PX");
        command.arg(ttl);
        command
    }

    fn script(&self, hash: &str) -> Cmd {
        let mut command = redis::cmd("EVALSHA");
        command.arg(hash).arg(1).arg(&self.key).arg(&self.owner);
        command
    }
}

impl Calls for Raw {
    async fn connect(url: &str, ttl: Duration) -> Self {
        let client = redis::Client::open(url).expect("a URL");
        let connection = client.get_multiplexed_async_connection().await;
        let connection = connection.expect("a server");
        let mut hashes = Vec::new();
        for text in [RELEASE, RENEW] {
            let mut load = redis::cmd("SCRIPT");
            load.arg("LOAD").arg(text);
            hashes.push(Arc::from(query::<String>(&load, &connection).await));
        }
        let [release, renew] = hashes.try_into().expect("two scripts");
        Self {
            connection,
            ttl: ttl.as_millis() as u64,
            release,
            renew,
        }
    }

    async fn pair(&self, key: &str) {
        let held = self.attempt(key).await.expect("a free key");
        self.release(held).await;
    }
}

impl Locks for Raw {
    type Held = Held;
    type Kept = JoinHandle<()>;

    async fn attempt(&self, key: &str) -> Option<Held> {
        let held = Held::of(key);
        let answer: Value = query(&held.set(self.ttl), &self.connection).await;
        (answer == Value::Okay).then_some(held)
    }

    async fn wait(&self, key: &str) -> Held {
        poll(self, key).await
    }

    async fn release(&self, held: Held) {
        self.give_back(&held).await;
    }

    /// A task for each lease, as is often written.
    async fn keep(&self, key: &str) -> JoinHandle<()> {
        let held = self.attempt(key).await.expect("a free key");
        let this = self.clone();
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(this.ttl / 3)).await;
                this.renew(&held).await;
            }
        })
    }
}

async fn query<T: redis::FromRedisValue>(command: &Cmd, connection: &MultiplexedConnection) -> T {
    let mut connection = connection.clone();
    command.query_async(&mut connection).await.expect("a reply")
}
