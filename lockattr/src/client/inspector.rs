//! A client's view into its store, for tools that show locks and end them.

use std::fmt;

use super::Client;
use crate::error::Error;
use crate::key::Key;
use crate::store::Store as _;
use crate::store::inspect::{self, Ended, Entry, Finding, Inspect, Page, Shown};

/// Shows the locks of a store, and ends what is stuck; see [`Client::inspect`].
///
/// All locks of the client's prefix are shown, whoever holds them. Keys are given and told without the
/// prefix.
pub struct Inspector<'a> {
    client: &'a Client,
    store: &'a dyn Inspect,
}

/// The locks of a store, a page at a time; see [`Inspector::list`].
#[must_use = "nothing is listed before `next().await`"]
pub struct Listing<'a> {
    pages: Box<dyn inspect::Listing + 'a>,
    prefix: &'a str,
    client: &'a Client,
}

impl Client {
    /// A look at the locks of the store, for tools.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
    /// # let client = lockattr::Client::connect("memory:").await?;
    /// let _lease = client.lock("sync:42").acquire().await?;
    ///
    /// let inspector = client.inspect()?;
    /// let mut listing = inspector.list("sync:*");
    /// while let Some(page) = listing.next().await? {
    ///     for lock in page.locks {
    ///         println!("{} {:?}", lock.lock, lock.entries);
    ///     }
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] where the store cannot be looked into.
    pub fn inspect(&self) -> Result<Inspector<'_>, Error> {
        let store = self.0.keeper.store.inspect();
        let store = store.ok_or_else(|| {
            Error::Config("the locks of this store cannot be listed or shown".to_owned())
        })?;
        Ok(Inspector {
            client: self,
            store,
        })
    }
}

impl<'a> Inspector<'a> {
    /// The locks whose keys match a pattern: `*` stands for any text, `?` for one character; all locks
    /// where it is empty.
    ///
    /// On Redis all keys of the database are gone through, in steps of less than a millisecond (SCAN), for the
    /// names of the locks; then each is read. The names are in memory meanwhile, some hundred bytes each, and
    /// pages are empty until all are known. Others are not slowed by more than a step. On a quorum, locks are
    /// those that a majority of the nodes has. etcd and PostgreSQL are read in the order of the keys, a thousand
    /// at a time, and ZooKeeper by the nodes below the one that the URL names.
    pub fn list(&self, pattern: &'a str) -> Listing<'a> {
        let prefix = self.client.0.prefix.as_str();
        Listing {
            pages: self.store.list(prefix, pattern),
            prefix,
            client: self.client,
        }
    }

    /// One lock, with everybody who waits for it, also where nobody holds it, as it stands in one moment. On a
    /// quorum it is what a majority has, and what each node has beside it.
    ///
    /// Changes nothing, so that it may be dropped at any time.
    ///
    /// # Errors
    /// [`Error::Key`] for what cannot be a key, [`Error::Unavailable`].
    pub async fn show(&self, key: &str) -> Result<Shown, Error> {
        let lock = self.lock(key)?;
        let keeper = &self.client.0.keeper;
        let shown = keeper.ask_store(self.store.show(&lock)).await;
        let mut shown = shown.map_err(|error| error.told_of(&self.told(key)))?;
        key.clone_into(&mut shown.listed.lock);
        Ok(shown)
    }

    /// Ends what was shown under a key: a hold, a closed time or a mark. Only where the same still
    /// stands there. A holder is told that it has lost its lease: at once where a Redis server tells of changed
    /// keys, and otherwise at its next renewal, which is at most a third of its ttl later. Whoever waits is
    /// granted the lock at once. **The holder's work may go on until then**, beside that of the next one.
    ///
    /// Dropped before it is done, it may have been done or not.
    ///
    /// # Errors
    /// [`Error::Key`] for what cannot be a key, [`Error::Foreign`] for an entry that is not a lock's,
    /// [`Error::Unavailable`].
    pub async fn end(&self, key: &str, entry: &Entry) -> Result<Ended, Error> {
        let lock = self.lock(key)?;
        if let inspect::EntryKind::Foreign { found } = &entry.kind {
            return Err(Error::Foreign {
                key: self.told(key),
                found: found.clone(),
            });
        }
        let keeper = &self.client.0.keeper;
        let ended = keeper.ask_store(self.store.end(&lock, entry)).await;
        ended.map_err(|error| error.told_of(&self.told(key)))
    }

    /// Looks at the servers for what harms locks: rights, settings, versions, clocks, latency. What cannot be
    /// looked at is told as [`Unknown`](inspect::Severity::Unknown), and a server of several that does not answer
    /// as a [`Fault`](inspect::Severity::Fault). A lock of its own is taken and given back.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where no server answers.
    pub async fn diagnose(&self) -> Result<Vec<Finding>, Error> {
        let keeper = &self.client.0.keeper;
        let findings = keeper.ask_store(self.store.diagnose()).await;
        findings.map_err(|error| error.told_of("*"))
    }

    fn lock(&self, key: &str) -> Result<String, Error> {
        let context = &self.client.0;
        let prefix = &context.prefix;
        let key = Key::with_room(key, prefix.len());
        let key = key.map_err(|error| Error::Key(context.shown_error(error, None)))?;
        Ok(format!("{prefix}{key}"))
    }

    /// The key as errors name it.
    fn told(&self, key: &str) -> String {
        self.client.0.told_key(key)
    }
}

impl Listing<'_> {
    /// The next page; `None` after the last one. Pages may be empty. A page takes about a tenth of a second,
    /// or as long as a request may take where a server does not answer, which is then
    /// [`missing`](crate::store::inspect::Page::missing).
    ///
    /// Not cancel-safe: once dropped before it was done, the rest of the list is not whole.
    ///
    /// # Errors
    /// [`Error::Unavailable`] where no part of the store answers.
    pub async fn next(&mut self) -> Result<Option<Page>, Error> {
        let keeper = &self.client.0.keeper;
        let page = keeper.ask_store(self.pages.next()).await;
        let mut page = page.map_err(|error| error.told_of("*"))?;
        for listed in page.iter_mut().flat_map(|page| &mut page.locks) {
            if listed.lock.starts_with(self.prefix) {
                listed.lock.drain(..self.prefix.len());
            }
        }
        Ok(page)
    }
}

impl fmt::Debug for Inspector<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inspector").finish_non_exhaustive()
    }
}

impl fmt::Debug for Listing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listing").finish_non_exhaustive()
    }
}
