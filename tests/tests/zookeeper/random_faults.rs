//! Processes on three servers under random faults: no two bodies of a key at a time.

use std::thread;
use std::time::{Duration, Instant};

use tests::checker::{KILL, Rules, check};
use tests::proxy::{Proxy, Treatment, Way};
use tests::record::{Event, Record};
use tests::seed::Random;
use tests::wait;
use tests::worker::{self, Worker};
use tests::zookeeper::{Ensemble, url};

use crate::support::{millis, seconds};

const TTL: Duration = Duration::from_secs(2);
const WORKERS: usize = 3;
const LENGTH: Duration = Duration::from_secs(22);

/// A worker on proxies of its own before the three servers.
fn worker(proxies: &[Proxy], record: &Record) -> Worker {
    let at = url(proxies.iter().map(Proxy::address));
    let words = ["chaos", "1", "2000", "60", "2", "ttl=2000"];
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
    let mut workers: Vec<_> = proxies.iter().map(|own| worker(own, &record)).collect();
    let begun = Instant::now();
    let mut faults = Vec::new();
    while begun.elapsed() < LENGTH {
        let brief = random.millis(50, 900);
        let long = random.millis(300, 2_600);
        let some = usize::try_from(random.below(3)).unwrap();
        let fault = random.below(8);
        pen.write(0, Event::Fault, "-", &format!("fault {fault} at {some}"));
        match fault {
            0 => {
                workers[some].freeze();
                thread::sleep(long);
                workers[some].thaw();
            }
            1 => {
                workers[some].kill();
                pen.write(0, Event::Fault, &workers[some].id().to_string(), KILL);
                workers[some] = worker(&proxies[some], &record);
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
            5 => proxies[some].iter().for_each(Proxy::cut),
            6 => {
                // Half of the time the replies alone, so that what was asked is done.
                for proxy in &proxies[some] {
                    proxy.treat(Way::Replies, Treatment::Swallow);
                    if brief > millis(450) {
                        proxy.treat(Way::Requests, Treatment::Swallow);
                    }
                }
                thread::sleep(long);
                for proxy in &proxies[some] {
                    proxy.heal();
                    proxy.cut();
                }
            }
            _ => {
                for proxy in &proxies[some] {
                    proxy.treat(Way::Replies, Treatment::Delay(brief));
                }
                thread::sleep(long);
                proxies[some].iter().for_each(Proxy::heal);
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
