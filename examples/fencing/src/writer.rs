//! A writer process: it sets an account's balance, with the account locked.

use std::error::Error;
use std::io;
use std::path::PathBuf;

use lockattr::{Client, distributed_lock};

use crate::account::Accounts;

type Failure = Box<dyn Error + Send + Sync>;

/// What a writer is told on its command line.
pub(crate) struct Orders {
    pub(crate) url: String,
    pub(crate) database: PathBuf,
    pub(crate) account: u32,
    pub(crate) cents: i64,
}

impl Orders {
    /// From the arguments of a writer process; `None` for a process that was started by hand.
    pub(crate) fn parse(arguments: &[String]) -> Option<Self> {
        let [mark, url, database, account, cents] = arguments else {
            return None;
        };
        (mark == "--writer").then_some(Self {
            url: url.clone(),
            database: database.into(),
            account: account.parse().ok()?,
            cents: cents.parse().ok()?,
        })
    }

    /// The arguments of a writer process.
    pub(crate) fn arguments(&self) -> [String; 5] {
        [
            "--writer".to_owned(),
            self.url.clone(),
            self.database.display().to_string(),
            self.account.to_string(),
            self.cents.to_string(),
        ]
    }
}

/// Returns the number of changed rows. The database decides it: the lock alone cannot stop a statement
/// that is in flight when the lease ends.
#[distributed_lock(key = "account:<id>", ttl = "2s", wait = "20s", bind = lease)]
async fn set_balance(id: u32, cents: i64, accounts: &Accounts) -> Result<usize, Failure> {
    let fence = i64::try_from(lease.token().await?)?;
    println!("token {fence}");
    slow_write_path()?;
    let changed = accounts.write(id, cents, fence)?;
    println!("changed {changed}");
    Ok(changed)
}

/// Stands for anything slow between the last check of a lease and the write itself: a collector's
/// pause, a full disk queue, a virtual machine that is moved.
///
/// It blocks on purpose. The lease is checked before every poll, so at an `.await` the body of a frozen
/// process would be stopped. Within a poll nothing can stop it.
fn slow_write_path() -> Result<(), Failure> {
    match io::stdin().read_line(&mut String::new())? {
        0 => Err("whoever started this writer is gone".into()),
        _ => Ok(()),
    }
}

/// Writes once, and prints what came of it.
pub(crate) async fn work(orders: Orders) -> Result<(), Box<dyn Error>> {
    let client = Client::connect(&orders.url).await?;
    let accounts = Accounts::open(&orders.database)?;
    let call = set_balance(orders.account, orders.cents, &accounts);
    match client.scope(call).await {
        Ok(_) => println!("outcome written"),
        Err(failure) => match failure.downcast_ref() {
            Some(lost @ lockattr::Error::Lost { .. }) => println!("outcome lost: {lost}"),
            _ => println!("outcome failed: {failure}"),
        },
    }
    Ok(())
}
