//! Jobs of apalis in two workers, of which two for one user never run at a time: one that finds its user busy is tried
//! again later, with a growing pause.
//!
//! `cargo run -p with-apalis` uses the server of `REDIS_URL`, or else a private `redis-server` from the PATH, or else locks
//! in memory. The queues are in memory: with those of `apalis-redis` or `apalis-postgres` the job is the same.

use std::time::Duration;

use apalis::layers::retry::HasherRng;
use apalis::layers::retry::backoff::{ExponentialBackoffMaker, MakeBackoff};
use apalis::prelude::{
    BoxDynError, Data, MemoryStorage, RetryPolicy, TaskSink, WorkerBuilder, WorkerBuilderExt,
};
use examples::{Server, stop_signal};
use lockattr::{Client, distributed_lock};
use tokio::sync::watch;
use tokio::time::sleep;

const JOBS: usize = 8;
const GRACE: Duration = Duration::from_secs(3);

#[derive(Clone, Copy)]
struct Sync {
    job: usize,
    user: u64,
}

/// What every job of a worker can ask for.
#[derive(Clone)]
struct State {
    worker: &'static str,
    locks: Client,
    done: watch::Sender<usize>,
}

/// Not `on_busy = skip`, which would be the job's success. With `wait` it would take a place in its worker meanwhile.
#[distributed_lock(key = "sync:<sync.user>", on_busy = error, client = state.locks)]
async fn sync(sync: Sync, state: Data<State>) -> Result<(), lockattr::Error> {
    let Sync { job, user } = sync;
    println!("job {job} begins: user {user} at worker {}", state.worker);
    sleep(Duration::from_millis(60)).await;
    println!("job {job} ends: user {user}");
    state.done.send_modify(|done| *done += 1);
    Ok(())
}

/// After a signal no job is begun, and those that run are ended. One that is between two tries would hold its worker up
/// for ever (apalis 1.0); a queue that keeps its jobs hands it out again.
async fn grace_is_over() {
    if stop_signal().await.is_ok() {
        sleep(GRACE).await;
    }
}

#[tokio::main]
async fn main() -> Result<(), BoxDynError> {
    let server = Server::find().await?;
    println!("{JOBS} jobs for two users in two workers, {server}");
    let (done, all) = watch::channel(0);
    let mut workers = Vec::new();
    for (first, worker) in ["a", "b"].into_iter().enumerate() {
        let mut queue = MemoryStorage::new();
        for job in (first..JOBS).step_by(2) {
            let user = if job < JOBS / 2 { 7 } else { 8 };
            queue.push(Sync { job, user }).await?;
        }
        let (min, max) = (Duration::from_millis(20), Duration::from_millis(200));
        let mut backoff = ExponentialBackoffMaker::new(min, max, 0.5, HasherRng::new())?;
        let locks = server.connect().await?;
        let (done, mut all) = (done.clone(), all.clone());
        let worker = WorkerBuilder::new(worker)
            .backend(queue)
            .retry(RetryPolicy::retries(100).with_backoff(backoff.make_backoff()))
            .data(State {
                worker,
                locks: locks.clone(),
                done,
            })
            .build(sync);
        workers.push(async move {
            tokio::select! {
                ended = worker.run_until(stop_signal()) => ended?,
                _ = all.wait_for(|done| *done == JOBS) => {}
                () = grace_is_over() => {}
            }
            locks.shutdown().await;
            Ok::<_, BoxDynError>(())
        });
    }
    for worker in workers.into_iter().map(tokio::spawn).collect::<Vec<_>>() {
        worker.await??;
    }
    Ok(())
}
