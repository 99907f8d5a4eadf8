//! What a server says of itself, and what that means for locks.

use super::{Found, number};
use crate::error::StoreError;
use crate::store::inspect::Severity;
use crate::store::postgres::live::Answer;

/// Above so many percent something is nearly full.
const NEARLY_FULL: u64 = 90;

/// So many transactions before it takes no more, at 2 ^ 31, a server has long been warning.
const OLD: u64 = 1_500_000_000;

/// So many rows that are over make each step slower.
const DEAD_ROWS: u64 = 100_000;

/// One row of what a server says of itself. No standby is waited for where commits are `local`.
pub(super) const ASK: &str = "SELECT current_setting('server_version'), current_setting('fsync'), \
    current_setting('full_page_writes'), \
    (SELECT count(*) FROM pg_stat_replication), CASE current_setting('synchronous_commit') WHEN 'local' THEN '' \
    ELSE current_setting('synchronous_standby_names') END, \
    (SELECT sum(numbackends) FROM pg_stat_database), current_setting('max_connections'), \
    (SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()), \
    (SELECT coalesce(sum(n_dead_tup), 0) FROM pg_stat_user_tables WHERE schemaname = 'lockattr'), \
    current_setting('autovacuum'), \
    (SELECT s.ssl FROM pg_stat_ssl s WHERE s.pid = pg_backend_pid())";

/// What a server says of itself.
pub(super) struct Facts {
    version: String,
    /// A setting without which a crash may lose what was written.
    is_off: Option<&'static str>,
    standbys: u64,
    /// Which of them have to acknowledge a write.
    synchronous: String,
    clients: u64,
    most_clients: u64,
    age: u64,
    dead_rows: u64,
    autovacuum: bool,
    is_encrypted: bool,
}

impl Facts {
    pub(super) fn read(answer: &Answer) -> Result<Self, StoreError> {
        let number = |column| number(answer.text(column)?);
        let is_on =
            |column| -> Result<_, StoreError> { Ok(matches!(answer.text(column)?, "on" | "t")) };
        Ok(Self {
            version: answer.text(0)?.to_owned(),
            is_off: match (is_on(1)?, is_on(2)?) {
                (true, true) => None,
                (true, false) => Some("full_page_writes"),
                (false, _) => Some("fsync"),
            },
            standbys: number(3)?,
            synchronous: answer.text(4)?.to_owned(),
            clients: number(5)?,
            most_clients: number(6)?,
            age: number(7)?,
            dead_rows: number(8)?,
            autovacuum: is_on(9)?,
            is_encrypted: is_on(10)?,
        })
    }

    pub(super) fn version(&self) -> Found {
        Found::good("server", format!("PostgreSQL {}", self.version))
    }

    pub(super) fn durability(&self) -> Found {
        let Some(setting) = self.is_off else {
            return Found::good(
                "persistence",
                "a restart or a crash loses no lock; those who wait ask again after it, and their order may \
                 change",
            );
        };
        Found {
            topic: "persistence",
            severity: Severity::Warning,
            text: format!(
                "`{setting}` is off: a crash of its machine may lose locks, or the database"
            ),
            advice: "turn it on: a lock that is lost is free while its holder works",
        }
    }

    pub(super) fn standbys(&self) -> Found {
        let (standbys, names) = (self.standbys, &self.synchronous);
        let found = match (standbys, names.as_str()) {
            (0, "") => {
                "no standby follows it: while it is away, locks are neither taken nor renewed"
                    .to_owned()
            }
            (0, names) => format!("no standby follows it, and writes wait for one ({names})"),
            (_, "") => format!("{standbys} follow it, which are told of a lock after its grant"),
            (_, names) => {
                format!("{standbys} follow it, and grants wait for synchronous ones ({names})")
            }
        };
        Found::good("standbys", found)
            .but(
                standbys > 0 && names.is_empty(),
                Severity::Advice,
                "a failover loses what the standby had not heard yet, and then two may hold a lock: set \
                 `synchronous_standby_names`, or fence with tokens",
            )
            .but(
                standbys == 0 && !names.is_empty(),
                Severity::Fault,
                "look at the standbys: no lock is granted before one of them follows, or \
                 `synchronous_standby_names` is empty",
            )
    }

    pub(super) fn clients(&self) -> Found {
        let (clients, most) = (self.clients, self.most_clients);
        Found::good("clients", format!("{clients} of {most} sessions are taken")).but(
            clients * 100 >= most * NEARLY_FULL,
            Severity::Warning,
            "raise `max_connections`, or put a pooler before the server: one that is full turns clients away",
        )
    }

    pub(super) fn space(&self) -> Found {
        let found = format!("its oldest rows are {} transactions old", self.age);
        Found::good("transaction ids", found).but(
            self.age >= OLD,
            Severity::Warning,
            "VACUUM the database, and look for what keeps old rows (transactions, replication slots): at 2 \
             billions it takes no writes, and no lock",
        )
    }

    pub(super) fn vacuum(&self) -> Found {
        let found = format!(
            "{} rows of locks that are over wait to be removed",
            self.dead_rows
        );
        Found::good("vacuum", found)
            .but(
                !self.autovacuum,
                Severity::Advice,
                "`autovacuum` is off: turn it on, or VACUUM the tables of `lockattr` every minute, or each \
                 step becomes slower",
            )
            .but(
                self.dead_rows >= DEAD_ROWS,
                Severity::Advice,
                "each step becomes slower by them: look for transactions that are hours old in \
                 `pg_stat_activity`, which keep VACUUM from removing them",
            )
    }

    pub(super) fn encryption(&self, is_local: bool) -> Found {
        let found = match (self.is_encrypted, is_local) {
            (true, _) => "the connections are encrypted",
            (_, true) => "the server is on this machine",
            _ => "the connections are not encrypted, and the server is on another machine",
        };
        Found::good("encryption", found).but(
            !self.is_encrypted && !is_local,
            Severity::Advice,
            "use TLS (`sslmode=require` and the feature `tls`), or a network that nobody else can listen to: \
             whoever reads an owner can end its lock",
        )
    }
}
