//! What stands under a key, as people are shown it, with how long its lease lets it stand there.

use std::time::{Duration, SystemTime};

use super::met::Keys;
use crate::owner;
use crate::reply::KeptReply;
use crate::runtime::together::{Boxed, all};
use crate::store::etcd::Etcd;
use crate::store::etcd::fault::{Fault, Kind};
use crate::store::etcd::leases::seconds_of_mark;
use crate::store::etcd::members::{Answer, TIME_TO_LIVE};
use crate::store::etcd::proto::{KeyValue, LeaseId, TimeToLive};
use crate::store::etcd::wire::Stored;
use crate::store::inspect::{Entry, EntryKind, Listed};

/// The id of nobody, who has left a lock closed.
const NOBODY: &str = "00000000000000000000000000000000@";

impl Etcd {
    /// A lock with what its keys say; `None` where nothing of it is there any more.
    pub(super) async fn listed(&self, lock: &str, keys: &Keys) -> Result<Option<Listed>, Fault> {
        let entries = keys.slots.iter().map(|(slot, kv)| {
            Box::pin(self.entry(*slot, kv)) as Boxed<'_, Result<Option<Entry>, Fault>>
        });
        let entries = all(entries.collect()).await;
        let entries: Vec<_> = entries
            .into_iter()
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?;
        let waiters = u64::try_from(keys.waiting().count()).unwrap_or(u64::MAX);
        let permits = keys
            .slots
            .iter()
            .filter_map(|(_, kv)| match Stored::read(kv) {
                Stored::Claimed { permits, .. } => Some(permits),
                _ => None,
            });
        let is_there = !entries.is_empty() || waiters > 0;
        Ok(is_there.then(|| Listed::new(lock, entries, waiters).permits(permits.max())))
    }

    /// What stands in a slot; `None` where its lease has ended.
    pub(super) async fn entry(&self, slot: usize, kv: &KeyValue) -> Result<Option<Entry>, Fault> {
        if kv.lease == 0 {
            let kind = read(kv, Duration::ZERO, SystemTime::now());
            return Ok(Some(Entry::new(slot, kind, None)));
        }
        let request = LeaseId { id: kv.lease };
        let members = &self.0.members;
        let asking = members.call(TIME_TO_LIVE, request, members.patience(), drop);
        let left: Result<Answer<TimeToLive>, Fault> = asking.await;
        let left = match left {
            Ok(Answer { message, .. }) => message.ttl,
            Err(fault) if fault.kind == Kind::NoLease => -1,
            Err(fault) => return Err(fault),
        };
        let left = u64::try_from(left).ok().map(Duration::from_secs);
        let reply = match Stored::read(kv) {
            Stored::Done { reply, .. } => reply.and_then(|reply| KeptReply::new(reply).bytes()),
            _ => None,
        };
        Ok(left.map(|left| {
            let kind = read(kv, left, SystemTime::now());
            Entry::new(slot, kind, Some(left)).replied(reply)
        }))
    }
}

/// What a key says whose lease runs for so long still.
fn read(kv: &KeyValue, left: Duration, now: SystemTime) -> EntryKind {
    match Stored::read(kv) {
        Stored::Claimed { owner, ttl, .. } if owner.starts_with(NOBODY) => {
            let whole = Duration::from_secs(seconds_of_mark(ttl));
            EntryKind::Closed {
                owner: owner.to_owned(),
                since: now.checked_sub(whole.saturating_sub(left)),
            }
        }
        Stored::Claimed { owner, .. } => EntryKind::Held {
            owner: owner.to_owned(),
            since: owner::since(owner),
        },
        Stored::Done { since, .. } => EntryKind::Done { since },
        Stored::Foreign(found) => EntryKind::Foreign {
            found: found.to_owned(),
        },
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn what_is_left_says_since_when_it_is_closed() {
        let kv = KeyValue {
            value: format!("{NOBODY}host:7 1 60000").into(),
            lease: 7,
            ..KeyValue::default()
        };
        let now = UNIX_EPOCH + Duration::from_secs(1000);
        let since = Some(UNIX_EPOCH + Duration::from_secs(980));
        let owner = format!("{NOBODY}host:7");
        let found = read(&kv, Duration::from_secs(41), now);
        assert_eq!(found, EntryKind::Closed { owner, since });
    }
}
