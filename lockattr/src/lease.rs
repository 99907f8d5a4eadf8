//! A lease: the proof of one grant, given back when it is dropped.

use std::fmt;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use crate::acquisition::{Acquisition, LeaseOptions, LockKeys};
use crate::call_site::CallSite;
use crate::error::{Error, LossCause};
use crate::keeper::Keeper;
use crate::limits;
use crate::runtime::clock::Clock;
use crate::store::Token;

mod handle;
mod joined;

use handle::Handle;
use joined::JoinedCall;
pub(crate) use joined::Joint;

/// A key that is held, until every handle of it is released or dropped.
///
/// The keeper renews it every third of its ttl, unless it was taken with `renew(false)`. Dropping
/// it gives the key back in the background, from any thread, also without a runtime;
/// [`release`](Self::release) waits for the store to confirm it. Forgetting it (`mem::forget`)
/// keeps the key for as long as the process lives.
///
/// A program that ends right after a drop waits for the request to leave, up to a quarter of a
/// second; one that wants to be sure calls [`Client::shutdown`](crate::Client::shutdown) first.
///
/// Holding a `Lease` value does not stop work that goes on after the lease was lost: look at
/// [`lost`](Self::lost) beside the work, or let the attribute do it.
#[must_use = "dropped, as by `let _ = …`, a lease gives its key back at once: bind it to a name"]
pub struct Lease {
    handle: Handle,
    /// The call that has joined the lease, where this is not a handle of the call which took it.
    joined: Option<Arc<JoinedCall>>,
}

impl Lease {
    pub(crate) fn new(acquisition: Arc<Acquisition>, keeper: Arc<Keeper>) -> Self {
        let key = keeper.keep(&acquisition);
        Self {
            handle: Handle {
                acquisition,
                keeper,
                key,
                is_guarded: false,
            },
            joined: None,
        }
    }

    /// Another handle of the same lease, for work that outlives the function that took it: a
    /// spawned task, a stream. The key is given back when the last handle is gone.
    ///
    /// A lost lease stops the function's body, but nothing else that holds a handle: such work has
    /// to look at [`lost`](Self::lost).
    ///
    /// ```
    /// # use lockattr::{Client, Error, distributed_lock};
    /// #[distributed_lock(key = "upload:<id>", bind = lease)]
    /// async fn upload(id: u64) -> Result<tokio::task::JoinHandle<()>, Error> {
    ///     let lease = lease.share();
    ///     Ok(tokio::spawn(async move {
    ///         tokio::select! {
    ///             () = send(id) => {}
    ///             error = lease.lost() => eprintln!("stopped: {error}"),
    ///         }
    ///     }))
    /// }
    /// # async fn send(_: u64) { tokio::task::yield_now().await }
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
    /// # let client = Client::connect("memory:").await?;
    /// # let task = client.scope(upload(1)).await?;
    /// # assert!(matches!(client.scope(upload(1)).await, Err(Error::Busy { .. })));
    /// # task.await.unwrap();
    /// # client.scope(upload(1)).await?;
    /// # Ok(()) }
    /// ```
    #[must_use = "the key is held for as long as the handle is"]
    pub fn share(&self) -> Self {
        Self {
            handle: self.handle.clone(),
            joined: self.joined.clone(),
        }
    }

    /// The key, without the client's prefix. Of several keys, all, joined by ` + `. Of a call that has
    /// joined the lease of another, its own. As it is, also where
    /// [`redact`](crate::ClientBuilder::redact) keeps it out of logs and errors.
    #[must_use]
    pub fn key(&self) -> &str {
        self.keys_of_call().plain()
    }

    /// Which of the key's holders this is, where it has `permits`: a number below theirs that no other holder
    /// has, the lowest that was free. A holder has one number, whatever its `weight`. Always 0 without permits.
    #[must_use]
    pub fn slot(&self) -> usize {
        self.acquisition().slot()
    }

    /// The owner that is stored under the key: a random id of this acquisition, the host and the
    /// process. A lease that was handed on by another caller of this client keeps its owner. Whoever
    /// knows it can release the lock, so it does not belong into a log.
    #[must_use]
    pub fn owner(&self) -> &str {
        self.acquisition().owner_kept()
    }

    /// How long the lease may be relied on from now on, unless it is renewed; zero once it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        if self.check_process().is_err() || self.loss().is_some() {
            return Duration::ZERO;
        }
        let end = self.acquisition().end();
        let end = self.own_end().map_or(end, |own| own.min(end));
        end.saturating_duration_since(self.now())
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
        self.check_process()?;
        let shared = self.acquisition().shared();
        if let Some(token) = shared.token.get() {
            return Ok(*token);
        }
        // Nobody waits for another's draw, who may not be polled any more: of two the first counts.
        let drawn = self.draw_token().await?;
        Ok(*shared.token.get_or_init(|| drawn))
    }

    /// The same, where it was drawn before.
    pub(crate) fn drawn_token(&self) -> Option<u64> {
        self.acquisition().drawn_token()
    }

    async fn draw_token(&self) -> Result<u64, Error> {
        self.check()?;
        let lease = self.acquisition();
        let (keeper, owner) = (&self.handle.keeper, lease.owner());
        let claim = lease.claim(&owner, lease.ttl());
        let drawing = keeper.store.token(claim.held(lease.slot()));
        match keeper.ask_store(drawing).await {
            Ok(Token::Drawn(token)) => Ok(token),
            Ok(Token::NotHeld(found)) => {
                let cause = found.loss();
                lease.lose(cause);
                Err(lease.lost(lease.loss().unwrap_or(cause)))
            }
            Err(source) => Err(source.told_of(self.label())),
        }
    }

    /// Waits until the lease is lost, and says how. For work that wants to wind down by itself:
    /// race it against this future.
    ///
    /// Cancel-safe.
    pub async fn lost(&self) -> Error {
        if let Err(forked) = self.check_process() {
            return forked;
        }
        loop {
            if let Some(cause) = self.loss() {
                return self.error(cause);
            }
            let ended = self.acquisition().ended();
            match self.own_end() {
                None => ended.await,
                Some(own_end) => {
                    let background = &self.handle.keeper.background;
                    // Either way it is over then.
                    let _ = self.clock().until(background, own_end, ended).await;
                }
            }
        }
    }

    /// Starts the ttl anew with another length, which later renewals keep to.
    ///
    /// Waits no longer than the store may take to answer, nor than the lease lasts.
    ///
    /// Cancel-safe: a dropped call may or may not have changed the ttl in the store, and the lease
    /// is relied on for the shorter of both: until the store cannot carry the call out any more, also
    /// where a longer ttl is confirmed meanwhile.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a ttl under 10 ms or over 366 days, [`Error::Lost`], or
    /// [`Error::Unavailable`] where the store could not be asked.
    pub async fn extend(&self, ttl: Duration) -> Result<(), Error> {
        let ttl = limits::ttl(ttl).map_err(|reason| Error::Invalid {
            key: self.label().to_owned(),
            reason,
        })?;
        self.check_process()?;
        self.check()?;
        let handle = &self.handle;
        handle
            .keeper
            .extend(handle.key, &handle.acquisition, ttl)
            .await
    }

    /// Says that the work is done: where the lease was asked for with
    /// [`once`](crate::LockRequest::once), giving it back leaves the mark that keeps the key from
    /// running again for so long, counted from now. Without `once` it changes nothing.
    ///
    /// The attribute does this for a body that was a success.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
    /// # let client = lockattr::Client::connect("memory:").await?;
    /// use std::time::Duration;
    ///
    /// let report = || client.lock("report").once(Duration::from_secs(60));
    /// let lease = report().acquire().await?;
    /// // … the work …
    /// lease.mark_done();
    /// lease.release().await?;
    /// assert!(matches!(report().acquire().await, Err(lockattr::Error::Done { .. })));
    /// # Ok(()) }
    /// ```
    pub fn mark_done(&self) {
        self.succeed();
    }

    /// Gives the key back and waits until the store has confirmed it. Where other handles of the
    /// lease are left, only this one is given up.
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

    /// [`release`](Self::release) for a handle that is still borrowed, and not to be used any more.
    pub(crate) async fn give_back(&self) -> Result<(), Error> {
        self.check_process()?;
        self.check()?;
        // Handles are made from handles: where this is the only one, it stays so.
        if self.acquisition().is_shared() {
            return Ok(());
        }
        let handle = &self.handle;
        handle
            .keeper
            .release_confirmed(handle.key, &handle.acquisition)
            .await
    }

    pub(crate) fn acquisition(&self) -> &Acquisition {
        &self.handle.acquisition
    }

    /// What this handle's own call asked for.
    pub(crate) fn options(&self) -> LeaseOptions {
        match &self.joined {
            Some(call) => call.options,
            None => self.acquisition().options(),
        }
    }

    /// Which function its call is of.
    pub(crate) fn site(&self) -> &'static CallSite {
        let joined = self.joined.as_ref();
        joined.map_or(self.acquisition().site, |call| call.options.site)
    }

    pub(crate) fn keys(&self) -> &LockKeys {
        &self.acquisition().keys
    }

    /// The keys that this handle's own call has named.
    pub(crate) fn keys_of_call(&self) -> &LockKeys {
        match &self.joined {
            Some(call) => &call.keys,
            None => self.keys(),
        }
    }

    /// The same as errors and logs show them.
    pub(crate) fn label(&self) -> &str {
        self.keys_of_call().label()
    }

    pub(crate) fn clock(&self) -> Clock {
        self.acquisition().clock
    }

    /// A process that was forked has a copy of the lease, which stays its parent's.
    fn check_process(&self) -> Result<(), Error> {
        let checked = self.handle.keeper.check_process();
        checked.map_err(|reason| Error::Invalid {
            key: self.label().to_owned(),
            reason,
        })
    }

    /// The loss of the lease, if it is known by now.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match self.loss() {
            Some(cause) => Err(self.error(cause)),
            None => Ok(()),
        }
    }

    /// How the lease was lost for this handle's call, if it was.
    fn loss(&self) -> Option<LossCause> {
        self.lease_loss().or_else(|| {
            let is_over = self.own_end().is_some_and(|own_end| self.now() >= own_end);
            is_over.then_some(LossCause::HeldTooLong)
        })
    }

    /// How the lease was lost, or one that its call has joined.
    fn lease_loss(&self) -> Option<LossCause> {
        let joined = || self.joined.as_ref()?.loss();
        self.acquisition().loss().or_else(joined)
    }

    /// A body is going to run under this lease: shutting down waits until it was stopped.
    pub(crate) fn guarded(mut self) -> Self {
        self.handle.guard();
        self
    }

    /// The body has come to a success, which leaves a mark where its call has a `once`.
    pub(crate) fn succeed(&self) {
        let Some(length) = self.options().once else {
            return;
        };
        match &self.joined {
            None => {
                let locks = 0..self.keys().locks().len();
                self.acquisition().mark_done(locks, length);
            }
            Some(call) => call.succeed(length),
        }
    }

    /// How the lease was lost, if it was; `waker` is woken when that changes.
    pub(crate) fn poll_lost(&self, ticket: &mut Option<usize>, waker: &Waker) -> Option<LossCause> {
        self.acquisition().wake_at_end(ticket, waker);
        self.lease_loss()
    }

    pub(crate) fn hand_in(&self, ticket: usize) {
        self.acquisition().hand_in(ticket);
    }

    pub(crate) fn error(&self, cause: LossCause) -> Error {
        let started = match &self.joined {
            Some(call) => call.started,
            None => self.acquisition().granted,
        };
        Error::Lost {
            key: self.label().to_owned(),
            cause,
            held: self.now().saturating_duration_since(started),
        }
    }

    /// Until when a body may wind down after a loss that is noticed now: never past the moment up to
    /// which the store has promised the key.
    pub(crate) fn end_of_grace(&self) -> Instant {
        let lease = self.acquisition();
        (lease.clock.now() + self.options().grace).min(lease.deadline())
    }

    /// Waits for a moment in the lease's time.
    pub(crate) fn sleep_until(&self, at: Instant) -> impl Future<Output = ()> + Send + 'static {
        let clock = self.acquisition().clock;
        let background = self.handle.keeper.background.clone();
        async move { clock.sleep_until(&background, at).await }
    }

    pub(crate) fn now(&self) -> Instant {
        self.acquisition().clock.now()
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease")
            .field("key", &self.label())
            .field("remaining", &self.remaining())
            .finish_non_exhaustive()
    }
}
