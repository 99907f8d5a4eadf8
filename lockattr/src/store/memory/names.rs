//! The names by which tests speak of locks, and of the slots of those with permits.

use super::locks::Stored;
use crate::store::Sharing;

/// The lock whose name this is, and the slot where it is one's: `lock:geo`, and `{lock:geo}1` of its slot 1. Lock keys
/// have no braces, so none of them is the name of a slot.
pub(super) fn parts(name: &str) -> (&str, Option<usize>) {
    let slot = name
        .strip_prefix('{')
        .and_then(|rest| rest.rsplit_once('}'));
    let slot = slot.and_then(|(lock, slot)| Some((lock, slot.parse().ok()?)));
    slot.map_or((name, None), |(lock, slot)| (lock, Some(slot)))
}

/// Whether something that stands under a lock does so under such a name: under the lock's own all does.
pub(super) fn is_under(stored: &Stored, slot: Option<usize>) -> bool {
    slot.is_none_or(|slot| matches!(stored.sharing, Sharing::Permits { .. }) && stored.slot == slot)
}
