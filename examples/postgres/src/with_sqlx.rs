//! The transaction with sqlx.

use sqlx::{Connection, PgConnection};

use crate::Outcome;

pub(crate) async fn pay_in(url: &str, lock: &str, token: i64, cents: i64) -> Outcome {
    let mut db = PgConnection::connect(url).await?;
    let mut transaction = db.begin().await?;
    // From here to the commit nobody else can take the lock; where somebody has, this fails.
    sqlx::query("SELECT lockattr.fence($1, $2)")
        .bind(lock)
        .bind(token)
        .execute(&mut *transaction)
        .await?;
    sqlx::query("UPDATE account SET cents = cents + $1")
        .bind(cents)
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(())
}
