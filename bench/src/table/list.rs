//! A list of many locks among more keys, and what others notice of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockattr::Client;

use super::{Effort, cell};
use crate::arena::Arena;
use crate::number::{quantile, time};
use crate::report::{Section, Table};

/// Above so many microseconds the server writes a command down.
const WRITTEN_DOWN: u64 = 50;

pub(super) fn measure(effort: Effort) -> Section {
    let (keys, locks) = effort.pick((2_000_000, 100_000), (200_000, 10_000));
    let mut section = Section::new(
        "A list of all locks",
        "the server on core 0, all clients on core 1",
        &format!(
            "{locks} locks are held among {keys} keys, all of which are gone through: names by SCAN, and then what \
             each lock is. Another client asks for the server's time every millisecond meanwhile, and as long \
             without a list. Commands are those that took the server more than {WRITTEN_DOWN} µs by its own \
             word (SLOWLOG), in which it answered nobody else; that is time by the clock, which other programs on \
             the core lengthen."
        ),
    );
    let arena = Arena::on("0");
    fill(&arena, keys - locks, "session:");
    fill(&arena, locks, "lock:user:");
    arena.server.ask::<()>(&format!(
        "CONFIG SET slowlog-log-slower-than {WRITTEN_DOWN}"
    ));
    arena.server.ask::<()>("CONFIG SET slowlog-max-len 100000");
    let mut table = Table::new(
        "",
        &[
            "",
            "locks",
            "it took",
            "others, median",
            "99 %",
            "longest",
            "commands, median",
            "99 %",
            "longest",
        ],
    );
    let mut longest = None;
    for (what, lists) in [
        ("without a list", false),
        ("while all locks are listed", true),
    ] {
        arena.server.ask::<()>("SLOWLOG RESET");
        let (noticed, listed, taken) = beside(&arena, || {
            if lists {
                list(&arena.url())
            } else {
                thread::sleep(Duration::from_secs(5));
                0
            }
        });
        let commands = slow_commands(&arena);
        longest = quantile(&commands, 1.0);
        let share = |of: &[f64], share| cell(quantile(of, share), time);
        table.row(vec![
            what.to_owned(),
            listed.to_string(),
            time(taken),
            share(&noticed, 0.5),
            share(&noticed, 0.99),
            share(&noticed, 1.0),
            share(&commands, 0.5),
            share(&commands, 0.99),
            share(&commands, 1.0),
        ]);
    }
    section.tables.push(table);
    let aim = "the server answers others again after a few milliseconds at most, 5";
    section.aim(
        aim,
        longest.map(|longest| (time(longest), longest <= 0.005)),
    );
    section
}

/// What another client notices while something is done, the answer, and how long that took.
fn beside<T: Send>(arena: &Arena, work: impl FnOnce() -> T + Send) -> (Vec<f64>, T, f64) {
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let client = redis::Client::open(arena.url()).expect("a URL");
            let mut connection = client.get_connection().expect("a server");
            let mut taken = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                redis::cmd("TIME").exec(&mut connection).expect("an answer");
                taken.push(begun.elapsed().as_secs_f64());
                thread::sleep(Duration::from_millis(1));
            }
            taken
        });
        let begun = Instant::now();
        let done = work();
        let taken = begun.elapsed().as_secs_f64();
        over.store(true, Ordering::Relaxed);
        (asking.join().expect("no panic"), done, taken)
    })
}

/// How many locks are listed.
fn list(url: &str) -> usize {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let client = Client::connect(url).await.expect("a client");
        let inspector = client.inspect().expect("a server that can be looked into");
        let mut listing = inspector.list("");
        let mut count = 0;
        while let Some(page) = listing.next().await.expect("a page") {
            count += page.locks.len();
        }
        count
    })
}

/// How long each command took the server that it wrote down, in seconds.
fn slow_commands(arena: &Arena) -> Vec<f64> {
    let entries: Vec<Vec<redis::Value>> = arena.server.ask("SLOWLOG GET 100000");
    let taken = entries.iter().filter_map(|entry| match entry.get(2..4)? {
        [redis::Value::Int(micros), redis::Value::Array(words)] => {
            let is_slowlog = words.first() == Some(&redis::Value::BulkString(b"SLOWLOG".to_vec()));
            (!is_slowlog).then_some(*micros as f64 / 1e6)
        }
        _ => None,
    });
    taken.collect()
}

fn fill(arena: &Arena, count: usize, begin: &str) {
    let script =
        "for i = ARGV[1], ARGV[2] do redis.call('SET', ARGV[3] .. i, ARGV[4], 'PX', 6000000) end";
    let owner = "019ad5b1f9c07c3f9d0a1b2c3d4e5f60@host:7";
    for first in (1..=count).step_by(100_000) {
        let last = (first + 99_999).min(count);
        let words = [
            "EVAL",
            script,
            "0",
            &first.to_string(),
            &last.to_string(),
            begin,
            owner,
        ];
        arena.server.words::<()>(&words).expect("room");
    }
}
