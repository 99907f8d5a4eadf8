//! The keys that were read, by the lock that they belong to.

use std::collections::BTreeMap;

use super::proto::KeyValue;
use super::wire::{KeyOf, Names, Stored};

#[derive(Default)]
pub(super) struct Met(BTreeMap<String, Keys>);

/// What was met of one lock.
#[derive(Default)]
pub(super) struct Keys {
    /// Who hold it, or what closes it, by slot.
    pub(super) holders: Vec<KeyValue>,
    places: Vec<KeyValue>,
}

impl Met {
    /// Passes over what is no lock's.
    pub(super) fn add(&mut self, names: &Names, kv: KeyValue) {
        match names.read(&kv.key) {
            Some(KeyOf::Lock(lock) | KeyOf::Holder(lock)) => {
                let keys = self.0.entry(lock.to_owned()).or_default();
                keys.holders.push(kv);
            }
            Some(KeyOf::Place(lock)) => {
                let keys = self.0.entry(lock.to_owned()).or_default();
                keys.places.push(kv);
            }
            None => {}
        }
    }

    /// The keys of one lock, in order.
    pub(super) fn take(&mut self, lock: &str) -> Keys {
        self.0.remove(lock).unwrap_or_default().sorted()
    }

    #[cfg(feature = "inspect")]
    pub(super) fn pop(&mut self) -> Option<(String, Keys)> {
        let (lock, keys) = self.0.pop_first()?;
        Some((lock, keys.sorted()))
    }

    /// Leaves the locks that are asked for.
    #[cfg(feature = "inspect")]
    pub(super) fn retain(&mut self, wanted: impl Fn(&str) -> bool) {
        self.0.retain(|lock, _| wanted(lock));
    }
}

impl Keys {
    fn sorted(mut self) -> Self {
        self.holders
            .sort_by_key(|kv| (Stored::read(kv).slot(), kv.create_revision));
        self.places.sort_by_key(|place| place.create_revision);
        self
    }

    /// The places of those who wait; a holder may have kept its own.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &KeyValue> {
        self.places.iter().filter(|place| {
            let Stored::Claimed { owner, .. } = Stored::read(place) else {
                return true;
            };
            let mut holders = self.holders.iter();
            !holders.any(|kv| Stored::read(kv).is_by(owner))
        })
    }
}
