//! `on_unavailable = run` under a paused clock that is ahead of the machine by more than the ttl.
use lockattr::{Client, Error, Memory, distributed_lock};
use std::time::Duration;

#[distributed_lock(key = "beat", ttl = "1s", wait = wait, on_unavailable = run, client = locks)]
async fn beat(locks: &Client, wait: Duration) -> Result<(), Error> {
    Ok(())
}

fn runs(wait: Duration) {
    let (done, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap();
        let answer = runtime.block_on(async {
            let memory = Memory::new();
            let locks = Client::builder().store(memory.clone()).unwrap();
            tokio::time::sleep(Duration::from_secs(10)).await;
            memory.refuse(Some("out of order"));
            beat(&locks, wait).await
        });
        done.send(answer).unwrap();
    });
    let answer = told
        .recv_timeout(Duration::from_secs(5))
        .expect("it spins for ever");
    answer.expect("it runs without a lock");
}

#[test]
fn a_call_that_runs_without_a_lock_does_so_in_paused_time() {
    runs(Duration::ZERO);
}
#[test]
fn a_call_that_waits_and_runs_without_a_lock_does_so_in_paused_time() {
    runs(Duration::from_secs(1));
}
