//! Processes that take turns on a key while servers, sessions and processes are hurt at random: one body at a
//! time, and tokens that grow.

use std::time::{Duration, Instant};

use tests::checker::{KILL, Rules, check};
use tests::postgres::Postgres;
use tests::record::{Event, Record};
use tests::seed::Random;
use tests::wait;
use tests::worker::{self, Worker};

const TTL: Duration = Duration::from_secs(1);
const LENGTH: Duration = Duration::from_secs(9);

#[test]
fn random_faults_let_no_two_bodies_run_at_a_time() {
    let server = Postgres::start();
    let record = Record::new();
    let pen = record.pen();
    let mut random = Random::announced("random faults");
    let start = || {
        // A key, one holder, a ttl, the length of a body, and how many tasks.
        let worker = Worker::start(
            "turns",
            &server.url(),
            &record,
            &["a", "1", "1000", "30", "3"],
        );
        worker.says("ready");
        worker
    };
    let mut workers = [start(), start(), start()];
    for worker in &mut workers {
        worker.tell("go");
    }
    let begun = Instant::now();
    let mut kinds = [0; 6];
    while begun.elapsed() < LENGTH {
        let pause = Duration::from_millis(random.below(1300));
        let kind = usize::try_from(random.below(6)).unwrap();
        kinds[kind] += 1;
        let which = usize::try_from(random.below(3)).unwrap();
        match kind {
            0 => {
                pen.write(0, Event::Fault, "-", "server frozen");
                server.freeze();
                std::thread::sleep(pause);
                server.thaw();
            }
            1 => {
                pen.write(0, Event::Fault, "-", "server killed");
                server.kill();
                std::thread::sleep(pause / 2);
                server.restart();
            }
            2 => {
                pen.write(0, Event::Fault, "-", "sessions ended");
                server.end_sessions("random() < 0.7");
            }
            3 => {
                let process = workers[which].id().to_string();
                pen.write(0, Event::Fault, &process, KILL);
                workers[which].kill();
                workers[which] = start();
                workers[which].tell("go");
            }
            _ => {
                pen.write(0, Event::Fault, "-", "worker frozen");
                workers[which].freeze();
                std::thread::sleep(pause);
                workers[which].thaw();
            }
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    worker::stop_all(&mut workers);
    let rules = Rules {
        ttl: TTL,
        longest_call: Duration::from_secs(60 + 20),
    };
    let findings = check(&record.entries(), rules);
    println!("{kinds:?} {findings:?}");
    findings.assert_clean();
    assert!(findings.bodies > 20, "{findings:?}");
    assert_eq!(findings.excused, 0, "{findings:?}");
    let nothing_left = || server.locks().is_empty() && server.waiters() == 0;
    wait::block_until("nothing is left", nothing_left);
}
