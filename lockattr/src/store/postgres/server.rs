//! The servers of a URL, and how a session with the primary among them begins.

use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_postgres::config::SslMode;
use tokio_postgres::{Client, Connection, NoTls, Socket};
use tokio_util::sync::CancellationToken;

use super::fault;
use super::live::{Live, drive};
use super::sql;
use super::target::{Address, Target};
use super::tls::Tls;
use super::unanswered::Session;
use super::wakeups::WakeUpRegistry;
use crate::error::StoreError;
use crate::store::redis::CredentialsProvider;

/// The oldest server that knows all that is asked of it.
const OLDEST: u32 = 120_000;

/// How long the tables may take to be made: others make them as well.
const SCHEMA_MADE_WITHIN: Duration = Duration::from_secs(10);

/// What is kept in the database, and how it is made.
pub(super) const SCHEMA: &str = include_str!("schema.sql");

/// Changes are seen by what has come last in them.
const NEWEST_FUNCTION: &str = "lockattr.take_over(text[],integer,text,text,bigint)";

#[derive(Debug)]
pub(super) struct Server {
    pub(super) target: Target,
    pub(super) tls: Tls,
    pub(super) credentials: Option<CredentialsProvider>,
}

/// What a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Commands,
    /// Wake-ups and renewals.
    Listening,
}

impl Server {
    /// Begins a session with the primary. All hosts are tried at once: one that is silent costs nothing.
    pub(super) async fn connect(
        self: &Arc<Self>,
        purpose: Purpose,
        registry: &Arc<WakeUpRegistry>,
    ) -> Result<Live, StoreError> {
        let hosts = match (&self.target.listen, purpose) {
            (Some(hosts), Purpose::Listening) => hosts,
            _ => &self.target.hosts,
        };
        let mut tries = JoinSet::new();
        for address in hosts {
            let (server, registry, address) =
                (Arc::clone(self), Arc::clone(registry), address.clone());
            tries.spawn(async move {
                let began = server.begin(&address, purpose, &registry).await;
                began.map_err(|error| {
                    let message = format!("{}: {error}", address.shown());
                    error.saying(message)
                })
            });
        }
        let mut errors: Vec<StoreError> = Vec::new();
        while let Some(tried) = tries.join_next().await {
            match tried {
                Ok(Ok(live)) => return Ok(live),
                Ok(Err(error)) => errors.push(error),
                Err(error) => errors.push(StoreError::unreachable(error.to_string())),
            }
        }
        // One that refuses says more than one that is away.
        let tells_most = errors.iter().position(|error| !error.is_outage());
        let first = errors.swap_remove(tells_most.unwrap_or(0));
        let all: Vec<_> = errors.iter().map(ToString::to_string).collect();
        if all.is_empty() {
            return Err(first);
        }
        let message = format!("{first}; {}", all.join("; "));
        Err(first.saying(message))
    }

    async fn begin(
        &self,
        address: &Address,
        purpose: Purpose,
        registry: &Arc<WakeUpRegistry>,
    ) -> Result<Live, StoreError> {
        let mut config = self.target.session_at(address);
        if let Some(provider) = &self.credentials {
            let credentials = provider.credentials().await;
            let credentials = credentials.map_err(|why| {
                StoreError::refused(format!("the credentials could not be had: {why}"))
            })?;
            if let Some(user) = credentials.user {
                config.user(user);
            }
            config.password(credentials.password);
        }
        let ended = CancellationToken::new();
        // Behind a pooler that shares sessions, messages come in over any connection that uses them.
        let registry = (purpose == Purpose::Listening).then(|| Arc::clone(registry));
        let (client, task) = match self.tls.connector() {
            Some(connector) if config.get_ssl_mode() != SslMode::Disable => {
                match config.connect(connector).await {
                    Ok(pair) => started(pair, registry, &ended),
                    // What may be encrypted need not be.
                    Err(error)
                        if config.get_ssl_mode() == SslMode::Prefer
                            && error.as_db_error().is_none() =>
                    {
                        config.ssl_mode(SslMode::Disable);
                        let plain = config.connect(NoTls).await;
                        started(
                            plain.map_err(|error| fault::of_connect(&error))?,
                            registry,
                            &ended,
                        )
                    }
                    Err(error) => return Err(fault::of_connect(&error)),
                }
            }
            _ => {
                let plain = config.connect(NoTls).await;
                started(
                    plain.map_err(|error| fault::of_connect(&error))?,
                    registry,
                    &ended,
                )
            }
        };
        let mut live = Live::new(client, task, ended);
        introduce(&mut live, purpose).await?;
        Ok(live)
    }
}

/// The connection is driven from now on.
fn started<T>(
    (client, connection): (Client, Connection<Socket, T>),
    registry: Option<Arc<WakeUpRegistry>>,
    ended: &CancellationToken,
) -> (Client, tokio::task::AbortHandle)
where
    T: tokio_postgres::tls::TlsStream + Unpin + Send + 'static,
{
    let task = tokio::spawn(drive(connection, registry, ended.clone()));
    (client, task.abort_handle())
}

/// What is to be known of a server, and to be there, before it is asked for locks.
async fn introduce(live: &mut Live, purpose: Purpose) -> Result<(), StoreError> {
    let ask = format!(
        "SELECT pg_catalog.pg_is_in_recovery(), \
           pg_catalog.current_setting('server_version_num'), \
           pg_catalog.current_setting('server_encoding'), \
           pg_catalog.pg_backend_pid(), \
           (SELECT (extract(epoch FROM a.backend_start) * 1000000)::bigint \
            FROM pg_catalog.pg_stat_activity a WHERE a.pid = pg_catalog.pg_backend_pid()), \
           pg_catalog.to_regprocedure('{NEWEST_FUNCTION}') IS NOT NULL"
    );
    let told = |fault: super::Fault| fault.told();
    let answer = live
        .asked(&sql::step(&ask, SCHEMA_MADE_WITHIN))
        .await
        .map_err(told)?;
    let known = |column| answer.text(column).unwrap_or_default().to_owned();
    if known(0) == "t" {
        return Err(StoreError::unreachable(
            "the server is a standby, and locks are kept by the primary",
        ));
    }
    if known(1)
        .parse::<u32>()
        .is_ok_and(|version| version < OLDEST)
    {
        return Err(StoreError::refused(format!(
            "the server's version is too old ({}): locks need PostgreSQL 12",
            known(1)
        )));
    }
    if known(2) != "UTF8" {
        return Err(StoreError::refused(format!(
            "the encoding of the database is {}, which has not every key: create one with `ENCODING UTF8`",
            known(2)
        )));
    }
    live.session = Some(Session {
        process: known(3),
        since: known(4),
    });
    if known(5) != "t" && purpose == Purpose::Commands {
        // Many may find it missing at the same time: the first makes it, and the others find it then.
        let make = format!(
            "DO $make$ BEGIN \
               PERFORM pg_catalog.pg_advisory_xact_lock(1819239275, 0); \
               IF NOT EXISTS ( \
                 SELECT FROM pg_catalog.pg_proc p \
                 JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace \
                 WHERE n.nspname = 'lockattr' AND p.proname = 'take_over' \
               ) THEN EXECUTE $schema$ {SCHEMA} $schema$; END IF; \
             END $make$"
        );
        live.asked(&sql::step(&make, SCHEMA_MADE_WITHIN))
            .await
            .map_err(told)?;
    }
    Ok(())
}
