//! Fencing tokens: the number of the transaction in which the holder writes to its place.
//!
//! Transactions are numbered across all nodes, and by all leaders, in one order. A token that has to be
//! larger than that is remembered at the lock, and the next ones are larger than it.

use super::ZooKeeper;
use super::fault::Failure;
use super::names;
use super::protocol::{Code, NodeKind};
use super::release::found_in;
use super::step::{Step, TRIES, restless};
use crate::error::StoreError;
use crate::store::{Found, Held, Token};

impl ZooKeeper {
    pub(super) async fn draw(&self, lease: Held<'_>) -> Result<Token, StoreError> {
        let step = self.step();
        let claim = lease.claim;
        let known = self.session.claims().get(claim.owner);
        let Some((nodes, true)) = known else {
            return self.not_held(&step, lease).await;
        };
        if nodes.slot != lease.slot || nodes.places.len() != claim.locks.len() {
            return self.not_held(&step, lease).await;
        }
        let mut number = 0;
        for place in &nodes.places {
            match step.set(place, &names::place_data(claim), -1).await {
                Ok(stat) => number = u64::try_from(stat.mzxid).unwrap_or(0).max(number),
                Err(Failure::Refused(Code::NO_NODE, _)) => {
                    return self.not_held(&step, lease).await;
                }
                Err(failure) => return Err(failure.into()),
            }
        }
        for _ in 0..TRIES {
            if let Some(token) = remembered(&step, lease, number).await? {
                return Ok(Token::Drawn(token));
            }
        }
        Err(restless())
    }

    async fn not_held(&self, step: &Step<'_>, lease: Held<'_>) -> Result<Token, StoreError> {
        let mut found = Found::Nothing;
        for lock in lease.claim.locks {
            let listing = step.list(lock).await?;
            if found_in(&listing, lease.claim) == Found::Another {
                found = Found::Another;
            }
        }
        Ok(Token::NotHeld(found))
    }
}

/// The transaction's number, or a larger one, which is kept then. Nothing where another has drawn meanwhile.
async fn remembered(step: &Step<'_>, lease: Held<'_>, number: u64) -> Result<Option<u64>, Failure> {
    let locks = lease.claim.locks.iter();
    let nodes = locks.map(|lock| format!("{}/{}", step.lock_node(lock), names::TOKEN));
    let mut token = number.max(lease.at_least);
    let mut kept = Vec::new();
    for node in nodes {
        let before = step.get(&node, false).await?;
        let version = before.map(|(last, stat)| {
            let last: u64 = last.parse().unwrap_or(0);
            token = token.max(last.saturating_add(1));
            stat.version
        });
        kept.push((node, version));
    }
    if token == number {
        return Ok(Some(token));
    }
    for (node, version) in kept {
        let text = token.to_string();
        let kept = if let Some(version) = version {
            step.set(&node, &text, version).await.map(|_| ())
        } else {
            let kind = NodeKind::Persistent;
            step.create(&node, &text, kind).await.map(|_| ())
        };
        match kept {
            Ok(()) => {}
            Err(Failure::Refused(Code::BAD_VERSION | Code::NODE_EXISTS, _)) => return Ok(None),
            Err(failure) => return Err(failure),
        }
    }
    Ok(Some(token))
}
