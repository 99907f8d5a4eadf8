//! Random histories of wait queues, held against what a wait queue is.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::sync::atomic::AtomicUsize;
use std::thread;

use tokio::sync::oneshot;

use super::waiters::IN_A_ROW;
use super::*;
use crate::error::LossCause;

/// How many holders each of the queues has at a time.
const PERMITS: [u32; 2] = [1, 3];

const HOUR: Duration = Duration::from_secs(3600);

const TTLS: [Duration; 2] = [Duration::from_secs(30), Duration::from_secs(60)];

/// A small generator (`SplitMix64`).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        usize::try_from((mixed ^ (mixed >> 31)) % 0xFFFF_FFFF).unwrap_or(0) % limit.max(1)
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn entrant(&mut self, permits: u32, alike: bool) -> Entrant {
        let now = Instant::now();
        let all = Entrant {
            sharing: match permits {
                1 => Sharing::Alone,
                permits => Sharing::Permits { permits, weight: 1 },
            },
            waits: true,
            takes: (permits == 1).then_some(TTLS[0]),
            now,
            expected: now + HOUR,
        };
        if alike {
            return all;
        }
        Entrant {
            waits: !self.one_in(4),
            takes: all
                .takes
                .filter(|_| !self.one_in(3))
                .map(|_| TTLS[self.below(2)]),
            ..all
        }
    }
}

/// Queues whose waiters may take their time to hear.
fn queues() -> Arc<WaitQueues> {
    Arc::new(WaitQueues {
        hears_within: HOUR,
        ..WaitQueues::new(Clock::Real)
    })
}

fn lease(queue: &Arc<WaitQueues>, key: QueueId, ttl: Duration) -> Arc<Acquisition> {
    let now = Instant::now();
    let queue: Weak<WaitQueues> = Arc::downgrade(queue);
    let tell = move |_: &Acquisition| {
        if let Some(queue) = queue.upgrade() {
            queue.turn(key);
        }
    };
    Acquisition::sample(key, now, ttl, tell)
}

fn elsewhere() -> Busy {
    Busy {
        holder: Some("elsewhere:1".to_owned()),
        since: None,
        until: Instant::now() + TTLS[0],
    }
}

/// What a caller that is dropped does with its place.
fn go(mut place: Place) {
    if let Some(Told::Handed(mut front, lease)) = place.unheard() {
        front.pass_on(&lease);
    }
}

/// One queue as its callers see it.
#[derive(Default)]
struct Seen {
    fronts: Vec<(Front, Option<Arc<Acquisition>>)>,
    /// Those that run, and those that were lost and not given back yet.
    holds: Vec<Arc<Acquisition>>,
    waiting: BTreeMap<u64, (Place, Entrant)>,
    in_a_row: u32,
}

struct World {
    queue: Arc<WaitQueues>,
    random: Random,
    queues: Vec<Seen>,
    /// Whether all callers want the same, so that leases go from one to the next.
    alike: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            queue: queues(),
            random: Random(seed),
            queues: PERMITS.iter().map(|_| Seen::default()).collect(),
            alike: seed.is_multiple_of(3),
        }
    }

    fn step(&mut self) {
        let place = self.random.below(self.queues.len());
        let key = QueueId::from(place as u64);
        let kinds = if self.alike { 9 } else { 12 };
        match self.random.below(kinds) {
            0..4 => self.enter(place, key),
            4..6 => self.grant(place, key),
            6 => self.answer(place),
            7..9 => self.end(place),
            9 => {
                let seen = &self.queues[place];
                let running = seen.holds.iter().find(|lease| !lease.has_ended());
                if let Some(lease) = running {
                    lease.lose(LossCause::Deleted);
                }
            }
            10 => self.hurry(place),
            _ => self.drop_place(place),
        }
        // One goes away before it hears what it was told by this.
        if self.random.one_in(4) {
            self.drop_place(place);
        }
        self.hear();
        self.check();
    }

    fn enter(&mut self, place: usize, key: QueueId) {
        let permits = PERMITS[place];
        let entrant = self.random.entrant(permits, self.alike && permits == 1);
        let seen = &mut self.queues[place];
        match self.queue.enter(key, entrant) {
            Entry::Front(front) if !front.stands_in_a_queue() => {
                assert!(!entrant.waits, "it would have waited");
            }
            Entry::Front(front) => {
                assert!(seen.waiting.is_empty(), "past those who wait");
                seen.fronts.push((front, None));
            }
            Entry::Behind(place) => {
                seen.waiting.insert(place.number(), (place, entrant));
            }
            Entry::Busy(_) => assert!(!entrant.waits, "it would have waited"),
        }
    }

    /// The store grants, or a lease that was handed over is taken up.
    fn grant(&mut self, place: usize, key: QueueId) {
        let seen = &mut self.queues[place];
        let Some((mut front, from)) = seen.fronts.pop() else {
            return;
        };
        match from {
            Some(from) if !self.alike && self.random.one_in(4) => {
                front.pass_on(&from);
            }
            from => {
                let granted = match from {
                    Some(_) => Granted::Handed,
                    None if self.random.one_in(2) => Granted::Alone,
                    None => Granted::AmongOthers,
                };
                let ttl = match &from {
                    Some(from) => from.ttl(),
                    None if self.alike => TTLS[0],
                    None => TTLS[self.random.below(2)],
                };
                if from.is_none() {
                    seen.in_a_row = 0;
                }
                let lease = lease(&self.queue, key, ttl);
                seen.holds.push(Arc::clone(&lease));
                front.granted(&lease, granted);
            }
        }
    }

    /// The store answers something else than a grant.
    fn answer(&mut self, place: usize) {
        let seen = &mut self.queues[place];
        let Some((front, from)) = seen.fronts.pop() else {
            return;
        };
        if from.is_some() {
            // Too late: the lease goes back.
            let from = from.filter(|_| self.alike);
            seen.fronts.push((front, from));
            return;
        }
        match self.random.below(3) {
            0 => drop(front),
            1 => front.unavailable(&StoreError::refused("down")),
            _ => {
                front.busy(&elsewhere());
                seen.fronts.push((front, None));
            }
        }
    }

    fn end(&mut self, place: usize) {
        let seen = &mut self.queues[place];
        if seen.holds.is_empty() {
            return;
        }
        let lease = seen.holds.remove(self.random.below(seen.holds.len()));
        let lost = lease.has_ended();
        lease.give_back();
        if lost || !self.alike && self.random.one_in(4) || !self.queue.hand_over(&lease) {
            self.queue.left(&lease);
        }
    }

    fn some_number(&mut self, place: usize) -> Option<u64> {
        let waiting = &self.queues[place].waiting;
        let nth = self.random.below(waiting.len());
        waiting.keys().nth(nth).copied()
    }

    fn hurry(&mut self, place: usize) {
        let Some(number) = self.some_number(place) else {
            return;
        };
        let waiting = &mut self.queues[place].waiting;
        let (place, entrant) = waiting.get_mut(&number).unwrap();
        match place.hurry(Instant::now()) {
            Hurried::WillBeTold => entrant.waits = false,
            Hurried::Busy(_) | Hurried::Unknown => {
                let (place, _) = waiting.remove(&number).unwrap();
                go(place);
            }
        }
    }

    fn drop_place(&mut self, place: usize) {
        if let Some(number) = self.some_number(place) {
            let (waiter, _) = self.queues[place].waiting.remove(&number).unwrap();
            go(waiter);
        }
    }

    /// Everybody hears what there is to be heard.
    fn hear(&mut self) {
        for seen in &mut self.queues {
            let numbers: Vec<_> = seen.waiting.keys().copied().collect();
            let mut told = Vec::new();
            for number in numbers {
                let (place, entrant) = seen.waiting.get_mut(&number).unwrap();
                match place.try_told() {
                    Ok(Told::Front(front)) => told.push((number, front, None)),
                    Ok(Told::Handed(front, lease)) => {
                        assert_eq!(entrant.takes, Some(lease.ttl()), "not to be taken over");
                        seen.in_a_row += 1;
                        assert!(seen.in_a_row <= IN_A_ROW);
                        told.push((number, front, Some(lease)));
                    }
                    Ok(Told::Busy(_)) => assert!(!entrant.waits, "it would have waited"),
                    Ok(Told::Refused(_) | Told::Unavailable(_)) => {}
                    Err(oneshot::error::TryRecvError::Empty) => continue,
                    Err(error) => panic!("{number} was forgotten: {error}"),
                }
                seen.waiting.remove(&number);
            }
            for (number, front, lease) in told {
                let before = seen.waiting.keys().find(|other| **other < number);
                assert!(before.is_none(), "{number} before {before:?}");
                seen.fronts.push((front, lease));
            }
        }
    }

    /// What is true of every queue while nothing moves.
    fn check(&self) {
        let table = self.queue.table();
        for ((seen, permits), key) in self.queues.iter().zip(PERMITS).zip(0..) {
            let key = QueueId::from(key);
            let waiters = table.met.get(&key);
            let kept = [
                table.asking.contains_key(&key),
                table.held.contains(&key),
                waiters.is_some(),
            ];
            assert!(kept.iter().filter(|kept| **kept).count() <= 1, "{kept:?}");
            let permits = usize::try_from(permits).unwrap();
            assert!(seen.fronts.len() <= permits, "{} fronts", seen.fronts.len());
            let asking = usize::from(kept[0]) + waiters.map_or(0, Waiters::fronts);
            assert_eq!(asking, seen.fronts.len(), "who asks");
            for lease in seen.holds.iter().filter(|lease| !lease.has_ended()) {
                let alone = table.held.get(&key);
                let alone = alone.is_some_and(|HeldAlone(held)| Arc::ptr_eq(held, lease));
                let known = alone || waiters.is_some_and(|waiters| waiters.knows(lease));
                assert!(known, "unknown lease");
            }
            let known = waiters.into_iter().flat_map(Waiters::waiting);
            assert!(known.eq(seen.waiting.keys().copied()), "who waits");
            let Some(waiters) = waiters else { continue };
            assert!(!waiters.is_idle(), "an empty queue");
            if !seen.waiting.is_empty() {
                assert!(!waiters.has_room(), "the first was forgotten");
            }
            if seen.waiting.values().any(|(_, entrant)| !entrant.waits) {
                let busy = waiters.busy(Instant::now());
                assert!(busy.is_none(), "an answer is known");
            }
        }
    }

    /// Everybody goes, in any order, and nothing is left.
    fn finish(mut self) {
        loop {
            let place = self.random.below(self.queues.len());
            match self.random.below(3) {
                0 => self.end(place),
                1 => self.drop_place(place),
                _ => drop(self.queues[place].fronts.pop()),
            }
            self.hear();
            self.check();
            let is_empty = |seen: &Seen| {
                seen.fronts.is_empty() && seen.holds.is_empty() && seen.waiting.is_empty()
            };
            if self.queues.iter().all(is_empty) {
                break;
            }
        }
        let table = self.queue.table();
        assert!(table.asking.is_empty() && table.held.is_empty() && table.met.is_empty());
    }
}

#[test]
fn a_queue_has_as_many_fronts_as_places_keeps_its_order_and_forgets_nobody() {
    for seed in 0..3_000 {
        let history = std::panic::catch_unwind(|| {
            let mut world = World::new(seed);
            for _ in 0..150 {
                world.step();
            }
            world.finish();
        });
        assert!(history.is_ok(), "seed {seed}");
    }
}

#[test]
fn a_queue_that_is_closed_answers_all_who_wait() {
    for seed in 0..200 {
        let mut world = World::new(seed);
        for _ in 0..60 {
            world.step();
        }
        world.queue.close(&StoreError::refused("closed"));
        world.hear();
        for seen in &world.queues {
            assert!(seen.waiting.is_empty(), "seed {seed}");
        }
        world.finish();
    }
}

/// Threads that come and go at any moment.
#[test]
fn a_queue_has_one_front_among_threads() {
    let queue = queues();
    let fronts: Arc<Vec<AtomicUsize>> =
        Arc::new(PERMITS.iter().map(|_| AtomicUsize::new(0)).collect());
    let threads: Vec<_> = (0..6)
        .map(|seed| {
            let (queue, fronts) = (Arc::clone(&queue), Arc::clone(&fronts));
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build()
                    .unwrap();
                let mut random = Random(seed);
                for _ in 0..20_000 {
                    let place = random.below(fronts.len());
                    turn(&runtime, &queue, &fronts[place], place, &mut random);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let table = queue.table();
    assert!(table.asking.is_empty() && table.held.is_empty() && table.met.is_empty());
}

fn turn(
    runtime: &tokio::runtime::Runtime,
    queue: &Arc<WaitQueues>,
    fronts: &AtomicUsize,
    place: usize,
    random: &mut Random,
) {
    let key = QueueId::from(place as u64);
    let entrant = Entrant {
        takes: Some(TTLS[0]),
        ..random.entrant(1, false)
    };
    let told = match queue.enter(key, entrant) {
        Entry::Front(front) => Told::Front(front),
        Entry::Busy(_) => return,
        Entry::Behind(mut place) => {
            if random.one_in(3) {
                for _ in 0..random.below(200) {
                    std::hint::spin_loop();
                }
                return go(place);
            }
            let told = async { tokio::time::timeout(Duration::from_secs(20), place.told()).await };
            runtime.block_on(told).expect("it was forgotten")
        }
    };
    let (front, from) = match told {
        Told::Front(front) => (front, None),
        Told::Handed(front, from) => (front, Some(from)),
        Told::Busy(_) => return,
        Told::Refused(refused) => panic!("{refused:?}"),
        Told::Unavailable(error) => panic!("{error}"),
    };
    assert_eq!(fronts.fetch_add(1, Ordering::SeqCst), 0, "two fronts");
    thread::yield_now();
    fronts.fetch_sub(1, Ordering::SeqCst);
    if from.is_none() && random.one_in(4) {
        return drop(front);
    }
    let lease = lease(queue, key, TTLS[0]);
    let granted = if from.is_some() {
        Granted::Handed
    } else {
        Granted::Alone
    };
    front.granted(&lease, granted);
    thread::yield_now();
    lease.give_back();
    if !queue.hand_over(&lease) {
        queue.left(&lease);
    }
}

/// A queue that nobody is in is forgotten, and the next one begins to count anew.
#[test]
fn who_leaves_a_queue_that_is_over_takes_nobody_out_of_the_next() {
    let queue = queues();
    let key = QueueId::from(7);
    let entrant = |waits| Entrant {
        waits,
        ..Random(0).entrant(1, true)
    };
    let front = |entry| match entry {
        Entry::Front(front) => front,
        _ => panic!("nobody is there"),
    };
    let place = |entry| match entry {
        Entry::Behind(place) => place,
        _ => panic!("somebody asks"),
    };
    let asks = front(queue.enter(key, entrant(true)));
    let mut told = place(queue.enter(key, entrant(false)));
    asks.busy(&elsewhere());
    assert!(matches!(told.try_told(), Ok(Told::Busy(_))));
    drop(asks);
    let _asks = front(queue.enter(key, entrant(true)));
    let mut waits = place(queue.enter(key, entrant(true)));
    go(told);
    let missing = oneshot::error::TryRecvError::Empty;
    assert_eq!(waits.try_told().err(), Some(missing));
}
