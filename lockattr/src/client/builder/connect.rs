//! From settings to a client: the store that a URL names, checked or not.

use std::sync::Arc;
use std::time::Duration;

use super::{ClientBuilder, other_stores};
use crate::acquire::Context;
use crate::client::{Client, disabled, nodes};
use crate::error::Error;
use crate::keeper::Keeper;
use crate::owner::Origin;
use crate::redaction::Redaction;
use crate::runtime::background::Background;
use crate::store::fail_fast::{self, FailFast, PartOf};
use crate::store::memory::Memory;
use crate::store::quorum::Quorum;
use crate::store::redis::{self, Cluster, Redis};
use crate::store::unguarded::Unguarded;
use crate::store::{Claim, Store};

/// How long the key of a check lives where nothing can be deleted.
const CHECKED_FOR: Duration = Duration::from_secs(10);

impl ClientBuilder {
    /// Connects, and checks that the client may do its work; see [`Client::connect`].
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub async fn connect(self, url: impl AsRef<str>) -> Result<Client, Error> {
        checked(self.connect_lazily(url)?).await
    }

    /// Connects to several independent nodes, of which a majority grants a lock together, as the description
    /// of Redlock has it; and checks that the client may do its work at a majority. What is wrong with a node
    /// of the others is told as a warning.
    ///
    /// Three or five nodes, each as in [`Client::connect`] but for `memory:`, each on a machine of its own
    /// and a replica of none. An even number is allowed, up to eight, and survives no more failures than one
    /// node less. All clients have to name the same nodes, and each by the same address; their order makes
    /// no difference. `redis+quorum://h1,h2,h3` is the same as one URL.
    ///
    /// A minority of the nodes may be down or silent, and calls are as fast as the rest. A node that keeps
    /// nothing on disk, or not every write, is to stay away for the longest ttl in use before it is started
    /// again: it has forgotten whom it has given its vote. Calls with `permits` or `shared`
    /// are refused.
    ///
    /// What this survives beside one node, what it does not, and why a resource that must never be written
    /// late has to be fenced all the same: an outage of a minority, the loss of its data where it stays away
    /// for that long, and one wrong clock cost no lock. A process that stands still for longer than its ttl
    /// goes on to write if nothing but the lock keeps it; clocks of a majority that jump, or one node that
    /// has lost its data and comes back at once, can let two in. [`Lease::token`](crate::Lease::token) grows
    /// from grant to grant here as well.
    ///
    /// ```no_run
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), lockattr::Error> {
    /// use lockattr::Client;
    ///
    /// let nodes = ["redis://a:6379", "redis://b:6379", "redis://c:6379"];
    /// let client = Client::builder().quorum(nodes).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Config`] for a URL or a number of nodes that cannot be used, [`Error::Unavailable`] where too
    /// many nodes could not be reached or refused a step, in their own words.
    pub async fn quorum(
        self,
        urls: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Client, Error> {
        checked(self.quorum_lazily(urls)?).await
    }

    /// The same for a client that connects when it is first used.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL, a setting or a number of nodes that cannot be used.
    pub fn quorum_lazily(
        self,
        urls: impl IntoIterator<Item = impl AsRef<str>>,
    ) -> Result<Client, Error> {
        self.check()?;
        let urls = urls.into_iter().map(|url| url.as_ref().to_owned());
        let urls = nodes::in_order(urls.collect())?;
        if disabled::by_environment() {
            return self.without_locks();
        }
        let (origin, background) = (Origin::here(), start_background()?);
        let node = |url: &String| {
            let node = self.node(url, &origin, &background);
            node.map(|(store, _)| store)
        };
        let stores = urls.iter().map(node).collect::<Result<_, _>>()?;
        let mut quorum = Quorum::new(stores, &background);
        if self.delayed_restart.is_some() {
            quorum = quorum.checking_all();
        }
        let store = self.failing_fast(Arc::new(quorum), fail_fast::whole(), &background, &origin);
        Ok(self.client(&background, store, origin, false))
    }

    /// A client that connects when it is first used, for services that have to start without their
    /// store. A missing right or a wrong password is found by the first call only.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL or a setting that cannot be used.
    pub fn connect_lazily(self, url: impl AsRef<str>) -> Result<Client, Error> {
        let url = url.as_ref();
        self.check()?;
        if let Some(urls) = nodes::of_url(url)? {
            return self.quorum_lazily(urls);
        }
        if self.delayed_restart.is_some() {
            return Err(Error::Config(
                "`delayed_restart` is for a quorum, whose nodes may not forget a vote, and this URL is of none: \
                 leave it out"
                    .to_owned(),
            ));
        }
        if disabled::by_environment() {
            return self.without_locks();
        }
        if url == "memory:" {
            return self.store(Memory::new());
        }
        let (origin, background) = (Origin::here(), start_background()?);
        let (store, part_of) = match self.other_store(url, &origin, &background) {
            Some(store) => (store?, fail_fast::whole()),
            None => self.node(url, &origin, &background)?,
        };
        let store = self.failing_fast(store, part_of, &background, &origin);
        Ok(self.client(&background, store, origin, false))
    }

    /// The store that a URL names, and its parts.
    fn node(
        &self,
        url: &str,
        origin: &Origin,
        background: &Background,
    ) -> Result<(Arc<dyn Store>, PartOf), Error> {
        if other_stores::feature_of(url) == Some("etcd") {
            return Err(Error::Config(
                "the members of an etcd cluster agree by themselves, and are no nodes of a quorum: connect to \
                 `etcd://h1,h2,h3`"
                    .to_owned(),
            ));
        }
        let seeds = redis::seeds(url, &self.access).transpose()?;
        let settings = redis::RedisConfig {
            prefix: self.prefix.clone(),
            id: origin.new_id().to_string(),
            location: match seeds.as_ref().and_then(|seeds| seeds.first()) {
                Some(seed) => redis::Location::At(seed.clone()),
                None => redis::location(url, &self.access)?,
            },
            name: self.name.clone(),
            connect_timeout: self.connect_timeout,
            reply_timeout: self.reply_timeout,
            replicas: self.replicas,
            delayed_restart: self.delayed_restart,
        };
        let Some(seeds) = seeds else {
            let server = Arc::new(Redis::new(&settings, background));
            return Ok((server, fail_fast::whole()));
        };
        let cluster = redis::ClusterConfig {
            seeds,
            node: settings,
            addresses: self.access.addresses.clone(),
        };
        let cluster = Arc::new(Cluster::new(cluster, background));
        let part_of = Arc::clone(&cluster);
        Ok((cluster, Arc::new(move |locks| part_of.part_of(locks))))
    }

    /// A client of a store of one's own, or of a [`Memory`] that a test keeps a
    /// handle of. The timeouts are the store's affair.
    ///
    /// # Errors
    /// [`Error::Config`] for a setting that cannot be used.
    pub fn store(self, store: impl Store) -> Result<Client, Error> {
        self.check()?;
        self.refuse_settings_of_redis(self.access.any())?;
        if disabled::by_environment() {
            return self.without_locks();
        }
        let (origin, background) = (Origin::here(), start_background()?);
        let store = self.failing_fast(Arc::new(store), fail_fast::whole(), &background, &origin);
        Ok(self.client(&background, store, origin, false))
    }

    /// Settings that another store has no use for, `setting` being one of them if any is.
    pub(super) fn refuse_settings_of_redis(
        &self,
        setting: Option<&'static str>,
    ) -> Result<(), Error> {
        if let Some(setting) = setting {
            return Err(Error::Config(format!(
                "`{setting}` is for Redis servers, and this client has another store: leave it out"
            )));
        }
        if self.replicas.is_some() {
            return Err(Error::Config(
                "`replicas` is for a Redis or Valkey server, and this store has none that can be asked: \
                 leave it out, or connect to a redis:// URL"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    pub(in crate::client) fn without_locks(self) -> Result<Client, Error> {
        self.check()?;
        disabled::tell();
        let background = start_background()?;
        Ok(self.client(&background, Arc::new(Unguarded), Origin::here(), true))
    }

    /// The store as calls ask it.
    fn failing_fast(
        &self,
        store: Arc<dyn Store>,
        part_of: PartOf,
        background: &Background,
        origin: &Origin,
    ) -> Arc<dyn Store> {
        match self.fail_fast {
            Some(length) => {
                let nobody = origin.owner(origin.new_id());
                Arc::new(FailFast::new(store, part_of, background, length, nobody))
            }
            None => store,
        }
    }

    fn client(
        self,
        background: &Background,
        store: Arc<dyn Store>,
        origin: Origin,
        disabled: bool,
    ) -> Client {
        let counters = Arc::default();
        let keeper = if disabled {
            Keeper::start_unguarded(background, store, counters, origin)
        } else {
            Keeper::start(background, store, counters, origin)
        };
        Client(Arc::new(Context::new(
            keeper,
            self.prefix,
            self.ttl,
            Redaction::new(self.redact_key.as_ref(), self.redact),
            disabled,
        )))
    }
}

/// Checks that a client may do its work.
async fn checked(client: Client) -> Result<Client, Error> {
    let keeper = &client.0.keeper;
    let id = keeper.origin().new_id();
    let (key, owner) = (format!("connect-check:{id}"), keeper.origin().owner(id));
    let locks = [format!("{}{key}", client.0.prefix)];
    let claim = Claim::new(&locks, &owner, CHECKED_FOR);
    let checking = keeper.ask_store(keeper.store.check(claim));
    match checking.await {
        Ok(()) => Ok(client),
        Err(source) => Err(source.told_of(&key)),
    }
}

fn start_background() -> Result<Background, Error> {
    Background::start().map_err(|error| {
        Error::Config(format!("the client's thread could not be started: {error}"))
    })
}
