//! The transaction with tokio-postgres.

use tokio_postgres::NoTls;

use crate::Outcome;

pub(crate) async fn pay_in(url: &str, lock: &str, token: i64, cents: i64) -> Outcome {
    let (mut db, connection) = tokio_postgres::connect(url, NoTls).await?;
    tokio::spawn(connection);
    let transaction = db.transaction().await?;
    // From here to the commit nobody else can take the lock; where somebody has, this fails.
    transaction
        .execute("SELECT lockattr.fence($1, $2)", &[&lock, &token])
        .await?;
    transaction
        .execute("UPDATE account SET cents = cents + $1", &[&cents])
        .await?;
    transaction.commit().await?;
    Ok(())
}
