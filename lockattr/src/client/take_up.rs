//! Taking up what another process has handed off.

use super::Client;
use crate::error::Error;
use crate::lease::{Lease, Terms};

impl Client {
    /// Takes up a lease that [`Lease::hand_off`] has handed off, from the text that this gave: on the same store and
    /// with the same prefix. It is renewed and given back from here then.
    ///
    /// The store puts an owner of this client in the place of the one that has handed the lease off, in one step and
    /// only where that still holds it, and starts the ttl anew. So of several who take it up one has it, and the
    /// others are told that it is lost, as is one who comes after the ttl.
    ///
    /// Cancel-safe: a dropped future gives back what it may have taken over, and the lease is over then. So it is after
    /// [`Error::Unavailable`] where the store may have carried it out; where the store was not asked, the text is as
    /// good as before.
    ///
    /// # Errors
    /// [`Error::Config`] for a text that is none, was changed, or is of another version; [`Error::Lost`] where the
    /// lease has ended or somebody else has taken it up; [`Error::Busy`] while this process holds the key by a lease of its
    /// own alone ([`on_unavailable = local`](crate::distributed_lock#on_unavailable)), and [`Error::Done`] where that has
    /// left its mark; [`Error::Invalid`] where this client has another prefix or
    /// its store does not have this; [`Error::Unavailable`].
    pub async fn take_up(&self, text: impl AsRef<str>) -> Result<Lease, Error> {
        let terms = text.as_ref().parse::<Terms>();
        let terms = terms.map_err(|reason| Error::Config(reason.to_owned()))?;
        self.0.take_up(terms).await
    }
}
