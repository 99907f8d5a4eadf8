//! Events of one key, of which those that come while one is seen to are seen to by one more run.

use std::sync::mpsc::{Receiver, TryRecvError};
use std::time::Duration;

use lockattr::{Error, distributed_lock};
use tokio::time::sleep;

use super::{Call, begin, outcome, say};
use crate::record::Event;

/// What all calls lock.
const KEY: &str = "events";

/// Fires as many events at once as each line of the orders says, until one says `end`; then waits for all
/// calls. A body takes `length`.
pub(super) async fn play(ttl: Duration, length: Duration, orders: &Receiver<String>) {
    say("ready", &"");
    let mut calls = Vec::new();
    loop {
        match orders.try_recv().as_deref() {
            Ok("end") => break,
            Ok(count) => {
                let count: u64 = count.parse().expect("a number");
                let fired = (0..count).map(|_| tokio::spawn(fire(ttl, length)));
                calls.extend(fired.collect::<Vec<_>>());
            }
            Err(TryRecvError::Empty) => sleep(Duration::from_millis(1)).await,
            Err(TryRecvError::Disconnected) => return,
        }
    }
    for call in calls {
        call.await.expect("no panic");
    }
    say("finished", &"");
}

async fn fire(ttl: Duration, length: Duration) {
    let call = begin(KEY);
    match see_to(ttl, length, call).await {
        Ok(None) => call.end("busy"),
        Ok(Some(())) => call.end("done"),
        Err(error) => call.end(outcome(&Err(error))),
    }
}

#[distributed_lock(key = "events", ttl = ttl, on_busy = rerun)]
async fn see_to(ttl: Duration, length: Duration, call: Call) -> Result<Option<()>, Error> {
    call.tell(Event::Enter, KEY);
    sleep(length).await;
    call.tell(Event::Leave, KEY);
    Ok(Some(()))
}
