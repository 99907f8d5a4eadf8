//! What is stored, which two releases have to agree on.
//!
//! | node | what it is |
//! |---|---|
//! | `{root}/{key}` | a container for each lock; its name is the whole key, [encoded] |
//! | `…/{owner}+{ttl}+{permits}-{number}` | a claim's place in the queue, ephemeral; `number` is the server's |
//! | `…/slot-{slot}` | of a lock with permits, a slot that is held, ephemeral; its data is the name of the place of its holder |
//! | `…/closed-{slot}-{id}`, `…/done-{slot}-{id}` | what the release of an owner with this id has left, for the milliseconds that are its data; behind a space, the reply that is left with it |
//! | `…/token` | the last token that was to be larger than the servers' transaction number, if there was one |
//!
//! The data of a place is `1 {owner} {ttl} {permits}`: the version of the form, and what the name says. It
//! is held, or waited for, since the node was made, by the leader's clock, and its session is the node's
//! owner in the words of ZooKeeper. A ttl is in milliseconds. Of those who have the same number of permits,
//! that many in the order of their numbers may hold the lock.

use std::time::Duration;

use crate::percent;
use crate::reply::KeptReply;
use crate::store::Claim;

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

/// The name of a claim's place, without the number.
pub(super) fn place(claim: Claim<'_>) -> String {
    let ttl = claim.ttl.as_millis();
    format!("{}+{ttl}+{}-", encoded(claim.owner), claim.permits)
}

/// What a release leaves at a slot. No other release ever leaves one of this name, so that whoever has found it to
/// be over removes no other one.
pub(super) fn mark(is_done: bool, slot: usize, owner: &str) -> String {
    let prefix = if is_done { DONE } else { CLOSED };
    let id = owner.split_once('@').map_or(owner, |(id, _)| id);
    format!("{prefix}{slot}-{}", encoded(id))
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
    format!("1 {} {ttl} {}", claim.owner, claim.permits)
}

/// A place in the queue of a lock, as its name says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) name: String,
    pub(super) owner: String,
    pub(super) ttl: Duration,
    pub(super) permits: u32,
    /// Goes on below zero when it has come to the end of its 32 bits.
    pub(super) number: i32,
}

/// What a child of a lock's node is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Child {
    Place(Place),
    Slot(usize),
    Mark { is_done: bool, slot: usize },
    Token,
    Foreign,
}

pub(super) fn child(name: &str) -> Child {
    let slot = name.strip_prefix(SLOT).and_then(|slot| slot.parse().ok());
    if let Some(slot) = slot {
        return Child::Slot(slot);
    }
    for (prefix, is_done) in [(CLOSED, false), (DONE, true)] {
        let mark = name
            .strip_prefix(prefix)
            .and_then(|mark| mark.split_once('-'));
        if let Some((slot, id)) = mark
            && let Ok(slot) = slot.parse()
            && !id.is_empty()
        {
            return Child::Mark { is_done, slot };
        }
    }
    if name == TOKEN {
        return Child::Token;
    }
    read_place(name).map_or(Child::Foreign, Child::Place)
}

fn read_place(name: &str) -> Option<Place> {
    let mut parts = name.split('+');
    let (owner, ttl, rest) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() {
        return None;
    }
    let (permits, number) = rest.split_once('-')?;
    Some(Place {
        name: name.to_owned(),
        owner: percent::decoded(owner)?,
        ttl: Duration::from_millis(ttl.parse().ok()?),
        permits: permits.parse().ok()?,
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
        let claim = Claim::new(&locks, OWNER, Duration::from_secs(30)).permits(3);
        assert_eq!(lock_node("/locks", &locks[0]), "/locks/lock:sync:42");
        assert_eq!(
            place(claim),
            "019ad5b1f9c07c3f9d0a1b2c3d4e5f60@web-7:42+30000+3-"
        );
        assert_eq!(
            place_data(claim),
            "1 019ad5b1f9c07c3f9d0a1b2c3d4e5f60@web-7:42 30000 3"
        );
        let name = format!("{}0000000017", place(claim));
        assert_eq!(
            child(&name),
            Child::Place(Place {
                name: name.clone(),
                owner: OWNER.to_owned(),
                ttl: Duration::from_secs(30),
                permits: 3,
                number: 17,
            })
        );
        assert_eq!(child("slot-2"), Child::Slot(2));
        for (is_done, slot, name) in [
            (false, 0, "closed-0-019ad5b1f9c07c3f9d0a1b2c3d4e5f60"),
            (true, 4, "done-4-019ad5b1f9c07c3f9d0a1b2c3d4e5f60"),
        ] {
            assert_eq!(mark(is_done, slot, OWNER), name);
            assert_eq!(child(name), Child::Mark { is_done, slot });
        }
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
            "x+a+2-3",
            "slot-",
            "done-0",
            "done-x-1",
        ] {
            assert_eq!(child(name), Child::Foreign, "{name}");
        }
    }
}
