//! What is stored, which two releases have to agree on.
//!
//! | node | what it is |
//! |---|---|
//! | `{root}/{key}` | a container for each lock; its name is the whole key, [encoded] |
//! | `…/{owner}+{ttl}+{wish}-{number}` | a claim's place in the queue, ephemeral; `number` is the server's |
//! | `…/{owner}+{ttl}+{wish}+{since}-{number}` | the same of an owner that has taken over from another: with the number of that, and since when it is held, in milliseconds since 1970 |
//! | `…/slot-{slot}` | a slot that a holder of permits has, ephemeral; its data is the name of its place |
//! | `…/closed-{slot}-{id}`, `…/done-{slot}-{id}` | what the release of an owner with this id has left, for the milliseconds that are its data; behind a space, the reply that is left with it |
//! | `…/closed-{slot}-{id}+{wish}+{number}` | the same of one that held the lock beside others: its part stays closed, where its place was |
//! | `…/token` | the last token that was to be larger than the servers' transaction number, if there was one |
//!
//! A `wish` is `1` of who wants the lock alone, `shared` of a reader, and `{weight}of{permits}` of who wants some of
//! its permits; with a `!` behind it of one that does not wait, and is soon gone where it cannot hold the lock.
//!
//! The data of a place is `1 {owner} {ttl} {wish}`: the version of the form, and what the name says. It
//! is held, or waited for, since the node was made, by the leader's clock, and its session is the node's
//! owner in the words of ZooKeeper. A ttl is in milliseconds. In the order of their numbers, those hold the lock
//! who may do so beside all before them, up to the first that may not.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::listing::server_time;
use crate::percent;
use crate::reply::KeptReply;
use crate::store::{Claim, Leave, Sharing};

pub(super) const SLOT: &str = "slot-";
const CLOSED: &str = "closed-";
const DONE: &str = "done-";
pub(super) const TOKEN: &str = "token";

/// The name of a node that stands for any text: bytes that a name may not have, or that mean something
/// here, are percent-encoded.
fn encoded(text: &str) -> String {
    let mut name = String::with_capacity(text.len());
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-:@.".contains(&byte);
    percent::encode(text, is_plain, &mut name);
    // Names of which ZooKeeper has made something else.
    match name.as_str() {
        "." | ".." => name.replace('.', "%2e"),
        "zookeeper" => "%7aookeeper".to_owned(),
        _ => name,
    }
}

/// The node of a lock.
pub(super) fn lock_node(root: &str, lock: &str) -> String {
    format!("{root}/{}", encoded(lock))
}

/// The lock of a node with this name, if it is one.
#[cfg(feature = "inspect")]
pub(super) fn lock(node: &str) -> Option<String> {
    percent::decoded(node).filter(|lock| encoded(lock) == node)
}

/// What is behind the wish of one that does not wait.
const DOES_NOT_WAIT: &str = "!";

/// Between the permits that one wants, and all: a name has no slash.
const OF: &str = "of";

/// The name of a claim's place, without the number.
pub(super) fn place(claim: Claim<'_>, waits: bool) -> String {
    let (owner, ttl) = (encoded(claim.owner), claim.ttl.as_millis());
    let wish = claim.sharing().wish(OF);
    let flag = if waits { "" } else { DOES_NOT_WAIT };
    format!("{owner}+{ttl}+{wish}{flag}-")
}

/// The whole name of the place of one that has taken over from another.
pub(super) fn taken_over(claim: Claim<'_>, since: SystemTime, number: i32) -> String {
    let (owner, ttl) = (encoded(claim.owner), claim.ttl.as_millis());
    let wish = claim.sharing().wish(OF);
    let since = since.duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{owner}+{ttl}+{wish}+{}-{number:010}", since.as_millis())
}

/// What a release leaves of one that had this place, or of one alone. No other release ever leaves one of this name, so
/// that whoever has found it to be over removes no other one.
pub(super) fn mark(leave: &Leave, slot: usize, owner: &str, place: Option<&Place>) -> String {
    let id = owner.split_once('@').map_or(owner, |(id, _)| id);
    let id = encoded(id);
    match place {
        _ if leave.is_done() => format!("{DONE}{slot}-{id}"),
        Some(place) if !place.sharing.is_alone() => {
            let wish = place.sharing.wish(OF);
            format!("{CLOSED}{slot}-{id}+{wish}+{}", place.number)
        }
        _ => format!("{CLOSED}{slot}-{id}"),
    }
}

/// The data of what a release leaves: for how long, and a reply beside it.
pub(super) fn mark_data(length: Duration, reply: Option<&KeptReply>) -> String {
    let mut data = length.as_millis().to_string();
    if let Some(reply) = reply {
        data.push(' ');
        data.push_str(reply.as_str());
    }
    data
}

/// The same as it is read; what is of another form is over.
pub(super) fn read_mark(data: &str) -> (Duration, Option<KeptReply>) {
    let (length, reply) = match data.split_once(' ') {
        Some((length, reply)) => (length, Some(KeptReply::new(reply))),
        None => (data, None),
    };
    (Duration::from_millis(length.parse().unwrap_or(0)), reply)
}

/// What the names of all places of an owner start with.
pub(super) fn places_of(owner: &str) -> String {
    format!("{}+", encoded(owner))
}

pub(super) fn place_data(claim: Claim<'_>) -> String {
    let ttl = claim.ttl.as_millis();
    format!("1 {} {ttl} {}", claim.owner, claim.sharing().wish(OF))
}

/// A place in the queue of a lock, as its name says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) owner: String,
    pub(super) ttl: Duration,
    pub(super) sharing: Sharing,
    /// Whether it stays in the queue where it cannot hold the lock yet.
    pub(super) waits: bool,
    /// Of one that has taken over from another: since when it is held.
    pub(super) since: Option<SystemTime>,
    /// Goes on below zero when it has come to the end of its 32 bits.
    pub(super) number: i32,
}

/// What a release has left, as its name says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct MarkName {
    pub(super) name: String,
    pub(super) slot: usize,
    pub(super) is_done: bool,
    /// Of one that held the lock beside others: how, and the number of its place.
    pub(super) part: Option<(Sharing, i32)>,
}

/// What a child of a lock's node is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Child {
    Place(Place),
    Slot(usize),
    Mark(MarkName),
    Token,
    Foreign,
}

pub(super) fn child(name: &str) -> Child {
    let slot = name.strip_prefix(SLOT).and_then(|slot| slot.parse().ok());
    if let Some(slot) = slot {
        return Child::Slot(slot);
    }
    if let Some(mark) = read_mark_name(name) {
        return Child::Mark(mark);
    }
    if name == TOKEN {
        return Child::Token;
    }
    read_place(name).map_or(Child::Foreign, Child::Place)
}

/// The place whose node this is.
pub(super) fn place_of(path: &str) -> Option<Place> {
    path.rsplit('/').next().and_then(read_place)
}

fn read_mark_name(name: &str) -> Option<MarkName> {
    let (rest, is_done) = match name.strip_prefix(DONE) {
        Some(rest) => (rest, true),
        None => (name.strip_prefix(CLOSED)?, false),
    };
    let (slot, rest) = rest.split_once('-')?;
    let (id, part) = match rest.split_once('+') {
        Some((id, part)) => {
            let (wish, number) = part.split_once('+')?;
            (
                id,
                Some((Sharing::of_wish(wish, OF)?, number.parse().ok()?)),
            )
        }
        None => (rest, None),
    };
    (!id.is_empty()).then_some(MarkName {
        name: name.to_owned(),
        slot: slot.parse().ok()?,
        is_done,
        part,
    })
}

fn read_place(name: &str) -> Option<Place> {
    let mut parts = name.splitn(3, '+');
    let (owner, ttl, rest) = (parts.next()?, parts.next()?, parts.next()?);
    let (wish, number) = rest.split_once('-')?;
    let (wish, since) = match wish.split_once('+') {
        Some((wish, since)) => (wish, Some(server_time(since.parse().ok()?))),
        None => (wish, None),
    };
    let (wish, waits) = match wish.strip_suffix(DOES_NOT_WAIT) {
        Some(wish) => (wish, false),
        None => (wish, true),
    };
    Some(Place {
        name: name.to_owned(),
        owner: percent::decoded(owner)?,
        ttl: Duration::from_millis(ttl.parse().ok()?),
        sharing: Sharing::of_wish(wish, OF)?,
        waits,
        since,
        number: number.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "019ad5b1f9c07c3f9d0a1b2c3d4e5f60@web-7:42";

    #[test]
    fn the_form_is_frozen() {
        let locks = ["lock:sync:42".to_owned()];
        let claim = Claim::new(&locks, OWNER, Duration::from_secs(30));
        assert_eq!(lock_node("/locks", &locks[0]), "/locks/lock:sync:42");
        let three = claim.permits(3);
        for (claim, wish) in [
            (claim, "1"),
            (claim.shared(true), "shared"),
            (three, "1of3"),
            (three.weight(2), "2of3"),
            (claim.permits(u32::MAX), "1of4294967295"),
        ] {
            let data = format!("1 {OWNER} 30000 {wish}");
            assert_eq!(place_data(claim), data);
            for (waits, flag) in [(true, ""), (false, "!")] {
                let name = format!("{OWNER}+30000+{wish}{flag}-");
                assert_eq!(place(claim, waits), name);
                is_place(
                    &format!("{name}0000000017"),
                    claim.sharing(),
                    waits,
                    None,
                    17,
                );
            }
            let since = UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
            for (number, written) in [(17, "0000000017"), (-17, "-000000017")] {
                let name = format!("{OWNER}+30000+{wish}+1700000000123-{written}");
                assert_eq!(taken_over(claim, since, number), name);
                is_place(&name, claim.sharing(), true, Some(since), number);
            }
        }
        marks_are_of_their_form();
        assert_eq!(child("token"), Child::Token);
        let length = Duration::from_millis(5);
        let reply = KeptReply::new("json [1, 2]");
        assert_eq!(mark_data(length, None), "5");
        assert_eq!(mark_data(length, Some(&reply)), "5 json [1, 2]");
        for reply in [None, Some(reply)] {
            let data = mark_data(length, reply.as_ref());
            assert_eq!(read_mark(&data), (length, reply));
        }
        assert_eq!(read_mark("x"), (Duration::ZERO, None));
    }

    fn is_place(name: &str, sharing: Sharing, waits: bool, since: Option<SystemTime>, number: i32) {
        let place = Place {
            name: name.to_owned(),
            owner: OWNER.to_owned(),
            ttl: Duration::from_secs(30),
            sharing,
            waits,
            since,
            number,
        };
        assert_eq!(child(name), Child::Place(place));
    }

    fn marks_are_of_their_form() {
        assert_eq!(child("slot-2"), Child::Slot(2));
        let id = "019ad5b1f9c07c3f9d0a1b2c3d4e5f60";
        let (closed, done) = (Leave::Closed(Duration::ZERO), Leave::Done(Duration::ZERO));
        let of = |name: String| match child(&name) {
            Child::Place(place) => place,
            other => panic!("{name} is {other:?}"),
        };
        let weight = Sharing::Permits {
            permits: 3,
            weight: 2,
        };
        for (leave, slot, place, name, part) in [
            (&closed, 0, None, format!("closed-0-{id}"), None),
            (&closed, 0, Some("x+1+1-5"), format!("closed-0-{id}"), None),
            (&done, 4, Some("x+1+2of3-5"), format!("done-4-{id}"), None),
            (
                &closed,
                4,
                Some("x+1+2of3--5"),
                format!("closed-4-{id}+2of3+-5"),
                Some((weight, -5)),
            ),
            (
                &closed,
                0,
                Some("x+1+shared-5"),
                format!("closed-0-{id}+shared+5"),
                Some((Sharing::Readers, 5)),
            ),
        ] {
            let place = place.map(|place| of(place.to_owned()));
            assert_eq!(mark(leave, slot, OWNER, place.as_ref()), name);
            let expected = MarkName {
                name: name.clone(),
                slot,
                is_done: leave.is_done(),
                part,
            };
            assert_eq!(child(&name), Child::Mark(expected));
        }
    }

    #[test]
    fn distinct_keys_have_distinct_nodes_of_their_own() {
        let keys = [
            "a",
            "ab",
            "a/",
            "a/b",
            "a%2fb",
            "A",
            ".",
            "..",
            "%2e",
            "zookeeper",
            "%7aookeeper",
            "ä",
            "a b",
            "a+b",
            "\u{1}",
            "\u{fffd}",
        ];
        let nodes: std::collections::HashSet<_> =
            keys.iter().map(|key| lock_node("", key)).collect();
        assert_eq!(nodes.len(), keys.len());
        for (key, node) in keys.iter().map(|key| (*key, encoded(key))) {
            assert_eq!(percent::decoded(&node).as_deref(), Some(key));
            #[cfg(feature = "inspect")]
            assert_eq!(lock(&node).as_deref(), Some(key));
            assert!(node.is_ascii() && !node.contains(['/', '+']), "{node}");
        }
    }

    #[test]
    fn numbers_go_on_below_zero() {
        let Child::Place(place) = child("x+10+1--2147483648") else {
            panic!("it is a place");
        };
        assert_eq!(place.number, i32::MIN);
    }

    #[test]
    fn what_others_keep_is_foreign() {
        for name in [
            "_c_1-lock-0000000000",
            "x",
            "x+1",
            "x+1+2",
            "x+1+2-",
            "x+1+2-3",
            "x+1+0of2-3",
            "x+1+3of2-3",
            "x+1+1of1-3",
            "x+a+1-3",
            "x+1+1+y-3",
            "closed-0-x+shared",
            "closed-0-x+2+5",
            "slot-",
            "done-0",
            "done-x-1",
        ] {
            assert_eq!(child(name), Child::Foreign, "{name}");
        }
    }
}
