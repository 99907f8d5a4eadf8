//! The list: all keys that are asked for, some at a time, and then the locks that they are of.

use std::vec::IntoIter;

use super::proto::{RangePart, RangePartAnswer};
use super::ranges::{Span, spans};
use crate::runtime::together::{Boxed, all};
use crate::store::Reply;
use crate::store::etcd::Etcd;
use crate::store::etcd::fault::Fault;
use crate::store::etcd::members::Answer;
use crate::store::etcd::met::{Keys, Met};
use crate::store::inspect::{Listed, Listing, Page, matches};

const RANGE: &str = "/etcdserverpb.KV/Range";

/// So many keys are read in one step.
const STEP: i64 = 1000;

/// So many locks are looked at together, and make a page.
const AT_A_TIME: usize = 64;

pub(super) struct GatheredLocks<'a> {
    etcd: &'a Etcd,
    prefix: &'a str,
    pattern: &'a str,
    /// What is being read, and what is to be read yet.
    span: Option<Span>,
    spans: IntoIter<Span>,
    met: Met,
}

impl<'a> GatheredLocks<'a> {
    pub(super) fn new(etcd: &'a Etcd, prefix: &'a str, pattern: &'a str) -> Self {
        let mut spans = spans(prefix, pattern).into_iter();
        Self {
            etcd,
            prefix,
            pattern,
            span: spans.next(),
            spans,
            met: Met::default(),
        }
    }

    /// Reads some keys more.
    async fn gather(&mut self, (key, range_end): Span) -> Result<(), Fault> {
        let members = &self.etcd.0.members;
        let request = RangePart {
            key,
            range_end: range_end.clone(),
            limit: STEP,
        };
        let asking = members.call(RANGE, request, members.patience(), drop);
        let answer: Answer<RangePartAnswer> = asking.await?;
        let RangePartAnswer { kvs, more } = answer.message;
        self.span = match kvs.last() {
            Some(last) if more => Some((next_key(&last.key), range_end)),
            _ => self.spans.next(),
        };
        for kv in kvs {
            self.met.add(&self.etcd.0.names, kv);
        }
        if self.span.is_none() {
            let (prefix, pattern) = (self.prefix, self.pattern);
            self.met.retain(|lock| {
                let key = lock.strip_prefix(prefix);
                key.is_some_and(|key| matches(pattern, key))
            });
        }
        Ok(())
    }

    /// What the next locks are.
    async fn some(&mut self) -> Result<Option<Page>, Fault> {
        let some: Vec<(String, Keys)> = std::iter::from_fn(|| self.met.pop())
            .take(AT_A_TIME)
            .collect();
        if some.is_empty() {
            return Ok(None);
        }
        let asks = some.iter().map(|(lock, keys)| {
            Box::pin(self.etcd.listed(lock, keys)) as Boxed<'_, Result<Option<Listed>, Fault>>
        });
        let listed = all(asks.collect()).await.into_iter();
        let locks = listed.filter_map(Result::transpose);
        Ok(Some(Page::new(locks.collect::<Result<_, _>>()?)))
    }
}

impl Listing for GatheredLocks<'_> {
    fn next(&mut self) -> Reply<'_, Option<Page>> {
        Box::pin(async move {
            let page = match self.span.clone() {
                Some(span) => self.gather(span).await.map(|()| Some(Page::default())),
                None => self.some().await,
            };
            page.map_err(Fault::told)
        })
    }
}

/// The first key behind another one.
fn next_key(key: &[u8]) -> Vec<u8> {
    let mut next = key.to_vec();
    next.push(0);
    next
}
