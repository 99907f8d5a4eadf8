//! Work that is done: the mark of `once` that a lease leaves when it is given back, and the reply beside it.

use std::time::Duration;

use super::Lease;
use crate::reply::KeptReply;
#[cfg(feature = "serde")]
use crate::reply::ReplyError;

/// What is left at least of a mark that counts from the beginning of work which has taken longer: callers that
/// have waited for it find it, and do not do the work again.
const SHORTEST: Duration = Duration::from_secs(1);

/// From when on `once` counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnceFrom {
    /// From the end of the work, when it is known to be done.
    #[default]
    End,
    /// From its beginning, when the key was granted. Where the work has taken longer, or nearly as long, the mark
    /// stands for a second yet, or for all of `once` where that is less.
    Begin,
}

impl Lease {
    /// For how long a mark that is left now stands, where its call has a `once`.
    pub(super) fn once_left(&self) -> Option<Duration> {
        let options = self.options();
        let once = options.once?;
        Some(if options.once_from_begin {
            once.saturating_sub(self.held_for()).max(once.min(SHORTEST))
        } else {
            once
        })
    }

    /// The body has come to a success, which leaves a mark where its call has a `once`.
    pub(crate) fn succeed(&self, reply: Option<&KeptReply>) {
        let Some(length) = self.once_left() else {
            return;
        };
        match &self.joined {
            None => {
                let locks = 0..self.keys().locks().len();
                self.acquisition().mark_done(locks, length, reply);
            }
            Some(call) => call.succeed(length, reply),
        }
    }
}

#[cfg(feature = "serde")]
#[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
impl Lease {
    /// Says that the work is done, as [`mark_done`](Self::mark_done) does, and keeps its reply beside the mark, as
    /// JSON: later requests for the key are [`Error::Done`](crate::Error::Done) with that
    /// [reply](KeptReply::read), and so are those that wait for it now. At most as many bytes as the client
    /// [keeps](crate::ClientBuilder::reply_limit).
    ///
    /// The attribute does this with `on_done = replay`, whose calls and such requests may read what the other
    /// has left under a key that both name.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
    /// # let client = lockattr::Client::connect("memory:").await?;
    /// use std::time::Duration;
    /// use lockattr::Error;
    ///
    /// let charge = || client.lock("charge:7").once(Duration::from_secs(60));
    /// let lease = charge().acquire().await?;
    /// // … the work …
    /// lease.mark_done_with("receipt 1").expect("it is not too large");
    /// lease.release().await?;
    /// let Err(Error::Done { reply: Some(reply), .. }) = charge().acquire().await else { panic!() };
    /// assert_eq!(reply.read::<String>().expect("it is a text"), "receipt 1");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`ReplyError::TooLarge`] or [`ReplyError::NotWritten`]: the work is marked as done all the same, without a
    /// reply, and who asks later is told why there is none.
    pub fn mark_done_with<T: serde::Serialize + ?Sized>(
        &self,
        reply: &T,
    ) -> Result<(), ReplyError> {
        self.keep(KeptReply::of(reply))
    }

    /// Marks the work as done with its reply, or with why there is none, which is told and counted.
    pub(crate) fn keep(&self, reply: Result<KeptReply, ReplyError>) -> Result<(), ReplyError> {
        // All that a release leaves is one request.
        let limit = usize::try_from(self.options().reply_limit).unwrap_or(usize::MAX);
        let limit = limit.saturating_sub(self.acquisition().reply_bytes());
        match reply.and_then(|reply| reply.within(limit)) {
            Ok(reply) => {
                self.succeed(Some(&reply));
                Ok(())
            }
            Err(why) => {
                self.succeed(Some(&KeptReply::missing(&why)));
                // Of work that leaves no mark nobody asks for a reply.
                if self.options().once.is_some() {
                    self.tell_not_kept(&why);
                }
                Err(why)
            }
        }
    }

    fn tell_not_kept(&self, why: &ReplyError) {
        let site = self.site();
        self.handle.keeper.counters.replies_not_kept(site);
        tracing::error!(
            target: "lockattr",
            function = site.told_function(),
            template = site.told_template(),
            key = self.label(),
            error = %why,
            "the reply of work that is done was not kept: later calls are told an error in its place"
        );
    }
}
