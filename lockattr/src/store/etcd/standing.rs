//! What stands under a lock, for whoever asks without taking it: its keys as they stand in one moment, and then how
//! long their leases let them stand there.

use std::time::{Duration, SystemTime};

use super::fault::{Fault, Kind};
use super::leases::seconds_of_mark;
use super::members::{Answer, TIME_TO_LIVE, TXN};
use super::met::{Keys, Met};
use super::proto::{KeyValue, LeaseId, Range, Request, Response, TimeToLive, Txn, TxnAnswer};
use super::wire::Stored;
use super::{Etcd, op, range};
use crate::owner;
use crate::reply::KeptReply;
use crate::runtime::together::{Boxed, all};
use crate::store::{Entry, EntryKind, Listed, Sharing};

/// The id of nobody, who has left a lock closed.
const NOBODY: &str = "00000000000000000000000000000000@";

impl Etcd {
    pub(super) async fn standing(&self, lock: &str) -> Result<Listed, Fault> {
        let keys = self.keys(lock).await?;
        let listed = self.listed(lock, &keys).await?;
        Ok(listed.unwrap_or_else(|| Listed::new(lock, Vec::new(), 0)))
    }

    /// All keys of a lock.
    pub(super) async fn keys(&self, lock: &str) -> Result<Keys, Fault> {
        let names = &self.0.names;
        let ranges = [range(lock.as_bytes().to_vec()), names.claims(lock)];
        let mut met = Met::default();
        for kv in self.read(ranges).await? {
            met.add(names, kv);
        }
        Ok(met.take(lock))
    }

    /// A transaction in nobody's name.
    pub(super) async fn ask_once(&self, txn: Txn) -> Result<Answer<TxnAnswer>, Fault> {
        let patience = self.0.members.patience();
        self.0.members.call(TXN, txn, patience, drop).await
    }

    /// What stands under some keys, in one moment.
    pub(super) async fn read(
        &self,
        ranges: impl IntoIterator<Item = Range>,
    ) -> Result<Vec<KeyValue>, Fault> {
        let success = ranges.into_iter().map(|range| op(Request::Range(range)));
        let txn = Txn {
            success: success.collect(),
            ..Txn::default()
        };
        let answer = self.ask_once(txn).await?.message;
        let kvs = answer.responses.into_iter().map(|one| match one.response {
            Some(Response::Range(range)) => range.kvs,
            _ => Vec::new(),
        });
        Ok(kvs.flatten().collect())
    }

    /// A lock with what its keys say; `None` where nothing of it is there any more.
    pub(super) async fn listed(&self, lock: &str, keys: &Keys) -> Result<Option<Listed>, Fault> {
        let entries = keys
            .holders
            .iter()
            .map(|kv| Box::pin(self.entry(kv)) as Boxed<'_, Result<Option<Entry>, Fault>>);
        let entries = all(entries.collect()).await;
        let entries: Vec<_> = entries
            .into_iter()
            .filter_map(Result::transpose)
            .collect::<Result<_, _>>()?;
        let waiters = u64::try_from(keys.waiting().count()).unwrap_or(u64::MAX);
        let holders = keys.holders.iter();
        let sharings = holders.filter_map(|kv| Stored::read(kv).sharing());
        let mut listed = Listed::new(lock, entries, waiters);
        for sharing in sharings {
            match sharing {
                Sharing::Alone => {}
                Sharing::Readers => listed.shared = true,
                Sharing::Permits { permits, .. } => {
                    listed.permits = listed.permits.max(Some(permits));
                }
            }
        }
        let is_there = !listed.entries.is_empty() || waiters > 0;
        Ok(is_there.then_some(listed))
    }

    /// What a key of a lock says; `None` where its lease has ended.
    pub(super) async fn entry(&self, kv: &KeyValue) -> Result<Option<Entry>, Fault> {
        if kv.lease == 0 {
            let kind = read(kv, Duration::ZERO, SystemTime::now());
            return Ok(Some(Entry::new(0, kind, None)));
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
        let stored = Stored::read(kv);
        let (slot, sharing) = (stored.slot(), stored.sharing().unwrap_or_default());
        let reply = match stored {
            Stored::Done { reply, .. } => reply.and_then(|reply| KeptReply::new(reply).bytes()),
            _ => None,
        };
        Ok(left.map(|left| {
            let kind = read(kv, left, SystemTime::now());
            Entry::new(slot, kind, Some(left))
                .replied(reply)
                .weight(sharing.weight())
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
        Stored::Claimed { owner, since, .. } => EntryKind::Held {
            owner: owner.to_owned(),
            since: since.or_else(|| owner::since(owner)),
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
