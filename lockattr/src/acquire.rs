//! The one way in: every call, by attribute or by hand, within others or not, on the store or on a
//! fallback, becomes a lease here, or an error.
//!
//! Bounds → keys that the calls around hold → the wait queue of this process → the store, or the
//! fallback in its place → checks after the grant. One deadline bounds all the waiting.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant, SystemTime};

use crate::acquisition::{LeaseOptions, LockKeys};
use crate::call_site::CallSite;
use crate::error::{Error, StoreError};
use crate::keeper::{Keeper, SHUT_DOWN};
use crate::key::{KeyError, Keys};
use crate::lease::Lease;
use crate::limits;
use crate::redaction::Redaction;
use crate::runtime::clock::Clock;
use crate::runtime::jitter::jittered;
use crate::runtime::process::DroppedAtHome;
use crate::store::{Limits, Sharing};

pub(crate) mod around;
mod asking;
mod fallback;
mod joining;
mod options;
pub(crate) mod rerun;
pub(crate) mod span;
mod take_up;
mod waiting;

use fallback::Fallbacks;
use joining::Joined;
pub use options::CallOptions;
use options::WhenUnavailable;

use std::sync::Arc;

/// Pauses between looks of a caller whom nobody has promised to wake.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// What a call seldom comes to. The future of every locked function holds the rest of this module,
/// and the crate it is in compiles that: this is boxed, and compiled here.
type Rare<'a, T> = DroppedAtHome<Pin<Box<dyn Future<Output = Result<T, Error>> + Send + 'a>>>;

fn rare<'a, T>(
    keeper: &Keeper,
    future: impl Future<Output = Result<T, Error>> + Send + 'a,
) -> Rare<'a, T> {
    DroppedAtHome::new(Box::pin(future), keeper.process())
}

/// What the calls of one client have in common.
pub(crate) struct Context {
    pub(crate) keeper: Arc<Keeper>,
    fallbacks: Fallbacks,
    pub(crate) prefix: String,
    pub(crate) ttl: Duration,
    redaction: Redaction,
    /// The most bytes of a reply that are kept.
    reply_limit: usize,
    disabled: bool,
}

/// One call, within bounds.
#[derive(Clone, Debug)]
struct Call {
    keys: LockKeys,
    options: LeaseOptions,
    /// Whether it waits at all.
    waits: bool,
    clock: Clock,
    /// When it waits no longer.
    give_up: Instant,
}

/// What a call does about keys that the calls around it hold.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Nesting {
    /// A locked function is part of the one that calls it.
    Joins,
    /// A request by hand is for a lease of its own.
    Asks,
}

impl Context {
    pub(crate) fn new(
        keeper: Arc<Keeper>,
        prefix: String,
        ttl: Duration,
        redaction: Redaction,
        reply_limit: usize,
        disabled: bool,
    ) -> Self {
        Self {
            keeper,
            fallbacks: Fallbacks::default(),
            prefix,
            ttl,
            redaction,
            reply_limit,
            disabled,
        }
    }

    /// Takes the lease of a call, or what it is told to run on while there is none to have.
    ///
    /// Cancel-safe: a future that is dropped at any point gives back what it may have got.
    pub(crate) async fn acquire(
        &self,
        keys: Result<Keys, KeyError>,
        options: &CallOptions,
        nesting: Nesting,
    ) -> Result<Lease, Error> {
        let site = options.site;
        let waiting = site.observed.waits(|| self.keeper.clock_of_caller());
        let outcome = match self.checked(keys, options) {
            Ok(mut call) => {
                self.take(&mut call, options.when_unavailable, nesting)
                    .await
            }
            Err(error) => Err(error),
        };
        self.count(site, outcome.as_ref());
        waiting.over();
        outcome
    }

    fn checked(&self, keys: Result<Keys, KeyError>, options: &CallOptions) -> Result<Call, Error> {
        let keys = keys.map_err(|error| Error::Key(self.shown_error(error, options.redact)));
        self.call(keys?, options)
    }

    /// Some keys as errors and logs show them, in a call with these options.
    pub(crate) fn shown(&self, keys: Keys, options: &CallOptions) -> String {
        let redactor = self.redaction.of_call(options.redact);
        LockKeys::new(&self.prefix, keys, Sharing::Alone, redactor)
            .label()
            .to_owned()
    }

    /// The same of keys that could not be made.
    pub(crate) fn shown_error(&self, error: KeyError, redact: Option<bool>) -> KeyError {
        match self.redaction.of_call(redact) {
            Some(_) => error.without_text(),
            None => error,
        }
    }

    /// Whether a lease is one of the store's.
    fn is_guarded(&self, lease: &Lease) -> bool {
        !self.disabled && lease.is_kept_by(&self.keeper)
    }

    /// A key as it is shown where no call says otherwise.
    pub(crate) fn told_key(&self, key: &str) -> String {
        match self.redaction.of_call(None) {
            Some(redactor) => redactor.redacted(key),
            None => key.to_owned(),
        }
    }

    /// The hash that stands for a key where that is redacted.
    pub(crate) fn redacted(&self, key: &str) -> String {
        self.redaction.redactor().redacted(key)
    }

    /// Ends everything; see [`Client::shutdown`](crate::Client::shutdown).
    pub(crate) async fn shut_down(&self) {
        if self.keeper.check_process().is_err() {
            return;
        }
        self.keeper.shut_down().await;
        self.fallbacks.shut_down().await;
        self.keeper.background.told().await;
    }

    fn count(&self, site: &CallSite, outcome: Result<&Lease, &Error>) {
        let counters = &self.keeper.counters;
        #[cfg(feature = "testing")]
        counters.record.answered(outcome);
        match outcome {
            Ok(_) => counters.granted(site),
            Err(Error::Busy { .. }) => counters.busy(site),
            Err(Error::Done { .. }) => counters.done(site),
            Err(_) => counters.unavailable(site),
        }
    }

    /// The call, with everything in bounds, of a client that takes calls.
    fn call(&self, keys: Keys, options: &CallOptions) -> Result<Call, Error> {
        let several = keys.are_several();
        let redactor = self.redaction.of_call(options.redact);
        let sharing = options.sharing();
        let keys = LockKeys::new(
            &self.prefix,
            keys,
            *sharing.as_ref().unwrap_or(&Sharing::Alone),
            redactor,
        );
        let lease_options =
            sharing.and_then(|sharing| self.lease_options(options, sharing, several));
        let lease_options = lease_options.map_err(|reason| Error::Invalid {
            key: keys.label().to_owned(),
            reason,
        })?;
        self.check_open(keys.label())?;
        let clock = self.keeper.clock_of_caller();
        Ok(Call {
            keys,
            options: lease_options,
            waits: !options.wait.is_zero(),
            clock,
            give_up: clock.now() + options.wait,
        })
    }

    fn lease_options(
        &self,
        call: &CallOptions,
        sharing: Sharing,
        several: bool,
    ) -> Result<LeaseOptions, String> {
        if let Some(refusal) = call.refused {
            return Err(refusal.reason().to_owned());
        }
        let mut options = call.lease_options(self.ttl)?;
        limits::wait(call.wait)?;
        let store = self.keeper.store.limits();
        if options.ttl < store.shortest_ttl {
            return Err(format!(
                "its store keeps no ttl below {:?}, and it asks for {:?}",
                store.shortest_ttl, options.ttl
            ));
        }
        if several && !store.several_locks {
            return Err("its store takes one key at a time, and there are several".to_owned());
        }
        check_sharing(&store, sharing, several)?;
        options.reply_limit = self.most_of_a_reply(&store);
        self.keeper.check_process()?;
        Ok(options)
    }

    /// The most bytes that are kept of a reply.
    fn most_of_a_reply(&self, store: &Limits) -> u32 {
        let limit = self.reply_limit.min(store.longest_reply);
        u32::try_from(limit).unwrap_or(u32::MAX)
    }

    async fn take(
        &self,
        call: &mut Call,
        when_unavailable: WhenUnavailable,
        nesting: Nesting,
    ) -> Result<Lease, Error> {
        if self.disabled {
            self.keeper.counters.unguarded(call.options.site);
        }
        let plain = when_unavailable == WhenUnavailable::Fail && self.fallbacks.local().is_none();
        let lease = match self.around() {
            around if around.is_empty() && plain => self.take_from_store(call).await?,
            around => {
                self.take_within(&around, call, when_unavailable, nesting)
                    .await?
            }
        };
        // It may have been shut down while the answer was on its way.
        self.check_open(lease.label())?;
        Ok(lease)
    }

    /// The leases of the calls around, as far as they are this client's.
    fn around(&self) -> Vec<Lease> {
        if self.disabled {
            return Vec::new();
        }
        let mut around = around::all();
        around.retain(|lease| lease.is_of(&self.keeper) || self.fallbacks.has(lease));
        around
    }

    /// The same where there are calls around, or fallbacks.
    fn take_within<'a>(
        &'a self,
        around: &'a [Lease],
        call: &'a mut Call,
        when_unavailable: WhenUnavailable,
        nesting: Nesting,
    ) -> Rare<'a, Lease> {
        rare(&self.keeper, async move {
            let options = call.options;
            let redactor = call.keys.redactor().cloned();
            let joined = match nesting {
                Nesting::Joins => self.join(around, call).await,
                Nesting::Asks => Ok(None),
            };
            let lease = match joined {
                Ok(Some(Joined::All(lease))) => Ok(lease),
                Ok(Some(Joined::Some(held))) => {
                    let lease = self.take_missing(call, when_unavailable).await;
                    lease.map(|lease| held.beside(lease, options))
                }
                Ok(None) => self.take_missing(call, when_unavailable).await,
                Err(error) => Err(error),
            };
            lease.map_err(|error| joining::while_holding(error, around, redactor.as_ref()))
        })
    }

    /// Takes what no call around holds: from the store, or from what stands in for it.
    async fn take_missing(
        &self,
        call: &mut Call,
        when_unavailable: WhenUnavailable,
    ) -> Result<Lease, Error> {
        let spare = (when_unavailable != WhenUnavailable::Fail).then(|| call.clone());
        let outcome = self.take_from_store(call).await;
        match (outcome, spare) {
            (Err(error @ Error::Unavailable { .. }), Some(call)) if self.may_fall_back(&error) => {
                self.fall_back(call, when_unavailable, error).await
            }
            (outcome, _) => outcome,
        }
    }

    fn may_fall_back(&self, error: &Error) -> bool {
        // A store that grants, and too late, is there: somebody else may hold the key by now.
        let late = matches!(error, Error::Unavailable { source, .. } if source.is_late());
        !late && !self.keeper.is_closed()
    }

    pub(crate) fn check_open(&self, key: &str) -> Result<(), Error> {
        if self.keeper.is_closed() {
            return Err(Error::Unavailable {
                key: key.to_owned(),
                source: StoreError::refused(SHUT_DOWN),
            });
        }
        Ok(())
    }

    /// This process itself holds the key.
    fn busy_here(&self, key: &str, remaining: Duration, since: SystemTime) -> Error {
        Error::Busy {
            key: key.to_owned(),
            holder: self.keeper.origin().shown(),
            remaining,
            since: Some(since),
        }
    }
}

impl Call {
    /// The ttl that the store is asked for: a key that is to stay closed for longer does so also
    /// where its holder dies.
    fn ttl(&self) -> Duration {
        self.options.ttl.max(self.options.min_hold)
    }

    /// How its lease is held.
    fn lease_options(&self) -> LeaseOptions {
        LeaseOptions {
            ttl: self.ttl(),
            ..self.options
        }
    }

    /// The same without waiting.
    fn at_once(self) -> Self {
        Self {
            waits: false,
            give_up: self.clock.now(),
            ..self
        }
    }

    /// For how long it may wait yet.
    fn left(&self) -> Duration {
        self.give_up.saturating_duration_since(self.clock.now())
    }

    fn unavailable(&self, source: StoreError) -> Error {
        Error::Unavailable {
            key: self.keys.label().to_owned(),
            source,
        }
    }
}

/// Whether the store lets others hold a key so.
fn check_sharing(store: &Limits, sharing: Sharing, several: bool) -> Result<(), String> {
    match sharing {
        Sharing::Alone => Ok(()),
        _ if several => Err(
            "a key that several hold at a time is taken alone, and there are several keys"
                .to_owned(),
        ),
        Sharing::Readers if !store.shared => {
            Err("its store has no readers: it is to be asked without `shared`".to_owned())
        }
        Sharing::Permits { .. } if !store.permits => {
            Err("its store lets a key have one holder at a time".to_owned())
        }
        Sharing::Permits { permits, .. } if permits > store.most_permits => Err(format!(
            "its store lets a key have {} permits at most, not {permits}",
            store.most_permits
        )),
        Sharing::Permits { weight, .. } if weight > 1 && !store.weights => Err(format!(
            "its store lets a holder have one permit, and it asks for a weight of {weight}"
        )),
        Sharing::Readers | Sharing::Permits { .. } => Ok(()),
    }
}

/// A pause, jittered, the next of which is twice as long.
fn growing(pause: &mut Duration) -> Duration {
    let now = jittered(*pause);
    *pause = (*pause * 2).min(LONGEST_PAUSE);
    now
}
