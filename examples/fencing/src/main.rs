//! A process stands still while it writes, for longer than its lease runs. When it goes on, another
//! process has taken the lock and written, and the database refuses the late write.
//!
//! `cargo run -p fencing` uses the server of `REDIS_URL`, or else a private `redis-server` from the
//! PATH.

mod account;
mod process;
mod writer;

use std::env;
use std::error::Error;
use std::path::Path;

use examples::Server;

use account::Accounts;
use process::Writer;
use writer::Orders;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    if let Some(orders) = Orders::parse(&arguments) {
        return writer::work(orders).await;
    }

    let server = Server::find().await?;
    let Some(url) = server.url() else {
        println!(
            "no REDIS_URL and no redis-server in the PATH: two processes have no lock to share"
        );
        return Ok(());
    };
    let folder = env::temp_dir().join(format!("lockattr-fencing-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    overtake(url, &folder.join("accounts.db"))
}

/// One writer overtakes another that stands still.
fn overtake(url: &str, database: &Path) -> Result<(), Box<dyn Error>> {
    // An account of its own for each run, so that runs on one server do not wait for one another.
    let account = std::process::id();
    let accounts = Accounts::open(database)?;
    accounts.create(account)?;
    let start = |cents| {
        Writer::start(&Orders {
            url: url.to_owned(),
            database: database.to_owned(),
            account,
            cents,
        })
    };

    let mut late = start(100)?;
    let token = late.says("token")?;
    late.freeze()?;
    println!("late writer: token {token}, frozen before it writes 100 cents");

    let mut next = start(200)?;
    next.go_on()?;
    let token = next.says("token")?;
    let changed = next.says("changed")?;
    let outcome = next.says("outcome")?;
    println!("next writer: token {token}, writes 200 cents, rows changed: {changed}");
    println!("next writer: {outcome}");

    late.thaw()?;
    late.go_on()?;
    let changed = late.says("changed")?;
    let outcome = late.says("outcome")?;
    println!("late writer: thawed, writes 100 cents, rows changed: {changed}");
    println!("late writer: {outcome}");

    let account = accounts.read(account)?;
    println!("account: {} cents, fence {}", account.cents, account.fence);
    println!("database: {}", database.display());
    Ok(())
}
