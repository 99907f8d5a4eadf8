//! What stands at a lock: who holds it, who waits in which order, and what a release has left there.

use std::collections::HashSet;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::names::{Child, MarkName, Place, child};
use crate::reply::KeptReply;
use crate::store::Sharing;

/// The children of a lock's node.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// In the order in which they came.
    pub(super) places: Vec<Place>,
    /// The slots that holders of permits have.
    pub(super) slots: Vec<usize>,
    pub(super) marks: Vec<MarkName>,
    /// The name of something that is none of this.
    pub(super) foreign: Option<String>,
}

/// What a release has left, and still counts.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) of: MarkName,
    pub(super) since: SystemTime,
    pub(super) remaining: Duration,
    /// What was left with it.
    pub(super) reply: Option<KeptReply>,
}

/// What a claim finds that has a place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    /// It may hold the lock.
    Free,
    /// The work is done, since then, and this was left with it.
    Done(SystemTime, Option<KeptReply>),
    /// It stays closed, since then and for so long.
    Closed(SystemTime, Duration),
    /// Others are before it.
    Busy(Busy),
    /// It has no place here.
    Missing,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Busy {
    /// One that holds the lock, for how long, and since when, where its name says it.
    pub(super) holder: String,
    pub(super) ttl: Duration,
    pub(super) since: Option<SystemTime>,
    /// How many wait before it.
    pub(super) before: usize,
    pub(super) watch: Watch,
    /// Whether nobody is in its way but such as do not wait, and are about to go.
    pub(super) is_passing: bool,
}

/// By what one is to be told that it had better look again.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Watch {
    /// That this place goes.
    Place(String),
    /// That this place goes, or comes to hold the lock.
    Turn(String),
    /// That any place comes or goes.
    All,
}

/// How a lock is held by all who hold it together; nothing where nobody does.
#[derive(Default)]
struct Together(Option<Sharing>);

impl Together {
    fn has_room(&self, sharing: Sharing) -> bool {
        sharing.fits_beside(self.0.into_iter())
    }

    fn add(&mut self, sharing: Sharing) {
        self.0 = Some(match (self.0, sharing) {
            (Some(Sharing::Permits { weight: used, .. }), Sharing::Permits { permits, weight }) => {
                let weight = weight.saturating_add(used);
                Sharing::Permits { permits, weight }
            }
            _ => sharing,
        });
    }
}

impl Listing {
    pub(super) fn new(names: &[String]) -> Self {
        let mut listing = Self::default();
        for name in names {
            match child(name) {
                Child::Place(place) => listing.places.push(place),
                Child::Slot(slot) => listing.slots.push(slot),
                Child::Mark(mark) => listing.marks.push(mark),
                Child::Token => {}
                Child::Foreign => listing.foreign = Some(name.clone()),
            }
        }
        // The numbers wrap, and those of one queue are close to each other: they are in order as distances
        // from one of them.
        if let Some(from) = listing.places.first().map(|place| place.number) {
            listing
                .places
                .sort_by_key(|place| place.number.wrapping_sub(from));
        }
        listing
    }

    /// Who holds the lock, as far as the order says: the first.
    pub(super) fn first_but(&self, owner: &str) -> Option<&Place> {
        self.places.iter().find(|place| place.owner != owner)
    }

    /// How many places hold the lock: the first, and those behind it as long as each fits beside all before it.
    /// What is left of a holder counts where its place was. With `passes`, who does not fit and does not wait is as
    /// one that is gone. With that, how they hold it together.
    fn holders(places: &[Place], marks: &[Mark], passes: bool) -> (usize, Together) {
        let mut together = Together::default();
        let from = places.first().map_or(0, |place| place.number);
        let distance = |number: i32| number.wrapping_sub(from);
        let parts = marks.iter().filter_map(|mark| mark.of.part);
        let mut parts: Vec<_> = parts
            .map(|(sharing, number)| (distance(number), sharing))
            .collect();
        parts.sort_by_key(|(number, _)| *number);
        let mut parts = parts.into_iter().peekable();
        for (index, place) in places.iter().enumerate() {
            let number = distance(place.number);
            while let Some((_, sharing)) = parts.next_if(|(part, _)| *part < number) {
                together.add(sharing);
            }
            if together.has_room(place.sharing) {
                together.add(place.sharing);
            } else if !passes || place.waits {
                return (index, together);
            }
        }
        parts.for_each(|(_, sharing)| together.add(sharing));
        (places.len(), together)
    }

    /// How many of the places hold the lock.
    pub(super) fn held(&self, marks: &[Mark]) -> usize {
        if marks.iter().any(|mark| mark.of.part.is_none()) {
            return 0;
        }
        Self::holders(&self.places, marks, false).0
    }

    /// Whether one that comes now could hold the lock, but for such as are about to go.
    pub(super) fn has_room(&self, sharing: Sharing) -> bool {
        Self::has_room_behind(&self.places, &[], sharing)
    }

    fn has_room_behind(places: &[Place], marks: &[Mark], sharing: Sharing) -> bool {
        let (passed, together) = Self::holders(places, marks, true);
        passed == places.len() && together.has_room(sharing)
    }

    /// What an owner finds.
    pub(super) fn find(&self, owner: &str, marks: &[Mark]) -> Finding {
        if let Some(mark) = marks.iter().find(|mark| mark.of.is_done) {
            return Finding::Done(mark.since, mark.reply.clone());
        }
        let of_one_alone = marks.iter().filter(|mark| mark.of.part.is_none());
        if let Some(mark) = of_one_alone.max_by_key(|mark| mark.remaining) {
            return Finding::Closed(mark.since, mark.remaining);
        }
        let Some(position) = self.places.iter().position(|place| place.owner == owner) else {
            return Finding::Missing;
        };
        let own = self.places[position].sharing;
        let (held, _) = Self::holders(&self.places[..=position], marks, false);
        if held > position {
            return Finding::Free;
        }
        let Some(watch) = self.watch(position, held) else {
            return closed(own, marks);
        };
        let first = &self.places[0];
        let soonest = marks.iter().map(|mark| mark.remaining).min();
        Finding::Busy(Busy {
            holder: first.owner.clone(),
            ttl: soonest.map_or(first.ttl, |soonest| soonest.min(first.ttl)),
            since: first.since,
            before: position - held,
            watch,
            is_passing: Self::has_room_behind(&self.places[..position], marks, own),
        })
    }

    /// By what one is told that cannot hold the lock yet, where so many before it do. Nothing where no place is in
    /// its way, but what is left of others.
    fn watch(&self, position: usize, held: usize) -> Option<Watch> {
        let before = &self.places[..position];
        let last = before.last()?;
        let of_others = |is_like: fn(Sharing) -> bool| {
            let mut others = before.iter().rev().filter(|place| !is_like(place.sharing));
            Some(Watch::Place(others.next()?.name.clone()))
        };
        match self.places[position].sharing {
            Sharing::Alone => Some(Watch::Place(last.name.clone())),
            // Those beside whom it may be are not in its way, and hold the lock when it does.
            Sharing::Readers => of_others(|other| other == Sharing::Readers),
            Sharing::Permits { .. } => {
                let others = of_others(|other| matches!(other, Sharing::Permits { .. }));
                others.or_else(|| {
                    // Whoever goes makes room: the first to wait looks each time that somebody comes or goes.
                    Some(if held == position {
                        Watch::All
                    } else {
                        Watch::Turn(last.name.clone())
                    })
                })
            }
        }
    }

    /// A slot that nobody has, for the owner whose turn it is: the lowest, but for those that holders before it are
    /// about to take.
    pub(super) fn free_slot(&self, owner: &str, marks: &[Mark]) -> usize {
        let left = marks.iter().filter(|mark| mark.of.part.is_some());
        let taken = self.slots.iter().copied();
        let taken: HashSet<_> = taken.chain(left.map(|mark| mark.of.slot)).collect();
        let before = self.places.iter().take_while(|place| place.owner != owner);
        let about_to = before.count().saturating_sub(self.slots.len());
        let mut free = (0..).filter(|slot| !taken.contains(slot));
        free.nth(about_to).unwrap_or_default()
    }
}

/// What one finds in whose way there is nothing but what is left of others.
fn closed(sharing: Sharing, marks: &[Mark]) -> Finding {
    let left = marks.iter();
    let over = if matches!(sharing, Sharing::Permits { .. }) {
        left.min_by_key(|mark| mark.remaining)
    } else {
        left.max_by_key(|mark| mark.remaining)
    };
    let (since, remaining) = over.map_or((UNIX_EPOCH, Duration::ZERO), |mark| {
        (mark.since, mark.remaining)
    });
    Finding::Closed(since, remaining)
}

/// A moment of the leader's clock.
pub(super) fn server_time(ms: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(u64::try_from(ms).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Places by their wishes, in this order, whose owners are `o5`, `o6` and so on; and slots.
    fn listing(wishes: &[&str], slots: &[usize]) -> Listing {
        let places = wishes.iter().zip(5..);
        let places = places.map(|(wish, number)| format!("o{number}+10+{wish}-{number:010}"));
        let slots = slots.iter().map(|slot| format!("slot-{slot}"));
        Listing::new(&places.chain(slots).collect::<Vec<_>>())
    }

    fn mark(name: &str, seconds: u64) -> Mark {
        let Child::Mark(of) = child(name) else {
            panic!("{name}");
        };
        Mark {
            of,
            since: UNIX_EPOCH,
            remaining: Duration::from_secs(seconds),
            reply: None,
        }
    }

    /// `free`, or how many wait before it and what it watches: that one goes, or its turn; with a `?` where all in its way are about to go.
    fn found(listing: &Listing, owner: &str, marks: &[Mark]) -> String {
        match listing.find(owner, marks) {
            Finding::Free => "free".to_owned(),
            Finding::Busy(busy) => {
                let watched = match &busy.watch {
                    Watch::All => "all",
                    Watch::Place(name) | Watch::Turn(name) => {
                        name.split('+').next().unwrap_or_default()
                    }
                };
                let turn = matches!(busy.watch, Watch::Turn(_));
                let turn = if turn { "'s turn" } else { "" };
                let passing = if busy.is_passing { "?" } else { "" };
                format!("{} {watched}{turn}{passing}", busy.before)
            }
            Finding::Closed(_, remaining) => format!("closed {}", remaining.as_secs()),
            other => format!("{other:?}"),
        }
    }

    #[track_caller]
    fn all_find(wishes: &[&str], expected: &[&str]) {
        let listing = listing(wishes, &[]);
        let owners = listing.places.iter().map(|place| place.owner.as_str());
        let all: Vec<_> = owners.map(|owner| found(&listing, owner, &[])).collect();
        assert_eq!(all, expected, "{wishes:?}");
    }

    #[test]
    fn field_store_21_the_order_holds_where_the_numbers_wrap() {
        let numbers = [i32::MIN + 1, i32::MAX, i32::MIN, i32::MAX - 1];
        let names = numbers.map(|number| format!("o{number}+10+1-{number:010}"));
        let listing = Listing::new(&names);
        let order: Vec<_> = listing.places.iter().map(|place| place.number).collect();
        assert_eq!(order, [i32::MAX - 1, i32::MAX, i32::MIN, i32::MIN + 1]);
        let first = format!("o{}", i32::MAX - 1);
        assert_eq!(listing.find(&first, &[]), Finding::Free);
        // What is left of one has its place in the order as well.
        let names = [
            "a+1+2of3--2147483648".to_owned(),
            "b+1+2of3--2147483647".to_owned(),
        ];
        let listing = Listing::new(&names);
        let left = mark("closed-0-x+1of3+2147483647", 1);
        assert_eq!(found(&listing, "a", std::slice::from_ref(&left)), "free");
        assert_eq!(found(&listing, "b", &[left]), "0 all");
    }

    #[test]
    fn each_alone_finds_those_before_it() {
        let listing = listing(&["1", "1", "1"], &[]);
        assert_eq!(listing.find("o5", &[]), Finding::Free);
        let busy = |before, previous: &str| {
            Finding::Busy(Busy {
                holder: "o5".to_owned(),
                ttl: Duration::from_millis(10),
                since: None,
                before,
                watch: Watch::Place(previous.to_owned()),
                is_passing: false,
            })
        };
        assert_eq!(listing.find("o6", &[]), busy(0, "o5+10+1-0000000005"));
        assert_eq!(listing.find("o7", &[]), busy(1, "o6+10+1-0000000006"));
        assert_eq!(listing.find("o1", &[]), Finding::Missing);
    }

    #[test]
    fn readers_are_together_up_to_the_first_who_is_alone() {
        all_find(
            &["shared", "shared", "1", "shared", "1", "shared", "shared"],
            &["free", "free", "0 o6", "1 o7", "2 o8", "3 o9", "4 o9"],
        );
        all_find(&["1", "shared", "shared"], &["free", "0 o5", "1 o5"]);
        all_find(&["1of2", "shared", "1of2"], &["free", "0 o5", "1 o6"]);
    }

    #[test]
    fn permits_are_given_in_order_up_to_the_first_that_does_not_fit() {
        all_find(
            &["4of10", "3of10", "9of10", "1of10", "1of10"],
            &["free", "free", "0 all", "1 o7's turn", "2 o8's turn"],
        );
        // By the number that each counts, of those who are there.
        all_find(
            &["7of10", "4of20", "1of10", "1of20"],
            &["free", "free", "0 all", "1 o7's turn"],
        );
        all_find(
            &["1of2", "1", "1of2", "1of2"],
            &["free", "0 o5", "1 o6", "2 o6"],
        );
        let most = format!("{0}of{0}", u32::MAX);
        all_find(&["1of2", &most], &["free", "0 all"]);
    }

    #[test]
    fn who_does_not_wait_is_soon_out_of_the_way() {
        all_find(
            &["shared", "1!", "shared!", "1", "shared!"],
            &["free", "0 o5", "1 o6?", "2 o7", "3 o8"],
        );
        all_find(
            &["2of3", "2of3!", "1of3!"],
            &["free", "0 all", "1 o6's turn?"],
        );
        let one = listing(&["shared", "1!"], &[]);
        assert!(one.has_room(Sharing::Readers) && !one.has_room(Sharing::Alone));
        assert!(!listing(&["shared", "1"], &[]).has_room(Sharing::Readers));
        assert!(listing(&[], &[]).has_room(Sharing::Alone));
        assert!(!listing(&["1!"], &[]).has_room(Sharing::Alone));
    }

    #[test]
    fn what_is_left_counts_where_its_holder_stood() {
        let one = listing(&["1"], &[]);
        assert_eq!(found(&one, "o5", &[mark("closed-0-x", 2)]), "closed 2");
        let done = [mark("closed-0-x", 2), mark("done-1-y", 1)];
        assert_eq!(one.find("o5", &done), Finding::Done(UNIX_EPOCH, None));
        let parts = [mark("closed-0-x+1of3+1", 2), mark("closed-1-y+1of3+2", 7)];
        assert_eq!(found(&one, "o5", &parts), "closed 7");
        let two = listing(&["1of3", "1of3"], &[]);
        assert_eq!(found(&two, "o5", &parts), "free");
        assert_eq!(found(&two, "o6", &parts), "0 all");
        let heavy = listing(&["2of3"], &[]);
        assert_eq!(found(&heavy, "o5", &parts), "closed 2");
        // Who counts more was let in behind one who counts less, and has gone since.
        let left = [mark("closed-1-x+4of20+6", 2)];
        let mut names = vec!["o5+10+7of10-5".to_owned(), "o7+10+1of20-7".to_owned()];
        assert_eq!(found(&Listing::new(&names), "o7", &left), "free");
        names.push("o8+10+shared-8".to_owned());
        assert_eq!(found(&Listing::new(&names), "o8", &left), "0 o7");
        let readers = [
            mark("closed-0-x+shared+1", 2),
            mark("closed-0-y+shared+2", 1),
        ];
        let one = listing(&["shared"], &[]);
        assert_eq!(found(&one, "o5", &readers), "free");
        assert_eq!(found(&listing(&["1"], &[]), "o5", &readers), "closed 2");
        assert_eq!(found(&listing(&["1of2"], &[]), "o5", &readers), "closed 1");
    }

    #[test]
    fn each_has_the_lowest_slot_that_is_free() {
        let slot = |wishes: &[&str], slots: &[usize], owner: &str, marks: &[Mark]| {
            listing(wishes, slots).free_slot(owner, marks)
        };
        let three = ["1of9", "1of9", "1of9"];
        assert_eq!(slot(&three, &[0, 2], "o7", &[]), 1);
        assert_eq!(slot(&three, &[0, 1], "o7", &[]), 2);
        // Those before it have none yet.
        assert_eq!(slot(&three, &[], "o7", &[]), 2);
        assert_eq!(slot(&three, &[1], "o7", &[]), 2);
        assert_eq!(slot(&three, &[1, 2], "o5", &[]), 0);
        assert_eq!(
            slot(&["1of9"], &[], "o5", &[mark("closed-0-x+1of9+1", 1)]),
            1
        );
    }
}
