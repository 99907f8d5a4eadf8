//! Which hash slots each node says that it keeps, in its own words: others may not have heard of it yet.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redis::Value;

use super::super::Cluster;
use crate::runtime::together::{Boxed, all};
use crate::store::redis::Redis;
use crate::store::redis::fault::Fault;
use crate::store::redis::reply::text;

/// What a node says of itself.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct OwnSlots {
    pub(super) kept: BTreeSet<u16>,
    /// Hash slots that are on their way to it.
    pub(super) importing: BTreeSet<u16>,
}

/// All nodes that keep hash slots, by address, and those of them that have not said which.
#[derive(Default)]
pub(super) struct SlotClaims {
    pub(super) nodes: BTreeMap<String, (Arc<Redis>, OwnSlots)>,
    pub(super) silent: BTreeMap<String, Fault>,
}

impl Cluster {
    /// Asks all nodes anew.
    pub(super) async fn slot_claims(&self) -> Result<SlotClaims, Fault> {
        // One look may have begun a while ago.
        for _ in 0..2 {
            let mut latest = self.nodes.refresh();
            let looked = latest.wait_for(Option::is_some).await;
            let looked = looked.ok().and_then(|looked| looked.clone());
            looked.unwrap_or(Ok(()))?;
        }
        let asks = self.nodes.primaries().into_iter().map(|node| {
            Box::pin(async move {
                let own = own_slots(&node).await;
                (node, own)
            }) as Boxed<'_, (Arc<Redis>, Result<OwnSlots, Fault>)>
        });
        let mut claims = SlotClaims::default();
        for (node, own) in all(asks.collect()).await {
            let address = node.address();
            match own {
                Ok(own) => {
                    claims.nodes.insert(address, (node, own));
                }
                Err(fault) => {
                    claims.silent.insert(address, fault);
                }
            }
        }
        Ok(claims)
    }
}

impl SlotClaims {
    /// The nodes that may have keys which they had not when they were scanned. Of a hash slot that was on its way
    /// already when nodes were scanned `again`, all keys have been met.
    pub(super) fn gained_since(&self, before: &Self, again: bool) -> BTreeSet<String> {
        let gained = self.nodes.iter().filter(|(address, (_, own))| {
            let Some((_, known)) = before.nodes.get(*address) else {
                return true;
            };
            let importing = if again {
                !own.importing.is_subset(&known.importing)
            } else {
                !own.importing.is_empty()
            };
            importing || !own.kept.is_subset(&known.kept)
        });
        gained.map(|(address, _)| address.clone()).collect()
    }
}

async fn own_slots(node: &Redis) -> Result<OwnSlots, Fault> {
    let mut command = redis::cmd("CLUSTER");
    command.arg("NODES");
    let mut deadline = node.deadline();
    let (answer, _) = node.connections.ask(command, &mut deadline).await?;
    read(&answer).ok_or_else(|| node.protocol_error(&answer))
}

/// Reads the node's own line: `id address flags primary ping pong epoch state`, and then its hash slots, as
/// `7`, `8-99`, `[100->-id]` of one that leaves it and `[101-<-id]` of one that comes.
fn read(answer: &Value) -> Option<OwnSlots> {
    let answer = text(answer)?;
    let mut words = answer.lines().map(str::split_whitespace);
    let own = words.find(|words| {
        let flags = words.clone().nth(2);
        flags.is_some_and(|flags| flags.split(',').any(|flag| flag == "myself"))
    })?;
    let mut slots = OwnSlots::default();
    for word in own.skip(8) {
        if let Some(moving) = word.strip_prefix('[') {
            if let Some((slot, _)) = moving.split_once("-<-") {
                slots.importing.insert(slot.parse().ok()?);
            }
            continue;
        }
        let (first, last) = word.split_once('-').unwrap_or((word, word));
        let (first, last): (u16, u16) = (first.parse().ok()?, last.parse().ok()?);
        slots.kept.extend(first..=last);
    }
    Some(slots)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nodes_own_line_says_what_it_keeps_and_what_comes() {
        let nodes = "a 127.0.0.1:1@2 master - 0 1 2 connected 0-99\n\
                     b 127.0.0.1:3@4 myself,master - 0 0 3 connected 100 200-202 [200->-a] [7-<-a]\n";
        let own = read(&Value::BulkString(nodes.as_bytes().to_vec())).expect("a line");
        assert_eq!(own.kept, BTreeSet::from([100, 200, 201, 202]));
        assert_eq!(own.importing, BTreeSet::from([7]));
        for other in [
            "",
            "a b master - 0 1 2 connected 0-99",
            "a b myself - 0 0 0 c x-y",
        ] {
            assert_eq!(read(&Value::BulkString(other.as_bytes().to_vec())), None);
        }
    }
}
