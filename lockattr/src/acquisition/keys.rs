//! What is locked: one key, alone or beside others, or all of several.

use std::slice;

use crate::key::{self, Keys};
use crate::redaction::Redactor;
use crate::store::Sharing;

/// The lock keys of one acquisition.
#[derive(Clone, Debug, Default)]
pub(crate) struct LockKeys {
    /// Whole keys, the client's prefix included.
    locks: Locks,
    /// The length of the prefix.
    prefix: u16,
}

#[derive(Clone, Debug)]
enum Locks {
    /// What most are: one, alone, shown as it is.
    One(String),
    Listed(Box<Listed>),
}

impl Default for Locks {
    fn default() -> Self {
        Self::One(String::new())
    }
}

#[derive(Clone, Debug)]
struct Listed {
    locks: Vec<String>,
    /// The keys as the user knows them.
    plain: String,
    redacted: Option<Redacted>,
    /// Who may hold them at the same time.
    sharing: Sharing,
}

#[derive(Clone, Debug)]
struct Redacted {
    by: Redactor,
    label: String,
}

impl LockKeys {
    pub(crate) fn new(
        prefix: &str,
        keys: Keys,
        sharing: Sharing,
        redactor: Option<&Redactor>,
    ) -> Self {
        let locks = keys.into_iter().map(|key| key.prefixed(prefix));
        // It has a few hundred bytes at most.
        let prefix = u16::try_from(prefix.len()).unwrap_or(u16::MAX);
        Self::of(locks, prefix, sharing, redactor)
    }

    /// One key, which is what most are, takes no list.
    fn of(
        mut locks: impl Iterator<Item = String>,
        prefix: u16,
        sharing: Sharing,
        redactor: Option<&Redactor>,
    ) -> Self {
        let first = locks.next().unwrap_or_default();
        let second = locks.next();
        let locks = if second.is_none() && sharing.is_alone() && redactor.is_none() {
            Locks::One(first)
        } else {
            let locks: Vec<_> = [first].into_iter().chain(second).chain(locks).collect();
            let plain = key::label(&keys(&locks, prefix).collect::<Vec<_>>());
            let redacted = redactor.map(|by| Redacted {
                by: by.clone(),
                label: redacted_label(&locks, prefix, by),
            });
            Locks::Listed(Box::new(Listed {
                locks,
                plain,
                redacted,
                sharing,
            }))
        };
        Self { locks, prefix }
    }

    /// Those of several locks for which this is true.
    pub(crate) fn only(&self, wanted: impl Fn(&String) -> bool) -> Self {
        let wanted = self.locks().iter().filter(|lock| wanted(lock)).cloned();
        Self::of(wanted, self.prefix, self.sharing(), self.redactor())
    }

    /// The whole lock keys, the client's prefix included.
    pub(crate) fn locks(&self) -> &[String] {
        match &self.locks {
            Locks::One(lock) => slice::from_ref(lock),
            Locks::Listed(listed) => &listed.locks,
        }
    }

    /// One of the keys as errors and logs show it.
    pub(crate) fn key(&self, lock: usize) -> String {
        let lock = self.locks().get(lock);
        let key = lock.map(|lock| &lock[usize::from(self.prefix)..]);
        match (key, self.redactor()) {
            (Some(key), Some(redactor)) => redactor.redacted(key),
            (key, _) => key.unwrap_or(self.label()).to_owned(),
        }
    }

    /// Who may hold them at the same time.
    pub(crate) fn sharing(&self) -> Sharing {
        match &self.locks {
            Locks::One(_) => Sharing::Alone,
            Locks::Listed(listed) => listed.sharing,
        }
    }

    /// The keys as errors and logs show them.
    pub(crate) fn label(&self) -> &str {
        if let Locks::Listed(listed) = &self.locks
            && let Some(redacted) = &listed.redacted
        {
            return &redacted.label;
        }
        self.plain()
    }

    /// The same for whoever is to see no more of it than this shows.
    pub(crate) fn label_for(&self, redactor: Option<&Redactor>) -> String {
        match redactor {
            Some(redactor) => redacted_label(self.locks(), self.prefix, redactor),
            None => self.label().to_owned(),
        }
    }

    /// The keys as the user knows them.
    pub(crate) fn plain(&self) -> &str {
        match &self.locks {
            Locks::One(lock) => &lock[usize::from(self.prefix)..],
            Locks::Listed(listed) => &listed.plain,
        }
    }

    /// What redacts them where they are shown, if anything does.
    pub(crate) fn redactor(&self) -> Option<&Redactor> {
        match &self.locks {
            Locks::One(_) => None,
            Locks::Listed(listed) => Some(&listed.redacted.as_ref()?.by),
        }
    }
}

/// Lock keys without their prefix.
fn keys(locks: &[String], prefix: u16) -> impl Iterator<Item = &str> {
    locks.iter().map(move |lock| &lock[usize::from(prefix)..])
}

fn redacted_label(locks: &[String], prefix: u16, redactor: &Redactor) -> String {
    let shown: Vec<_> = keys(locks, prefix)
        .map(|key| redactor.redacted(key))
        .collect();
    key::label(&shown.iter().map(String::as_str).collect::<Vec<_>>())
}

#[cfg(test)]
impl LockKeys {
    pub(crate) fn of_one(lock: &str) -> Self {
        Self::of([lock.to_owned()].into_iter(), 0, Sharing::Alone, None)
    }
}
