//! What is renewed in one step keeps the server from answering anybody else, and is bounded as what is
//! taken in one step is.

use std::time::Duration;

use crate::support::{nap, pair};

/// The most keys of one call.
const MAX_KEYS: usize = 1_000;

/// A number, a moment, how many microseconds, the command, and from whom.
type Slow = (i64, i64, i64, Vec<String>, String, String);

#[tokio::test]
async fn leases_of_many_keys_are_not_renewed_all_in_one_step() {
    let (server, locks) = pair().await;
    let mut held = Vec::new();
    for lease in 0..30 {
        let keys = (0..MAX_KEYS).map(|key| format!("{lease}:{key}"));
        let request = locks.lock_all(keys).ttl(Duration::from_secs(3));
        held.push(request.acquire().await.unwrap());
    }
    // What took the keys has twice as many names, and may have been slow as well.
    let _: () = server.ask("SLOWLOG RESET");
    let _: () = server.ask("CONFIG SET slowlog-max-len 1000");
    let _: () = server.ask("CONFIG SET slowlog-log-slower-than 1000");
    nap(3_000).await;
    let slow: Vec<Slow> = server.ask("SLOWLOG GET 1000");
    let scripts = slow
        .iter()
        .filter(|(.., command, _, _)| command[0] == "EVALSHA");
    let keys = scripts
        .map(|(_, _, micros, command, _, _)| (command[2].parse::<usize>().unwrap(), *micros));
    let (most, micros) = keys
        .max()
        .expect("renewals of a thousand keys take a while");
    assert!(most <= MAX_KEYS, "{most} keys in one step of {micros} µs");
}
