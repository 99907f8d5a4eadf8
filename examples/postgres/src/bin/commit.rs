//! Commits before the lock is given back, with sqlx. Twenty tickets are sold, each sale in a transaction of its own: first
//! with the commit inside the locked function, and then, as it should not be, by its caller.
//!
//! `DATABASE_URL=postgres://user@host/database cargo run -p postgres-fence --bin commit` makes a table `lockattr_event`
//! there, and removes it. Locks are kept on the server of `REDIS_URL`, or else on a private `redis-server` from the
//! PATH, or else in memory.

use std::env;
use std::error::Error;
use std::time::Duration;

use examples::Server;
use lockattr::{Client, distributed_lock};
use sqlx::{PgPool, Postgres, Transaction, query, query_scalar};
use tokio::task::JoinSet;
use tokio::time::sleep;

type Outcome = Result<(), Box<dyn Error + Send + Sync>>;

const TICKETS: i32 = 20;

/// The next holder reads what this one has committed. Where the lease is lost, this future is dropped, and with it the
/// transaction, which is rolled back; a commit that is already on its way is refused by its token if it is too late.
#[distributed_lock(key = "event:<event>", ttl = "5s", wait = "1m", bind = lease, client = locks)]
async fn sell(locks: &Client, db: &PgPool, event: i32) -> Outcome {
    let token = i64::try_from(lease.token().await?)?;
    let mut transaction = db.begin().await?;
    take_one(&mut transaction, event, token).await?;
    transaction.commit().await?;
    Ok(())
}

/// Wrong: the lock is free again before its caller commits, and the next holder reads what was there before.
#[distributed_lock(key = "event:<event>", ttl = "5s", wait = "1m", bind = lease, client = locks)]
async fn sell_within(
    locks: &Client,
    transaction: &mut Transaction<'_, Postgres>,
    event: i32,
) -> Outcome {
    let token = i64::try_from(lease.token().await?)?;
    take_one(transaction, event, token).await
}

async fn take_one(transaction: &mut Transaction<'_, Postgres>, event: i32, token: i64) -> Outcome {
    let left: i32 = query_scalar("SELECT tickets FROM lockattr_event WHERE id = $1")
        .bind(event)
        .fetch_one(&mut **transaction)
        .await?;
    // A holder that stood still, and was overtaken, has the smaller token.
    let sold = "UPDATE lockattr_event SET tickets = $2, fence = $3 WHERE id = $1 AND fence < $3";
    let sold = query(sold).bind(event).bind(left - 1).bind(token);
    match sold.execute(&mut **transaction).await?.rows_affected() {
        0 => Err("a later holder has written".into()),
        _ => Ok(()),
    }
}

#[tokio::main]
async fn main() -> Outcome {
    let url = env::var("DATABASE_URL").map_err(|_| "set DATABASE_URL to a PostgreSQL database")?;
    let db = PgPool::connect(&url).await?;
    let server = Server::find().await?;
    let locks = server.connect().await?;
    println!("{TICKETS} sales, {server}");
    let table =
        "CREATE TABLE lockattr_event (id int PRIMARY KEY, tickets int, fence bigint DEFAULT 0)";
    query(table).execute(&db).await?;
    for (event, place) in [(1, "inside"), (2, "after")] {
        let new = query("INSERT INTO lockattr_event VALUES ($1, $2)");
        new.bind(event).bind(TICKETS).execute(&db).await?;
        let mut sales = JoinSet::new();
        for _ in 0..TICKETS {
            let (db, locks) = (db.clone(), locks.clone());
            sales.spawn(async move {
                if event == 1 {
                    return sell(&locks, &db, event).await;
                }
                let mut transaction = db.begin().await?;
                sell_within(&locks, &mut transaction, event).await?;
                sleep(Duration::from_millis(20)).await;
                Ok(transaction.commit().await?)
            });
        }
        while let Some(sale) = sales.join_next().await {
            sale??;
        }
        let left = query_scalar::<_, i32>("SELECT tickets FROM lockattr_event WHERE id = $1");
        let left = left.bind(event).fetch_one(&db).await?;
        println!("committed {place} the locked function: {left} tickets are left");
    }
    query("DROP TABLE lockattr_event").execute(&db).await?;
    Ok(())
}
