//! Those who hold a lock beside one another: readers, and holders of several permits.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, LossCause};
use tests::checker::{self, KILL, SHARED};
use tests::postgres::Postgres;
use tests::record::{Entry, Event, Record};
use tests::statuses::status;
use tests::wait;
use tests::worker::{self, Worker};
use tokio::task::JoinHandle;
use tokio_postgres::NoTls;

use crate::support::{SLACK, client, nap, pair};

const PATIENT: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

/// The longest between two looks of whoever waits.
const LOOK: Duration = Duration::from_secs(1);

/// How a lock is wanted.
#[derive(Clone, Copy)]
enum As {
    Writer,
    Reader,
    Weight(u32),
}

use As::{Reader, Weight, Writer};

fn request(locks: &Client, how: As) -> lockattr::LockRequest {
    let request = locks.lock("k");
    match how {
        Writer => request,
        Reader => request.shared(),
        Weight(weight) => request.permits(10).weight(weight),
    }
}

async fn take(locks: &Client, how: As) -> Lease {
    request(locks, how).acquire().await.unwrap()
}

async fn is_busy(locks: &Client, how: As) {
    let refused = request(locks, how).acquire().await.expect_err("it is busy");
    assert!(matches!(refused, Error::Busy { .. }), "{refused:?}");
}

/// A call that stands in the server's queue when this returns.
async fn waits(server: &Postgres, how: As) -> JoinHandle<Lease> {
    let (before, locks) = (server.waiters(), client(server).await);
    let call = tokio::spawn(async move {
        let request = request(&locks, how).wait(PATIENT);
        request.acquire().await.unwrap()
    });
    wait::until("it is queued", || server.waiters() > before).await;
    call
}

async fn nothing_left(server: &Postgres) {
    let nothing = || server.locks().is_empty() && server.waiters() == 0;
    wait::within("nothing is left", SLACK, nothing).await;
}

#[tokio::test]
async fn readers_are_together_and_a_writer_is_alone() {
    let (server, locks) = pair().await;
    let others = client(&server).await;
    let [first, second] = [take(&locks, Reader).await, take(&others, Reader).await];
    assert_eq!((first.slot(), second.slot()), (0, 0));
    is_busy(&others, Writer).await;
    is_busy(&others, Weight(1)).await;
    let token = first.token().await.unwrap();
    assert!(second.token().await.unwrap() > token);
    drop((first, second));
    nothing_left(&server).await;
    let writer = take(&others, Writer).await;
    assert!(writer.token().await.unwrap() > token + 1);
    is_busy(&locks, Reader).await;
    writer.release().await.unwrap();
    assert_eq!(server.ask("SELECT count(*) FROM lockattr.holders"), "0");
}

#[tokio::test]
async fn readers_and_writers_are_served_in_the_order_of_their_arrival() {
    let (server, locks) = pair().await;
    let first = take(&locks, Reader).await;
    let writer = waits(&server, Writer).await;
    let readers = [waits(&server, Reader).await, waits(&server, Reader).await];
    let last = waits(&server, Writer).await;
    // Whoever does not wait passes nobody.
    is_busy(&client(&server).await, Reader).await;
    is_busy(&locks, Reader).await;
    let released = Instant::now();
    first.release().await.unwrap();
    let writer = writer.await.unwrap();
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    writer.release().await.unwrap();
    let mut together = Vec::new();
    for reader in readers {
        together.push(reader.await.unwrap());
    }
    assert_eq!(server.holders("lock:k").len(), 2);
    assert!(!last.is_finished());
    for reader in together {
        reader.release().await.unwrap();
    }
    last.await.unwrap().release().await.unwrap();
    assert!(released.elapsed() < LOOK, "{:?}", released.elapsed());
    nothing_left(&server).await;
}

#[tokio::test]
async fn the_heavy_are_not_passed_and_slots_are_the_lowest() {
    let (server, locks) = pair().await;
    let [one, two] = [take(&locks, Weight(5)).await, take(&locks, Weight(4)).await];
    let heavy = waits(&server, Weight(8)).await;
    let light = waits(&server, Weight(1)).await;
    let also_light = waits(&server, Weight(2)).await;
    is_busy(&client(&server).await, Weight(1)).await;
    one.release().await.unwrap();
    nap(100).await;
    assert!(!heavy.is_finished() && !light.is_finished());
    let released = Instant::now();
    two.release().await.unwrap();
    let (heavy, light) = (heavy.await.unwrap(), light.await.unwrap());
    assert!(released.elapsed() < LOOK / 2, "{:?}", released.elapsed());
    assert_eq!((heavy.slot(), light.slot()), (0, 1));
    assert!(!also_light.is_finished());
    heavy.release().await.unwrap();
    let also_light = also_light.await.unwrap();
    assert_eq!(also_light.slot(), 0);
    // Of each what it takes is told.
    let told = status(&locks, "k").await;
    let lockattr::Status::Held {
        holders, permits, ..
    } = told
    else {
        panic!("{told:?}")
    };
    let weights: Vec<_> = holders
        .iter()
        .map(|holder| (holder.slot, holder.weight))
        .collect();
    assert_eq!((weights, permits), (vec![(0, 2), (1, 1)], 10));
    drop((light, also_light));
    nothing_left(&server).await;
}

/// Two releases of an application, of which one counts more.
#[tokio::test]
async fn who_counts_another_number_goes_by_its_own() {
    let (server, locks) = pair().await;
    let of = async |permits| locks.lock("k").permits(permits).acquire().await;
    let mut held = Vec::new();
    for _ in 0..5 {
        held.push(of(5).await.unwrap());
    }
    assert!(matches!(of(5).await, Err(Error::Busy { .. })));
    for slot in 5..8 {
        let lease = of(8).await.unwrap();
        assert_eq!(lease.slot(), slot);
        held.push(lease);
    }
    assert!(matches!(of(8).await, Err(Error::Busy { .. })));
    drop(held.drain(..4));
    wait::until("four are free", || server.holders("lock:k").len() == 4).await;
    let lease = of(5).await.unwrap();
    assert_eq!(lease.slot(), 0);
    assert!(matches!(of(5).await, Err(Error::Busy { .. })));
    // As many as there are cost what a few cost.
    let million = locks.lock("k").permits(1_000_000).weight(999_995);
    held.push(million.acquire().await.unwrap());
    drop((lease, held));
    nothing_left(&server).await;
}

/// A reader costs its own ttl when it dies, and a writer that dies in the queue keeps back nobody.
#[tokio::test]
async fn a_reader_that_dies_costs_its_ttl_and_a_writer_that_waits_next_to_nothing() {
    let (server, locks) = pair().await;
    let record = Record::new();
    let start = |length: &str, shared: bool| {
        let mut words = vec!["k", "1", "3000", length, "1"];
        words.extend(shared.then_some(SHARED));
        let mut worker = Worker::start("turns", &server.url(), &record, &words);
        worker.says("ready");
        worker.tell("go");
        worker
    };
    let mut dies = start("60000", true);
    let lock = "lock:turns:k";
    wait::until("it reads", || server.holders(lock).len() == 1).await;
    let neighbour = locks.lock("turns:k").shared().ttl(20 * SECOND);
    let neighbour = neighbour.acquire().await.unwrap();
    let mut in_the_queue = start("10", false);
    wait::until("it is queued", || server.waiters() == 1).await;
    in_the_queue.kill();
    let begun = Instant::now();
    let beside = locks.lock("turns:k").shared().wait(PATIENT);
    let beside = beside.acquire().await.unwrap();
    assert!(
        begun.elapsed() < 2 * SECOND + LOOK + SLACK,
        "{:?}",
        begun.elapsed()
    );
    drop(beside);

    dies.kill();
    let killed = Instant::now();
    let call = tokio::spawn(locks.lock("turns:k").wait(PATIENT).acquire());
    wait::until("it is queued", || server.waiters() == 1).await;
    neighbour.release().await.unwrap();
    let writer = call.await.unwrap().unwrap();
    let took = killed.elapsed();
    assert!(took < 3 * SECOND + LOOK + SLACK, "{took:?}");
    writer.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_minimum_hold_keeps_the_weight_and_the_slot() {
    let (server, locks) = pair().await;
    let first = take(&locks, Weight(1)).await;
    let closes = request(&locks, Weight(7)).min_hold(2 * SECOND);
    let closes = closes.acquire().await.unwrap();
    assert_eq!(closes.slot(), 1);
    let begun = Instant::now();
    closes.release().await.unwrap();
    first.release().await.unwrap();
    let beside = take(&locks, Weight(3)).await;
    assert_eq!(beside.slot(), 0);
    is_busy(&locks, Weight(1)).await;
    let next = request(&client(&server).await, Weight(7)).wait(PATIENT);
    let next = next.acquire().await.unwrap();
    let took = begun.elapsed();
    assert!(
        took > SECOND && took < 2 * SECOND + LOOK + SLACK,
        "{took:?}"
    );
    assert_eq!(next.slot(), 1);
    drop((beside, next));

    // One that readers have left closed is closed to writers alone.
    let begun = Instant::now();
    for _ in 0..2 {
        let closes = locks.lock("doc").shared().min_hold(SECOND);
        closes.acquire().await.unwrap().release().await.unwrap();
    }
    let busy = locks.lock("doc").acquire().await;
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    drop(locks.lock("doc").shared().acquire().await.unwrap());
    let writer = locks.lock("doc").wait(PATIENT).acquire().await.unwrap();
    let took = begun.elapsed();
    assert!(
        took > SECOND / 2 && took < SECOND + LOOK + SLACK,
        "{took:?}"
    );
    drop(writer);
    nothing_left(&server).await;
}

/// Whoever is not renewed has lost its part, however its neighbours renew theirs; and all have where somebody has taken
/// the lock from under them.
#[tokio::test]
async fn a_part_that_is_lost_is_told_and_its_neighbours_stay() {
    let (server, locks) = pair().await;
    let asleep = request(&locks, Reader).ttl(SECOND / 2).renew(false);
    let asleep = asleep.acquire().await.unwrap();
    let awake = request(&locks, Reader).ttl(SECOND).acquire().await.unwrap();
    nap(700).await;
    let end = asleep.token().await.unwrap_err();
    assert!(matches!(end, Error::Lost { .. }), "{end:?}");
    let end = asleep.release().await.unwrap_err();
    assert!(matches!(end, Error::Lost { .. }), "{end:?}");
    nap(700).await;
    assert_eq!(server.holders("lock:k"), [awake.owner()]);
    is_busy(&locks, Writer).await;

    let deleted = locks.lock("gone").shared().ttl(SECOND).acquire().await;
    let deleted = deleted.unwrap();
    server.rows("DELETE FROM lockattr.locks WHERE name = 'lock:gone'");
    let writer = locks.lock("gone").acquire().await.unwrap();
    wait::within("its renewal finds it out", SECOND + SLACK, || {
        deleted.remaining().is_zero()
    })
    .await;
    let end = deleted.release().await.unwrap_err();
    let is_taken = matches!(&end, Error::Lost { cause, .. } if *cause == LossCause::Taken);
    assert!(is_taken, "{end:?}");
    drop((awake, writer));
    nothing_left(&server).await;
}

/// Readers and writers, and calls of every weight, from processes of which some are killed and some stand still for
/// longer than their ttl: nobody has too much, and nobody starves.
#[test]
fn processes_hold_no_more_than_there_is_and_none_starves() {
    const TTL: Duration = SECOND;
    let server = Postgres::start();
    let record = Record::new();
    let pen = record.pen();
    // A key, its permits, the tasks, and how each wants it.
    let kinds = [
        ("doc", "1", "4", Some(SHARED)),
        ("doc", "1", "4", Some(SHARED)),
        ("doc", "1", "2", None),
        ("units", "10", "4", Some("1")),
        ("units", "10", "3", Some("7")),
        ("units", "10", "2", Some("10")),
    ];
    let start = |place: usize| {
        let (key, permits, tasks, how) = kinds[place];
        let mut words = vec![key, permits, "1000", "20", tasks];
        words.extend(how);
        let mut worker = Worker::start("turns", &server.url(), &record, &words);
        worker.says("ready");
        worker.tell("go");
        worker
    };
    let mut workers: Vec<_> = (0..kinds.len()).map(start).collect();
    for place in [0, 4, 2] {
        std::thread::sleep(SECOND / 2);
        workers[place].kill();
        pen.write(0, Event::Fault, &workers[place].id().to_string(), KILL);
        workers[place] = start(place);
        workers[place + 1].freeze();
        std::thread::sleep(TTL + TTL / 4);
        workers[place + 1].thaw();
    }
    std::thread::sleep(2 * SECOND);
    worker::stop_all(&mut workers);
    let rules = checker::Rules {
        ttl: TTL,
        longest_call: Duration::from_secs(20),
    };
    let entries = record.entries();
    checker::check(&entries, rules).assert_clean();
    let beside = |how: &str| {
        let is_it = |entry: &&Entry| entry.event == Event::Beside && entry.note == how;
        entries.iter().filter(is_it).count()
    };
    let of_doc = |entry: &&Entry| entry.event == Event::Enter && entry.key.ends_with("doc");
    let (all, reads) = (entries.iter().filter(of_doc).count(), beside(SHARED));
    let units = ["1/10", "7/10", "10/10"].map(beside);
    let counts = [reads, all - reads, units[0], units[1], units[2]];
    println!("{counts:?}");
    assert!(counts.iter().all(|count| *count >= 5), "{counts:?}");
    let over = || server.locks().is_empty();
    wait::block_until("the last ttl is over", over);
    assert_eq!(server.logged_errors(), [""; 0]);
}

/// Each form costs as many messages as a lock that is held alone, whatever the number of permits and of holders.
#[tokio::test]
async fn every_form_costs_two_messages_and_a_handover_three() {
    let server = Postgres::with(&["log_statement=all"]);
    let (locks, others) = (client(&server).await, client(&server).await);
    let beside = [
        take(&others, Weight(1)).await,
        take(&others, Weight(1)).await,
    ];
    for permits in [10, 1_000_000] {
        let begun = server.statements("");
        let lease = locks.lock("k").permits(permits).weight(3).acquire().await;
        lease.unwrap().release().await.unwrap();
        assert_eq!(server.statements("") - begun, 2);
    }
    drop(beside);
    nothing_left(&server).await;
    let reader = take(&others, Reader).await;
    let begun = server.statements("");
    take(&locks, Reader).await.release().await.unwrap();
    is_busy(&locks, Writer).await;
    assert_eq!(server.statements("") - begun, 3);

    // Of those who wait each is granted it, and told: they ask no more.
    let waiters = [waits(&server, Writer).await, waits(&server, Reader).await];
    nap(300).await;
    let begun = server.statements("");
    reader.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap().release().await.unwrap();
    }
    let pings = server.statements("SET LOCAL statement_timeout=1000;\n");
    let messages = server.statements("") - begun - pings;
    // Three releases, two of which tell somebody.
    assert!((5..=7).contains(&messages), "{messages}\n{}", server.log());
}

/// A fenced transaction keeps what its lease has of the lock, and no more, until it ends.
#[tokio::test]
async fn a_fenced_transaction_of_one_of_several_keeps_its_part() {
    let (server, locks) = pair().await;
    let (mut db, connection) = tokio_postgres::connect(&server.url(), NoTls).await.unwrap();
    tokio::spawn(connection);
    let short = request(&locks, Weight(6)).ttl(SECOND / 2).renew(false);
    let lease = short.acquire().await.unwrap();
    let token = i64::try_from(lease.token().await.unwrap()).unwrap();
    let fence = "SELECT lockattr.fence('lock:k', $1)";
    for wrong in [0, token + 1] {
        let error = db.execute(fence, &[&wrong]).await.unwrap_err();
        assert_eq!(error.code().unwrap().code(), "LK001");
    }
    let transaction = db.transaction().await.unwrap();
    transaction.execute(fence, &[&token]).await.unwrap();
    nap(700).await;
    // It is over, and goes on.
    is_busy(&locks, Weight(5)).await;
    is_busy(&locks, Writer).await;
    let beside = take(&locks, Weight(4)).await;
    assert_eq!(beside.slot(), 1);
    transaction.commit().await.unwrap();
    let next = request(&locks, Weight(5)).wait(PATIENT);
    drop((next.acquire().await.unwrap(), beside));
    let error = db.execute(fence, &[&token]).await.unwrap_err();
    assert_eq!(error.code().unwrap().code(), "LK001");
    nothing_left(&server).await;
}

/// What readers and holders of permits leave when the server crashes, when its clock is set, and when all of them die.
#[tokio::test]
async fn crashes_and_clocks_leave_it_as_it_was_or_free_it() {
    let (server, locks) = pair().await;
    let reader = take(&locks, Reader).await;
    server.kill();
    server.restart();
    wait::until("it is there", || server.holders("lock:k").len() == 1).await;
    let others = client(&server).await;
    is_busy(&others, Writer).await;
    // The clock is set back by an hour: it is held for its ttl, and renewed.
    server.set_clock("-1 hour");
    is_busy(&others, Writer).await;
    take(&others, Reader).await.release().await.unwrap();
    reader.release().await.unwrap();
    nothing_left(&server).await;

    let dies = request(&locks, Reader).ttl(SECOND / 2).renew(false);
    let dies = dies.acquire().await.unwrap();
    nap(700).await;
    server.rows("SELECT lockattr.sweep()");
    assert_eq!(server.ask("SELECT count(*) FROM lockattr.locks"), "1");
    let later = "UPDATE lockattr.holders SET until = until - interval '2 minutes'";
    server.rows(later);
    server.rows("SELECT lockattr.sweep()");
    assert_eq!(server.ask("SELECT count(*) FROM lockattr.locks"), "0");
    assert_eq!(server.ask("SELECT count(*) FROM lockattr.holders"), "0");
    drop(dies);
}
