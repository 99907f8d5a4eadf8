//! Pays into an account under a lock, in a transaction that commits only while the lock is held: a process
//! that stands still for too long, and goes on, changes nothing.
//!
//! `cargo run -p postgres-fence -- postgres://user@host/database tokio-postgres`, or `sqlx`: the locks are in
//! the same database, which gets a table `account`. Press Enter while it works; or stop the process with
//! Ctrl-Z for longer than its ttl of two seconds, let another one pay in, and go on.

mod with_sqlx;
mod with_tokio_postgres;

use std::env;
use std::error::Error;
use std::io::stdin;

use lockattr::{Client, Lease, distributed_lock};

pub(crate) type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

/// Who writes to the database.
enum Library {
    Sqlx,
    TokioPostgres,
}

#[tokio::main]
async fn main() -> Outcome {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let (url, library) = match &arguments[..] {
        [url, library] if library == "sqlx" => (url, Library::Sqlx),
        [url, library] if library == "tokio-postgres" => (url, Library::TokioPostgres),
        _ => return Err("usage: postgres-fence DATABASE_URL sqlx|tokio-postgres".into()),
    };
    let locks = Client::connect(url).await?;
    match pay_in(&locks, url, &library, 100).await {
        Ok(()) => println!("outcome paid"),
        Err(error) => println!("outcome {}", told(&*error)),
    }
    Ok(())
}

#[distributed_lock(
    key = "account:1",
    ttl = "2s",
    wait = "10s",
    on_lost = continue,
    bind = lease,
    client = locks
)]
async fn pay_in(locks: &Client, url: &str, library: &Library, cents: i64) -> Outcome {
    let lease: &Lease = lease;
    // Drawn before the work begins, while the lock is certainly held.
    let token = i64::try_from(lease.token().await?)?;
    println!("working on {}", lease.key());
    tokio::task::spawn_blocking(|| stdin().read_line(&mut String::new())).await??;
    // The name of the lock, with the client's prefix.
    let lock = format!("lock:{}", lease.key());
    match library {
        Library::Sqlx => with_sqlx::pay_in(url, &lock, token, cents).await,
        Library::TokioPostgres => with_tokio_postgres::pay_in(url, &lock, token, cents).await,
    }
}

/// An error and what is below it: a database's own words are.
fn told(error: &dyn Error) -> String {
    let below = error.source().map(|below| format!(": {}", told(below)));
    format!("{error}{}", below.unwrap_or_default())
}
