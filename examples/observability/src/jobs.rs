//! What four replicas of a service do, each with a client of its own: ticks, work for users, a limited
//! resource, a job that is too long for its ttl; and an operator who ends a lock that is in use.

use std::time::Duration;

use lockattr::store::inspect::EntryKind;
use lockattr::{Client, Error, distributed_lock};
use tokio::task::JoinSet;
use tokio::time::{interval, sleep};

/// One of the four runs it, a tick.
#[distributed_lock(key = "tick", ttl = "5s", on_busy = skip, min_hold = "200ms")]
async fn tick() {
    sleep(Duration::from_millis(40)).await;
}

#[distributed_lock(key = "sync:<user>", ttl = "10s", wait = "2s")]
async fn sync_user(user: u64) -> Result<(), Error> {
    sleep(Duration::from_millis(20 + user % 80)).await;
    Ok(())
}

/// Three calls at a time, for all replicas together.
#[distributed_lock(key = "geocoder", permits = 3, wait = "500ms")]
async fn geocode() -> Result<(), Error> {
    sleep(Duration::from_millis(120)).await;
    Ok(())
}

/// Takes nearly all of the ttl that it was given, and is not renewed: an alert and a warning tell.
#[distributed_lock(key = "report", ttl = "1s", renew = false, on_busy = skip)]
async fn report() {
    sleep(Duration::from_millis(850)).await;
}

#[distributed_lock(key = "import:<file>", ttl = "1s", on_busy = skip)]
async fn import(file: u64) {
    sleep(Duration::from_millis(1500)).await;
}

/// Once an hour, whoever asks.
#[distributed_lock(key = "digest:<hour>", on_busy = skip, once = "1h")]
async fn digest(hour: u64) {
    sleep(Duration::from_millis(10)).await;
}

/// Its server is away.
#[distributed_lock(key = "archive", client = away, on_busy = skip)]
async fn archive(away: &Client) -> Result<(), Error> {
    Ok(())
}

/// The replicas; dropped, they stop.
pub(crate) struct Replicas {
    _tasks: JoinSet<()>,
}

impl Replicas {
    pub(crate) fn start(clients: &[Client]) -> Self {
        let mut tasks = JoinSet::new();
        for (number, client) in (0..).zip(clients) {
            for task in 0..6 {
                let client = client.clone();
                tasks.spawn(async move { client.scope(replica(number, task)).await });
            }
        }
        if let Some(client) = clients.first() {
            tasks.spawn(operator(client.clone()));
        }
        Self { _tasks: tasks }
    }
}

/// One of the tasks of a replica. That a key is busy is nothing to stop for, and what else is wrong is
/// counted.
async fn replica(number: u64, task: u64) {
    let away = Client::builder().connect_lazily("redis://127.0.0.1:1/");
    let mut turns = interval(Duration::from_millis(250));
    for turn in 0_u64.. {
        turns.tick().await;
        match task {
            0 => tick().await,
            1 => drop(sync_user((turn + number) % 5).await),
            2 => drop(geocode().await),
            3 => report().await,
            4 => import(turn / 8).await,
            _ => {
                digest(turn / 14_400).await;
                if let (Ok(away), 0) = (&away, number) {
                    drop(archive(away).await);
                }
            }
        }
    }
}

/// Ends the lock of an import every few seconds, which its holder then loses.
async fn operator(client: Client) {
    loop {
        sleep(Duration::from_secs(3)).await;
        if let Err(error) = end_an_import(&client).await {
            eprintln!("{error}");
        }
    }
}

async fn end_an_import(client: &Client) -> Result<(), Error> {
    let inspector = client.inspect()?;
    let mut listing = inspector.list("import:*");
    while let Some(page) = listing.next().await? {
        for lock in page.locks {
            for entry in &lock.entries {
                if matches!(entry.kind, EntryKind::Held { .. }) {
                    inspector.end(&lock.lock, entry).await?;
                }
            }
        }
    }
    Ok(())
}
