//! The names of locks and of their slots.

use std::borrow::Cow;

use super::super::Held;

/// The names that a claim is about.
pub(super) enum Slots<'a> {
    /// All of these locks are wanted.
    Locks(Cow<'a, [String]>),
    /// One of these slots of a lock.
    OfOne(Vec<String>),
}

impl<'a> Slots<'a> {
    pub(super) fn all(locks: &'a [String], permits: u32) -> Self {
        match locks {
            [lock] if permits > 1 => {
                let slots = 0..usize::try_from(permits).unwrap_or(usize::MAX);
                Self::OfOne(slots.map(|slot| name(lock, slot).into_owned()).collect())
            }
            locks => Self::Locks(locks.into()),
        }
    }

    /// What is held of a claim.
    pub(super) fn held(lease: Held<'a>) -> Self {
        match lease.claim.locks {
            [lock] if lease.slot > 0 => {
                Self::Locks(vec![name(lock, lease.slot).into_owned()].into())
            }
            locks => Self::Locks(locks.into()),
        }
    }

    pub(super) fn names(&self) -> &[String] {
        match self {
            Self::Locks(names) => names,
            Self::OfOne(names) => names,
        }
    }

    /// Which slot the name with this index is.
    pub(super) fn slot(&self, index: usize) -> usize {
        match self {
            Self::Locks(_) => 0,
            Self::OfOne(_) => index,
        }
    }

    pub(super) fn into_owned(self) -> Slots<'static> {
        match self {
            Self::Locks(names) => Slots::Locks(names.into_owned().into()),
            Self::OfOne(names) => Slots::OfOne(names),
        }
    }
}

/// The lock and the slot whose name this is.
pub(super) fn parts(name: &str) -> (&str, usize) {
    let slot = name
        .strip_prefix('{')
        .and_then(|rest| rest.rsplit_once('}'));
    slot.map_or((name, 0), |(lock, slot)| (lock, slot.parse().unwrap_or(0)))
}

/// The name of a lock's slot. Lock keys have no braces, so none of them is the name of a slot.
pub(super) fn name(lock: &str, slot: usize) -> Cow<'_, str> {
    if slot == 0 {
        lock.into()
    } else {
        format!("{{{lock}}}{slot}").into()
    }
}
