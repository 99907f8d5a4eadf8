//! A lease: the proof of one grant, given back when it is dropped.

use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::Duration;

use tokio::sync::OnceCell;

use crate::error::{Error, LossCause};
use crate::hold::Hold;
use crate::keeper::{Keeper, Return, Slot};
use crate::limits;
use crate::store::{Found, Token};

/// A key that is held, until this value is released or dropped.
///
/// The keeper renews it every third of its ttl, unless it was taken with `renew(false)`. Dropping
/// it gives the key back in the background, from any thread, also without a runtime;
/// [`release`](Self::release) waits for the store to confirm it. Forgetting it (`mem::forget`)
/// keeps the key for as long as the process lives.
///
/// Holding a `Lease` value does not stop work that goes on after the lease was lost: look at
/// [`lost`](Self::lost) beside the work, or let the attribute do it.
pub struct Lease {
    hold: Arc<Hold>,
    keeper: Arc<Keeper>,
    slot: Slot,
    token: OnceCell<u64>,
    /// Nothing before it was tried.
    returned: OnceLock<Returned>,
}

/// How far giving back has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Returned {
    /// The store could not be asked, and that has been told.
    Tried,
    Done,
}

impl Lease {
    pub(crate) fn new(hold: Arc<Hold>, keeper: Arc<Keeper>) -> Self {
        let slot = keeper.keep(&hold);
        Self {
            hold,
            keeper,
            slot,
            token: OnceCell::new(),
            returned: OnceLock::new(),
        }
    }

    /// The key, without the client's prefix.
    #[must_use]
    pub fn key(&self) -> &str {
        self.hold.name.key()
    }

    /// The owner that is stored under the key: a random id of this acquisition, the host and the
    /// process. Whoever knows it can release the lock, so it does not belong into a log.
    #[must_use]
    pub fn owner(&self) -> &str {
        &self.hold.owner
    }

    /// How long the lease may be relied on from now on, unless it is renewed; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.hold.loss().is_some() {
            return Duration::ZERO;
        }
        let now = self.hold.clock.now();
        self.hold.deadline().saturating_duration_since(now)
    }

    /// The fencing token of this grant: larger than that of every earlier grant of the key, also
    /// across a restart of the store. A resource that remembers the largest token it has seen and
    /// refuses smaller ones cannot be written to by a holder that was overtaken.
    ///
    /// It is drawn with one command when it is first asked for, and remembered. Tokens of grants
    /// that never asked for one do not exist.
    ///
    /// Cancel-safe: a token drawn by a dropped future is skipped.
    ///
    /// # Errors
    /// [`Error::Lost`] where the key is not this lease's any more, [`Error::Unavailable`] where the
    /// store could not be asked; ask again then.
    pub async fn token(&self) -> Result<u64, Error> {
        self.token
            .get_or_try_init(|| self.draw_token())
            .await
            .copied()
    }

    async fn draw_token(&self) -> Result<u64, Error> {
        self.check()?;
        let hold = &self.hold;
        match self
            .keeper
            .store
            .token(hold.name.whole(), &hold.owner)
            .await
        {
            Ok(Token::Drawn(token)) => Ok(token),
            Ok(Token::NotHeld(found)) => Err(self.lose(found)),
            Err(source) => Err(Error::Unavailable {
                key: self.key().to_owned(),
                source,
            }),
        }
    }

    /// Waits until the lease is lost, and says how. For work that wants to wind down by itself:
    /// race it against this future.
    ///
    /// Cancel-safe.
    pub async fn lost(&self) -> Error {
        loop {
            if let Some(cause) = self.hold.loss() {
                return self.hold.lost(cause);
            }
            self.hold.ended().await;
        }
    }

    /// Starts the ttl anew with another length, which later renewals keep to.
    ///
    /// Cancel-safe: a dropped call may or may not have changed the ttl in the store, and the lease
    /// is relied on for the shorter of both.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a ttl under 10 ms or over 366 days, [`Error::Lost`], or
    /// [`Error::Unavailable`] where the store could not be asked.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let ttl = limits::ttl(ttl).map_err(|reason| Error::Invalid {
            key: self.key().to_owned(),
            reason,
        })?;
        self.check()?;
        self.keeper.extend(self.slot, &self.hold, ttl).await
    }

    /// Gives the key back and waits until the store has confirmed it.
    ///
    /// A store that cannot be asked is no error here: it is logged and counted, and the keeper
    /// tries again until the key has expired. Waits at most for the client's connect timeout and
    /// reply timeout together.
    ///
    /// Cancel-safe: when this future is dropped the key is given back in the background.
    ///
    /// # Errors
    /// [`Error::Lost`] where the lease had ended before, or the key was found gone or under another
    /// owner.
    pub async fn release(self) -> Result<(), Error> {
        self.give_back().await
    }

    /// [`release`](Self::release) for a lease that is still borrowed, and not to be used any more.
    pub(crate) async fn give_back(&self) -> Result<(), Error> {
        self.check()?;
        self.hold.end_given_back();
        self.keeper.forget(self.slot);
        let hold = &self.hold;
        match self
            .keeper
            .store
            .release(hold.name.whole(), &hold.owner)
            .await
        {
            Ok(found) => {
                // A request that is still on its way has to be looked for all the same.
                if !hold.in_doubt {
                    self.set_returned(Returned::Done);
                }
                if found == Found::Ours {
                    self.keeper.counters.released.up();
                    return Ok(());
                }
                self.keeper.counters.lost.up();
                Err(self.hold.lost(loss(found)))
            }
            Err(error) => {
                self.keeper.tell_release_failed(self.key(), &error);
                self.set_returned(Returned::Tried);
                Ok(())
            }
        }
    }

    fn set_returned(&self, returned: Returned) {
        // The first answer stays; there is one call.
        let _ = self.returned.set(returned);
    }

    /// The loss of the lease, if it is known by now.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.hold.loss() {
            Some(cause) => Err(self.hold.lost(cause)),
            None => Ok(()),
        }
    }

    fn lose(&self, found: Found) -> Error {
        let cause = loss(found);
        self.hold.end_as(cause);
        self.hold.lost(self.hold.loss().unwrap_or(cause))
    }

    /// A body is going to run under this lease: shutting down waits until it was stopped.
    pub(crate) fn guard(&self) {
        self.hold.guarded.store(true, Ordering::Release);
    }

    /// How the lease was lost, if it was; `waker` is woken when that changes.
    pub(crate) fn poll_lost(&self, waker: &Waker) -> Option<Error> {
        self.hold.wake_at_end(waker);
        self.hold.loss().map(|cause| self.hold.lost(cause))
    }
}

fn loss(found: Found) -> LossCause {
    match found {
        Found::Another => LossCause::Taken,
        Found::Ours | Found::Nothing => LossCause::Deleted,
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.keeper.forget(self.slot);
        self.hold.end_given_back();
        let returned = self.returned.get();
        if returned != Some(&Returned::Done) {
            let told = returned == Some(&Returned::Tried);
            self.keeper.give_back(Return::of(&self.hold, told));
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.key())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
