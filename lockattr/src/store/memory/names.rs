//! The names by which tests speak of locks, and of the slots of those with permits.

use super::locks::Stored;
use crate::store::Sharing;

/// The lock and the slot whose name this is: `lock:geo`, and `{lock:geo}1` of its slot 1. Lock keys have no
/// braces, so none of them is the name of a slot.
pub(super) fn parts(name: &str) -> (&str, usize) {
    let slot = name
        .strip_prefix('{')
        .and_then(|rest| rest.rsplit_once('}'));
    slot.map_or((name, 0), |(lock, slot)| (lock, slot.parse().unwrap_or(0)))
}

/// Whether something that stands under a lock does so under the name of this slot: of what has no slots, all
/// does under the lock's own.
pub(super) fn is_under(stored: &Stored, slot: usize) -> bool {
    match stored.sharing {
        Sharing::Permits { .. } => stored.slot == slot,
        Sharing::Alone | Sharing::Readers => slot == 0,
    }
}
