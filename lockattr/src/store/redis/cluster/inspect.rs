//! What the locks of a cluster look like to people, and how they are ended.
//!
//! All nodes that keep hash slots are scanned at the same time, for the names of locks alone; what each lock
//! is, the node says that keeps it by then. So a key that was left on a node which does not keep it any more is
//! no lock, and one that is met on two nodes is listed once. A key that goes to a node whose scan is over, from
//! one where it has not come to it, would not be met: so nodes that were given hash slots meanwhile are scanned
//! again.
//!
//! # Rights
//! Beside those on a single server: `+cluster|nodes`.

use redis::{Cmd, Value};

use super::Cluster;
use super::slots::slot_of;
use super::steering::Steering;
use crate::error::StoreError;
use crate::store::Reply;
use crate::store::inspect::{Ended, Entry, Finding, Inspect, Listing, Shown};
use crate::store::redis::fault::Fault;
use crate::store::redis::inspect::{Filter, RIGHTS, Route, end, shown_by_parts};
use crate::store::redis::timeouts::Deadline;

mod claims;
mod doctor;
mod list;

use list::ClusterLocks;

impl Route for Cluster {
    async fn ask(&self, lock: &str, command: &Cmd) -> Result<Value, StoreError> {
        let mut deadline = self.long_deadline();
        let asked = self.ask_steered(lock, command, &mut deadline).await;
        asked.map_err(|fault| fault.advised(RIGHTS.0, RIGHTS.1).error)
    }
}

impl Cluster {
    async fn ask_steered(
        &self,
        lock: &str,
        command: &Cmd,
        deadline: &mut Deadline<'_>,
    ) -> Result<Value, Fault> {
        let mut steering = Steering::new(&self.nodes, slot_of(lock));
        loop {
            let node = steering.next(deadline).await?;
            match node.connections.ask(command.clone(), deadline).await {
                Err(fault) => steering.failed(node, fault),
                Ok((answer, _)) => return Ok(answer),
            }
        }
    }

    /// What stands under a lock; `None` where its keys are on two nodes, since their hash slot moves.
    async fn show_steered(&self, lock: &str) -> Result<Option<Shown>, Fault> {
        let mut deadline = self.long_deadline();
        let mut steering = Steering::new(&self.nodes, slot_of(lock));
        loop {
            let node = steering.next(&mut deadline).await?;
            if steering.is_split {
                return Ok(None);
            }
            match node.show_once(lock, &mut deadline).await {
                Err(fault) => steering.failed(node, fault),
                Ok(shown) => return Ok(Some(shown)),
            }
        }
    }
}

impl Inspect for Cluster {
    fn list<'a>(&'a self, prefix: &'a str, pattern: &'a str) -> Box<dyn Listing + 'a> {
        Box::new(ClusterLocks::new(self, Filter::new(prefix, pattern)))
    }

    fn show<'a>(&'a self, lock: &'a str) -> Reply<'a, Shown> {
        Box::pin(async move {
            let shown = self.show_steered(lock).await;
            match shown.map_err(|fault| fault.advised(RIGHTS.0, RIGHTS.1).error)? {
                Some(shown) => Ok(shown),
                None => shown_by_parts(self, &self.names, lock).await,
            }
        })
    }

    fn end<'a>(&'a self, lock: &'a str, entry: &'a Entry) -> Reply<'a, Ended> {
        Box::pin(end(self, lock, entry))
    }

    fn diagnose(&self) -> Reply<'_, Vec<Finding>> {
        Box::pin(self.diagnosed())
    }
}
