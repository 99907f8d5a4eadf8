//! The requests of one step of the store, which share its bound.

use std::time::{Instant, SystemTime};

use super::fault::Failure;
use super::listing::{Listing, Mark, server_time};
use super::names;
use super::protocol::{
    Acl, Code, NodeKind, Request, Stat, children, created, data, done_together, was_set,
};
use super::session::{Answer, Life, Pending, Session};
use crate::error::StoreError;

/// A node that is made or removed by others in between is tried for again so often.
pub(super) const TRIES: usize = 8;

#[derive(Clone, Copy)]
pub(super) struct Step<'a> {
    pub(super) session: &'a Session,
    pub(super) root: &'a str,
    pub(super) acl: Acl,
    pub(super) deadline: Instant,
}

/// A moment of the leader's clock, and when it was told.
#[derive(Clone, Copy)]
pub(super) struct ServerTime {
    pub(super) at: SystemTime,
    pub(super) told: Instant,
}

impl ServerTime {
    /// It is this late there at least.
    pub(super) fn now(self) -> SystemTime {
        self.at + self.told.elapsed()
    }
}

/// Whether several requests were done together, or the first that was refused, and why.
pub(super) type Together = Result<(), (usize, Code)>;

impl Step<'_> {
    pub(super) fn send(&self, request: Request) -> Pending {
        self.session.send(request, self.deadline)
    }

    pub(super) async fn ask(&self, request: Request) -> Result<Answer, Failure> {
        self.send(request).answer().await
    }

    /// The session, which is waited for where there was none yet.
    pub(super) async fn life(&self) -> Result<Life, Failure> {
        if let Some(life) = self.session.life() {
            return Ok(life);
        }
        self.ask(Request::sync()).await?;
        let over = || Failure::InDoubt("the session has ended".to_owned());
        self.session.life().ok_or_else(over)
    }

    pub(super) async fn create(
        &self,
        path: &str,
        data: &str,
        kind: NodeKind,
    ) -> Result<(String, Stat), Failure> {
        let answer = self
            .ask(Request::create(path, data, kind, self.acl))
            .await?;
        Ok(created(&answer.body)?)
    }

    /// Says whether it was there.
    pub(super) async fn delete(&self, path: &str) -> Result<bool, Failure> {
        was_there(self.ask(Request::delete(path)).await)
    }

    pub(super) async fn set(&self, path: &str, data: &str, version: i32) -> Result<Stat, Failure> {
        let answer = self.ask(Request::set(path, data, version)).await?;
        Ok(was_set(&answer.body)?)
    }

    /// `None` where it is not there.
    pub(super) async fn get(
        &self,
        path: &str,
        watch: bool,
    ) -> Result<Option<(String, Stat)>, Failure> {
        match self.ask(Request::get(path, watch)).await {
            Ok(answer) => Ok(Some(data(&answer.body)?)),
            Err(Failure::Refused(Code::NO_NODE, _)) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    pub(super) async fn together(&self, requests: &[Request]) -> Result<Together, Failure> {
        let answer = self.ask(Request::multi(requests)).await?;
        Ok(done_together(&answer.body)?.map(|_| ()))
    }

    pub(super) fn lock_node(&self, lock: &str) -> String {
        names::lock_node(self.root, lock)
    }

    pub(super) fn slot_node(&self, lock: &str, slot: usize) -> String {
        format!("{}/{}{slot}", self.lock_node(lock), names::SLOT)
    }

    /// What stands at a lock.
    pub(super) async fn list(&self, lock: &str) -> Result<Listing, Failure> {
        listed(self.send(Request::list(&self.lock_node(lock), false))).await
    }

    /// Makes the node of a lock, and the root where that is not there yet.
    pub(super) async fn make_lock(&self, lock: &str) -> Result<(), Failure> {
        let container = Request::create_container(&self.lock_node(lock), self.acl);
        match self.ask(container.clone()).await {
            Err(Failure::Refused(Code::NO_NODE, _)) => {
                self.make_root().await?;
                was_made(self.ask(container).await)
            }
            made => was_made(made),
        }
    }

    /// Ancestors that are there may be others' to write to.
    async fn make_root(&self) -> Result<(), Failure> {
        let slashes = self.root.match_indices('/').skip(1).map(|(at, _)| at);
        for end in slashes {
            let made = self
                .create(&self.root[..end], "", NodeKind::Persistent)
                .await;
            match made {
                Ok(_) | Err(Failure::Refused(Code::NODE_EXISTS | Code::NO_AUTH, _)) => {}
                Err(failure) => return Err(failure),
            }
        }
        match self.create(self.root, "", NodeKind::Persistent).await {
            Ok(_) | Err(Failure::Refused(Code::NODE_EXISTS, _)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Removes the node of a lock that was taken by nobody else, and what is left there.
    pub(super) async fn remove_lock(&self, lock: &str) -> Result<(), Failure> {
        let node = self.lock_node(lock);
        for mark in self.list(lock).await?.marks {
            self.delete(&format!("{node}/{}", mark.name)).await?;
        }
        match self.delete(&node).await {
            // Others have made something of it.
            Ok(_) | Err(Failure::Refused(Code::NOT_EMPTY, _)) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// What of the marks still counts. The others are removed.
    pub(super) async fn marks(
        &self,
        lock: &str,
        listing: &Listing,
        now: ServerTime,
    ) -> Result<Vec<Mark>, Failure> {
        let mut marks = Vec::new();
        for of in &listing.marks {
            let path = format!("{}/{}", self.lock_node(lock), of.name);
            let Some((data, stat)) = self.get(&path, false).await? else {
                continue;
            };
            let since = server_time(stat.mtime);
            let (length, reply) = names::read_mark(&data);
            let remaining = (since + length).duration_since(now.now());
            match remaining {
                Ok(remaining) if !remaining.is_zero() => marks.push(Mark {
                    of: of.clone(),
                    since,
                    remaining,
                    reply,
                }),
                // One that was left since has another name.
                _ => drop(self.delete(&path).await?),
            }
        }
        Ok(marks)
    }
}

/// What a list of children says. A lock whose node is not there has none.
pub(super) async fn listed(pending: Pending) -> Result<Listing, Failure> {
    match pending.answer().await {
        Ok(answer) => Ok(Listing::new(&children(&answer.body)?)),
        Err(Failure::Refused(Code::NO_NODE, _)) => Ok(Listing::default()),
        Err(failure) => Err(failure),
    }
}

fn was_made(answer: Result<Answer, Failure>) -> Result<(), Failure> {
    match answer {
        Ok(_) | Err(Failure::Refused(Code::NODE_EXISTS, _)) => Ok(()),
        Err(failure) => Err(failure),
    }
}

pub(super) fn was_there(answer: Result<Answer, Failure>) -> Result<bool, Failure> {
    match answer {
        Ok(_) => Ok(true),
        Err(Failure::Refused(Code::NO_NODE, _)) => Ok(false),
        Err(failure) => Err(failure),
    }
}

/// A step found others at work each time that it has tried.
pub(super) fn restless() -> StoreError {
    StoreError::in_doubt("the nodes of the lock have changed each time that they were looked at")
}
