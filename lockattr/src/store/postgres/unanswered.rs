//! Requests for locks that are on their way, or whose connection has ended before they were answered.
//!
//! A server goes on with what it has received, also when nobody listens to the answer any more. What it is
//! done with is known by its session: that ends after the last request. Behind a pooler sessions do not
//! end, so they are watched for a while only.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::Postgres;
use super::sql;

/// How long a session is watched.
const WATCHED: Duration = Duration::from_secs(10);

/// The first pause between two looks, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A session of the server's: the process that serves it, and since when, in microseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) process: String,
    pub(super) since: String,
}

/// By owner.
#[derive(Debug, Default)]
pub(super) struct Unanswered {
    owners: Mutex<HashMap<String, Requests>>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Requests {
    in_flight: usize,
    lost: Vec<(Session, Instant)>,
}

/// One request of an owner.
pub(super) struct InFlight {
    unanswered: Arc<Unanswered>,
    owner: String,
    session: Option<Session>,
}

impl Unanswered {
    pub(super) fn begin(self: &Arc<Self>, owner: &str) -> InFlight {
        let mut owners = self.owners();
        // Of those that nobody has asked about, sooner or later.
        if owners.len() > 1000 {
            let now = Instant::now();
            owners.retain(|_, requests| {
                requests
                    .lost
                    .retain(|(_, since)| now < *since + 10 * WATCHED);
                requests.in_flight > 0 || !requests.lost.is_empty()
            });
        }
        owners.entry(owner.to_owned()).or_default().in_flight += 1;
        drop(owners);
        InFlight {
            unanswered: Arc::clone(self),
            owner: owner.to_owned(),
            session: None,
        }
    }

    fn owners(&self) -> MutexGuard<'_, HashMap<String, Requests>> {
        // Every change is one operation, so a panic elsewhere leaves nothing half done.
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn in_flight(&self, owner: &str) -> bool {
        let owners = self.owners();
        owners.get(owner).is_some_and(|one| one.in_flight > 0)
    }

    fn lost(&self, owner: &str) -> Vec<(Session, Instant)> {
        let owners = self.owners();
        owners
            .get(owner)
            .map(|one| one.lost.clone())
            .unwrap_or_default()
    }

    fn over(&self, owner: &str, session: &Session) {
        let mut owners = self.owners();
        if let Some(one) = owners.get_mut(owner) {
            one.lost.retain(|(lost, _)| lost != session);
            if one.lost.is_empty() && one.in_flight == 0 {
                owners.remove(owner);
            }
        }
    }
}

impl InFlight {
    /// It was sent in this session, which has not answered it.
    pub(super) fn lost_in(&mut self, session: &Session) {
        self.session = Some(session.clone());
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let mut owners = self.unanswered.owners();
        if let Some(one) = owners.get_mut(&self.owner) {
            one.in_flight -= 1;
            if let Some(session) = self.session.take() {
                one.lost.push((session, Instant::now()));
            }
            if one.lost.is_empty() && one.in_flight == 0 {
                owners.remove(&self.owner);
            }
        }
        drop(owners);
        self.unanswered.changed.notify_waiters();
    }
}

impl Postgres {
    /// See [`Store::settled`](crate::store::Store::settled).
    pub(super) async fn nothing_comes(&self, owner: &str) -> Duration {
        let unanswered = &self.unanswered;
        loop {
            let changed = unanswered.changed.notified();
            if !unanswered.in_flight(owner) {
                break;
            }
            changed.await;
        }
        let mut pause = FIRST_PAUSE;
        loop {
            let lost = unanswered.lost(owner);
            if lost.is_empty() {
                return Duration::ZERO;
            }
            for (session, since) in lost {
                if since.elapsed() > WATCHED {
                    unanswered.over(owner, &session);
                    return Duration::MAX;
                }
                if self.has_ended(&session).await {
                    unanswered.over(owner, &session);
                }
            }
            let again = Instant::now() + pause;
            pause = (pause * 2).min(LONGEST_PAUSE);
            if !unanswered.lost(owner).is_empty() {
                self.background.sleep_until(again).await;
            }
        }
    }

    async fn has_ended(&self, session: &Session) -> bool {
        let statement = format!(
            "SELECT count(*) FROM pg_catalog.pg_stat_activity \
             WHERE pid = {}::integer AND lockattr.micros(backend_start) = {}::bigint",
            sql::text(&session.process),
            sql::text(&session.since)
        );
        let asked = self
            .commands
            .ask(&statement, self.timeouts.reply, None)
            .await;
        asked.is_ok_and(|answer| matches!(answer.text(0), Ok("0")))
    }
}
