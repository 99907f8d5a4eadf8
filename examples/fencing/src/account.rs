//! The table of accounts, which refuses writes with an outdated fencing token.

use std::path::Path;

use rusqlite::{Connection, Error, params};

pub(crate) struct Accounts(Connection);

/// One row of the table.
pub(crate) struct Account {
    pub(crate) cents: i64,
    /// The token of the last writer.
    pub(crate) fence: i64,
}

impl Accounts {
    pub(crate) fn open(file: &Path) -> Result<Self, Error> {
        let database = Connection::open(file)?;
        database.execute(
            "CREATE TABLE IF NOT EXISTS account (
                id    INTEGER PRIMARY KEY,
                cents INTEGER NOT NULL,
                fence INTEGER NOT NULL
            )",
            (),
        )?;
        Ok(Self(database))
    }

    /// A row that every token may write to, for tokens are larger than 0.
    pub(crate) fn create(&self, id: u32) -> Result<(), Error> {
        let sql = "INSERT INTO account (id, cents, fence) VALUES (?, 0, 0)";
        self.0.execute(sql, [id]).map(drop)
    }

    /// Returns the number of changed rows: 0 where a writer with a larger token has written.
    ///
    /// One statement compares and writes, so it is atomic. A holder that writes to a row more than
    /// once under one lease, and so with one token, needs `fence <= ?`.
    pub(crate) fn write(&self, id: u32, cents: i64, fence: i64) -> Result<usize, Error> {
        let sql = "UPDATE account SET cents = ?, fence = ? WHERE id = ? AND fence < ?";
        self.0.execute(sql, params![cents, fence, id, fence])
    }

    pub(crate) fn read(&self, id: u32) -> Result<Account, Error> {
        let sql = "SELECT cents, fence FROM account WHERE id = ?";
        self.0.query_row(sql, [id], |row| {
            Ok(Account {
                cents: row.get(0)?,
                fence: row.get(1)?,
            })
        })
    }
}
