//! Processes on three servers under random faults, which want one key in every way: no two bodies at a time that may
//! not be beside each other.

use std::thread;
use std::time::{Duration, Instant};

use tests::checker::{KILL, Rules, SHARED, check};
use tests::proxy::{Proxy, Treatment, Way};
use tests::record::{Event, Record};
use tests::seed::Random;
use tests::wait;
use tests::worker::{self, Worker};
use tests::zookeeper::{Ensemble, url};

use crate::support::{millis, seconds};

const TTL: Duration = Duration::from_secs(2);
const WORKERS: usize = 5;
/// `LOCKATTR_LENGTH` is another number of seconds.
const LENGTH: u64 = 22;

/// How the workers want the one key: alone, as readers, and some of three permits.
const WISHES: [(&str, &str); WORKERS] = [
    ("1", "1"),
    ("1", SHARED),
    ("1", SHARED),
    ("3", "1"),
    ("3", "2"),
];

/// A worker on proxies of its own before the three servers.
fn worker(number: usize, proxies: &[Proxy], record: &Record) -> Worker {
    let at = url(proxies.iter().map(Proxy::address));
    let (permits, wish) = WISHES[number];
    let words = ["chaos", permits, "2000", "60", "2", wish, "ttl=2000"];
    let mut worker = Worker::start("turns", &at, record, &words);
    worker.says("ready");
    worker.tell("go");
    worker
}

#[test]
fn random_faults_break_no_rule() {
    let mut random = Random::announced("zookeeper");
    let record = Record::new();
    let pen = record.pen();
    let servers = Ensemble::three();
    let proxies: Vec<Vec<_>> = (0..WORKERS)
        .map(|_| {
            (0..3)
                .map(|server| Proxy::before(servers.address(server)))
                .collect()
        })
        .collect();
    let mut workers: Vec<_> = (0..WORKERS)
        .map(|number| worker(number, &proxies[number], &record))
        .collect();
    let begun = Instant::now();
    let mut faults = Vec::new();
    let length = std::env::var("LOCKATTR_LENGTH").map_or(Ok(LENGTH), |length| length.parse());
    let length = seconds(length.expect("a number"));
    while begun.elapsed() < length {
        let brief = random.millis(50, 900);
        let long = random.millis(300, 2_600);
        let some = usize::try_from(random.below(3)).unwrap();
        let whose = usize::try_from(random.below(5)).unwrap();
        let fault = random.below(8);
        pen.write(
            0,
            Event::Fault,
            "-",
            &format!("fault {fault} at {some}, {whose}"),
        );
        match fault {
            0 => {
                workers[whose].freeze();
                thread::sleep(long);
                workers[whose].thaw();
            }
            1 => {
                workers[whose].kill();
                pen.write(0, Event::Fault, &workers[whose].id().to_string(), KILL);
                workers[whose] = worker(whose, &proxies[whose], &record);
            }
            2 => {
                servers.freeze(some);
                thread::sleep(long);
                servers.thaw(some);
            }
            3 => {
                let leader = servers.leader().unwrap_or(some);
                servers.freeze(leader);
                thread::sleep(long);
                servers.thaw(leader);
            }
            4 => {
                servers.kill(some);
                thread::sleep(brief);
                servers.restart(some);
            }
            5 => proxies[whose].iter().for_each(Proxy::cut),
            6 => {
                // Half of the time the replies alone, so that what was asked is done.
                for proxy in &proxies[whose] {
                    proxy.treat(Way::Replies, Treatment::Swallow);
                    if brief > millis(450) {
                        proxy.treat(Way::Requests, Treatment::Swallow);
                    }
                }
                thread::sleep(long);
                for proxy in &proxies[whose] {
                    proxy.heal();
                    proxy.cut();
                }
            }
            _ => {
                for proxy in &proxies[whose] {
                    proxy.treat(Way::Replies, Treatment::Delay(brief));
                }
                thread::sleep(long);
                proxies[whose].iter().for_each(Proxy::heal);
            }
        }
        faults.push(fault);
        servers.wait_until_served(&[0, 1, 2]);
        thread::sleep(random.millis(50, 1_500));
    }
    // All is mended: everybody gets turns again.
    let before = record.count(Event::Enter);
    wait::block_until("turns after the faults", || {
        record.count(Event::Enter) > before + 30
    });
    worker::stop_all(&mut workers);
    let rules = Rules {
        ttl: TTL,
        longest_call: seconds(60) + seconds(6),
    };
    let findings = check(&record.entries(), rules);
    println!(
        "faults {faults:?}, {} bodies, {:?}",
        findings.bodies, findings.outcomes
    );
    findings.assert_clean();
    assert!(findings.bodies > 60, "{}", findings.bodies);
    assert!(findings.windows.overlaps.is_empty());
}
