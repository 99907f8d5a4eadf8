//! Random histories of a queue, held against what a line is.

use std::collections::BTreeMap;
use std::sync::Weak;
use std::sync::atomic::AtomicUsize;
use std::thread;

use super::*;
use crate::error::LossCause;

const LINES: u64 = 2;
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

    fn wish(&mut self, alike: bool) -> Wish {
        if alike {
            return Wish {
                permits: 1,
                waits: true,
                takes: Some(TTLS[0]),
            };
        }
        let permits = if self.one_in(3) { 3 } else { 1 };
        Wish {
            permits,
            waits: !self.one_in(4),
            takes: (permits == 1 && !self.one_in(3)).then(|| TTLS[self.below(2)]),
        }
    }
}

fn hold(queue: &Arc<Queue>, key: LineId, ttl: Duration) -> Arc<Hold> {
    let now = Instant::now();
    let queue: Weak<Queue> = Arc::downgrade(queue);
    let tell = move |_: &Hold| {
        if let Some(queue) = queue.upgrade() {
            queue.turn(key);
        }
    };
    Hold::sample(key, now, ttl, tell)
}

fn elsewhere() -> Busy {
    Busy {
        holder: Some("elsewhere:1".to_owned()),
        until: Instant::now() + TTLS[0],
    }
}

/// What a caller that is dropped does with its place.
fn go(mut ticket: Ticket) {
    if let Some(News::Handed(mut head, hold)) = ticket.unheard() {
        head.pass_on(&hold);
    }
}

/// One line as its callers see it.
#[derive(Default)]
struct Line {
    heads: Vec<(Head, Option<Arc<Hold>>)>,
    /// Those that run, and those that were lost and not given back yet.
    holds: Vec<Arc<Hold>>,
    waiting: BTreeMap<u64, (Ticket, Wish)>,
    in_a_row: u32,
}

struct World {
    queue: Arc<Queue>,
    random: Random,
    lines: Vec<Line>,
    /// Whether all callers want the same, so that leases go from one to the next.
    alike: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        Self {
            queue: Arc::default(),
            random: Random(seed),
            lines: (0..LINES).map(|_| Line::default()).collect(),
            alike: seed.is_multiple_of(3),
        }
    }

    fn step(&mut self) {
        let place = self.random.below(self.lines.len());
        let key = LineId::from(place as u64);
        let kinds = if self.alike { 9 } else { 12 };
        match self.random.below(kinds) {
            0..4 => self.enter(place, key),
            4..6 => self.grant(place, key),
            6 => self.answer(place),
            7..9 => self.end(place),
            9 => {
                let line = &self.lines[place];
                let running = line.holds.iter().find(|hold| !hold.has_ended());
                if let Some(hold) = running {
                    hold.end_as(LossCause::Deleted);
                }
            }
            10 => self.hurry(place),
            _ => self.drop_ticket(place),
        }
        // One goes away before it hears what it was told by this.
        if self.random.one_in(4) {
            self.drop_ticket(place);
        }
        self.hear();
        self.check();
    }

    fn enter(&mut self, place: usize, key: LineId) {
        let wish = self.random.wish(self.alike);
        let line = &mut self.lines[place];
        match self.queue.enter(key, wish) {
            Entry::Head(head) => {
                assert!(line.waiting.is_empty(), "past those who wait");
                line.heads.push((head, None));
            }
            Entry::Behind(ticket) => {
                line.waiting.insert(ticket.number, (ticket, wish));
            }
            Entry::Busy(_) => assert!(!wish.waits, "it would have waited"),
        }
    }

    /// The store grants, or a lease that was handed over is taken up.
    fn grant(&mut self, place: usize, key: LineId) {
        let line = &mut self.lines[place];
        let Some((mut head, from)) = line.heads.pop() else {
            return;
        };
        match from {
            Some(from) if !self.alike && self.random.one_in(4) => {
                head.pass_on(&from);
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
                    line.in_a_row = 0;
                }
                let hold = hold(&self.queue, key, ttl);
                line.holds.push(Arc::clone(&hold));
                head.granted(&hold, granted);
            }
        }
    }

    /// The store answers something else than a grant.
    fn answer(&mut self, place: usize) {
        let line = &mut self.lines[place];
        let Some((head, from)) = line.heads.pop() else {
            return;
        };
        if from.is_some() {
            // Too late: the lease goes back.
            let from = from.filter(|_| self.alike);
            line.heads.push((head, from));
            return;
        }
        match self.random.below(3) {
            0 => drop(head),
            1 => head.down(&StoreError::refused("down")),
            _ => {
                head.busy(&elsewhere());
                line.heads.push((head, None));
            }
        }
    }

    fn end(&mut self, place: usize) {
        let line = &mut self.lines[place];
        if line.holds.is_empty() {
            return;
        }
        let hold = line.holds.remove(self.random.below(line.holds.len()));
        let lost = hold.has_ended();
        hold.end_given_back();
        if lost || !self.alike && self.random.one_in(4) || !self.queue.hand_over(&hold) {
            self.queue.left(&hold);
        }
    }

    fn some_ticket(&mut self, place: usize) -> Option<u64> {
        let waiting = &self.lines[place].waiting;
        let nth = self.random.below(waiting.len());
        waiting.keys().nth(nth).copied()
    }

    fn hurry(&mut self, place: usize) {
        let Some(number) = self.some_ticket(place) else {
            return;
        };
        let waiting = &mut self.lines[place].waiting;
        let (ticket, wish) = waiting.get_mut(&number).unwrap();
        if ticket.hurry().is_some() {
            let (ticket, _) = waiting.remove(&number).unwrap();
            go(ticket);
        } else {
            wish.waits = false;
        }
    }

    fn drop_ticket(&mut self, place: usize) {
        if let Some(number) = self.some_ticket(place) {
            let (ticket, _) = self.lines[place].waiting.remove(&number).unwrap();
            go(ticket);
        }
    }

    /// Everybody hears what there is to be heard.
    fn hear(&mut self) {
        for line in &mut self.lines {
            let numbers: Vec<_> = line.waiting.keys().copied().collect();
            let mut told = Vec::new();
            for number in numbers {
                let (ticket, wish) = line.waiting.get_mut(&number).unwrap();
                match ticket.news.try_recv() {
                    Ok(News::Turn(head)) => told.push((number, head, None)),
                    Ok(News::Handed(head, hold)) => {
                        assert_eq!(wish.takes, Some(hold.ttl()), "not to be taken over");
                        line.in_a_row += 1;
                        assert!(line.in_a_row <= IN_A_ROW);
                        told.push((number, head, Some(hold)));
                    }
                    Ok(News::Busy(_)) => assert!(!wish.waits, "it would have waited"),
                    Ok(News::Down(_)) => {}
                    Err(oneshot::error::TryRecvError::Empty) => continue,
                    Err(error) => panic!("{number} was forgotten: {error}"),
                }
                line.waiting.remove(&number);
            }
            for (number, head, hold) in told {
                let before = line.waiting.keys().find(|other| **other < number);
                assert!(before.is_none(), "{number} before {before:?}");
                line.heads.push((head, hold));
            }
        }
    }

    /// What is true of every line while nothing moves.
    fn check(&self) {
        let lines = self.queue.lines();
        for (line, key) in self.lines.iter().zip(0..) {
            let key = LineId::from(key);
            let crowd = lines.crowds.get(&key);
            let kept = [
                lines.asked.contains(&key),
                lines.held.contains(&key),
                crowd.is_some(),
            ];
            assert!(kept.iter().filter(|kept| **kept).count() <= 1, "{kept:?}");
            assert!(line.heads.len() <= 1, "{} heads", line.heads.len());
            let asked = kept[0] || crowd.is_some_and(|crowd| crowd.asked);
            assert_eq!(asked, !line.heads.is_empty(), "who asks");
            let running = line.holds.iter().filter(|hold| !hold.has_ended());
            for hold in running {
                let known = lines.held.get(&key).map(|Held(hold)| hold).into_iter();
                let mut known = known.chain(crowd.into_iter().flat_map(|crowd| &crowd.held));
                assert!(known.any(|known| Arc::ptr_eq(known, hold)), "unknown lease");
            }
            let known = crowd.into_iter().flat_map(|crowd| crowd.waiting.keys());
            assert!(known.eq(line.waiting.keys()), "who waits");
            let Some(crowd) = crowd else { continue };
            assert!(!crowd.is_idle(), "an empty line");
            if let Some((_, (_, first))) = line.waiting.first_key_value() {
                let has_turn = crowd.asked || !crowd.has_room(first.permits);
                assert!(has_turn, "the first was forgotten");
            }
            for (_, wish) in line.waiting.values().filter(|(_, wish)| !wish.waits) {
                assert!(crowd.busy(wish.permits).is_none(), "an answer is known");
            }
        }
    }

    /// Everybody goes, in any order, and nothing is left.
    fn finish(mut self) {
        loop {
            let place = self.random.below(self.lines.len());
            match self.random.below(3) {
                0 => self.end(place),
                1 => self.drop_ticket(place),
                _ => drop(self.lines[place].heads.pop()),
            }
            self.hear();
            self.check();
            let is_empty = |line: &Line| {
                line.heads.is_empty() && line.holds.is_empty() && line.waiting.is_empty()
            };
            if self.lines.iter().all(is_empty) {
                break;
            }
        }
        let lines = self.queue.lines();
        assert!(lines.asked.is_empty() && lines.held.is_empty() && lines.crowds.is_empty());
    }
}

#[test]
fn a_line_has_one_head_keeps_its_order_and_forgets_nobody() {
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
        for line in &world.lines {
            assert!(line.waiting.is_empty(), "seed {seed}");
        }
        world.finish();
    }
}

/// Threads that come and go at any moment.
#[test]
fn a_line_has_one_head_among_threads() {
    let queue: Arc<Queue> = Arc::default();
    let heads: Arc<Vec<AtomicUsize>> = Arc::new((0..LINES).map(|_| AtomicUsize::new(0)).collect());
    let threads: Vec<_> = (0..6)
        .map(|seed| {
            let (queue, heads) = (Arc::clone(&queue), Arc::clone(&heads));
            thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread()
                    .enable_time()
                    .build()
                    .unwrap();
                let mut random = Random(seed);
                for _ in 0..20_000 {
                    let place = random.below(heads.len());
                    turn(&runtime, &queue, &heads[place], place, &mut random);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let lines = queue.lines();
    assert!(lines.asked.is_empty() && lines.held.is_empty() && lines.crowds.is_empty());
}

fn turn(
    runtime: &tokio::runtime::Runtime,
    queue: &Arc<Queue>,
    heads: &AtomicUsize,
    place: usize,
    random: &mut Random,
) {
    let key = LineId::from(place as u64);
    let wish = Wish {
        permits: 1,
        takes: Some(TTLS[0]),
        ..random.wish(false)
    };
    let news = match queue.enter(key, wish) {
        Entry::Head(head) => News::Turn(head),
        Entry::Busy(_) => return,
        Entry::Behind(mut ticket) => {
            if random.one_in(3) {
                for _ in 0..random.below(200) {
                    std::hint::spin_loop();
                }
                return go(ticket);
            }
            let news = async { tokio::time::timeout(Duration::from_secs(20), ticket.news()).await };
            runtime.block_on(news).expect("it was forgotten")
        }
    };
    let (head, from) = match news {
        News::Turn(head) => (head, None),
        News::Handed(head, from) => (head, Some(from)),
        News::Busy(_) => return,
        News::Down(error) => panic!("{error}"),
    };
    assert_eq!(heads.fetch_add(1, Ordering::SeqCst), 0, "two heads");
    thread::yield_now();
    heads.fetch_sub(1, Ordering::SeqCst);
    if from.is_none() && random.one_in(4) {
        return drop(head);
    }
    let hold = hold(queue, key, TTLS[0]);
    let granted = if from.is_some() {
        Granted::Handed
    } else {
        Granted::Alone
    };
    head.granted(&hold, granted);
    thread::yield_now();
    hold.end_given_back();
    if !queue.hand_over(&hold) {
        queue.left(&hold);
    }
}
