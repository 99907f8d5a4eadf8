//! What is locked: one key, all of several, or a slot of one.

use std::slice;

use crate::key::{self, Keys};

/// The lock keys of one acquisition.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockKeys {
    /// Whole keys, the client's prefix included.
    locks: OneOrSeveral,
    /// The length of the prefix.
    prefix: u16,
    /// How many holders there may be at a time.
    permits: u16,
}

#[derive(Clone, Debug)]
enum OneOrSeveral {
    One(String),
    Several(Box<Several>),
}

impl Default for OneOrSeveral {
    fn default() -> Self {
        Self::One(String::new())
    }
}

#[derive(Clone, Debug)]
struct Several {
    locks: Vec<String>,
    /// The keys as the user knows them.
    label: String,
}

impl LockKeys {
    pub(crate) fn new(prefix: &str, keys: Keys, permits: u32) -> Self {
        let locks = keys.into_iter().map(|key| key.prefixed(prefix));
        Self {
            // A prefix has a few hundred bytes, and a key a thousand permits, at most.
            permits: u16::try_from(permits).unwrap_or(u16::MAX),
            ..Self::of(locks, u16::try_from(prefix.len()).unwrap_or(u16::MAX))
        }
    }

    /// One key, which is what most are, takes no list.
    fn of(mut locks: impl Iterator<Item = String>, prefix: u16) -> Self {
        let first = locks.next().unwrap_or_default();
        let locks = if let Some(second) = locks.next() {
            let locks: Vec<_> = [first, second].into_iter().chain(locks).collect();
            let labels = locks.iter().map(|lock| &lock[usize::from(prefix)..]);
            let label = key::label(&labels.collect::<Vec<_>>());
            OneOrSeveral::Several(Box::new(Several { locks, label }))
        } else {
            OneOrSeveral::One(first)
        };
        Self {
            locks,
            prefix,
            permits: 1,
        }
    }

    /// Those of several locks for which this is true.
    pub(crate) fn only(&self, wanted: impl Fn(&String) -> bool) -> Self {
        let wanted = self.locks().iter().filter(|lock| wanted(lock)).cloned();
        Self::of(wanted, self.prefix)
    }

    /// The whole lock keys, the client's prefix included.
    pub(crate) fn locks(&self) -> &[String] {
        match &self.locks {
            OneOrSeveral::One(lock) => slice::from_ref(lock),
            OneOrSeveral::Several(several) => &several.locks,
        }
    }

    /// One of the keys as the user knows it.
    pub(crate) fn key(&self, lock: usize) -> String {
        let lock = self.locks().get(lock);
        let key = lock.map(|lock| &lock[usize::from(self.prefix)..]);
        key.unwrap_or(self.label()).to_owned()
    }

    /// How many holders may be at a time.
    pub(crate) fn permits(&self) -> u32 {
        self.permits.into()
    }

    /// The keys as the user knows them, for errors and logs.
    pub(crate) fn label(&self) -> &str {
        match &self.locks {
            OneOrSeveral::One(lock) => &lock[usize::from(self.prefix)..],
            OneOrSeveral::Several(several) => &several.label,
        }
    }
}

#[cfg(test)]
impl LockKeys {
    pub(crate) fn of_one(lock: &str) -> Self {
        Self::of([lock.to_owned()].into_iter(), 0)
    }
}
