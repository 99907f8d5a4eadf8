//! Whether the database lets a client do its work, tried on a lock that is nobody else's.

use std::time::Instant;

use tokio::sync::oneshot;

use super::{Fault, Postgres, sql};
use crate::error::StoreError;
use crate::store::{Acquired, Attempt, Claim, Found, Release, Renewal, Token};

impl Postgres {
    pub(super) async fn check_all(&self, claim: Claim<'_>) -> Result<(), StoreError> {
        let Acquired::Granted { slot, .. } = self.take(claim, Attempt::default()).await? else {
            return Err(StoreError::refused("a lock that is nobody's was refused"));
        };
        let held = claim.held(slot);
        let heard = self.hears_itself(claim.owner).await;
        let renewed = self.renew_all(&[held], self.timeouts.reply).await;
        let token = self.draw_token(held).await;
        let found = self.give_back(claim, Release::held(slot, &[])).await?;
        // Nothing is left of the token either. Nobody has held it together with others: that they could is tried.
        let locks = sql::texts(claim.locks.iter().map(String::as_str));
        let forget = format!(
            "DELETE FROM lockattr.holders WHERE lock = ANY ({locks});\
             DELETE FROM lockattr.locks WHERE name = ANY ({locks}) AND until <= clock_timestamp()"
        );
        self.step(&forget, None).await?;
        heard?;
        let renewed = renewed?.into_iter().collect::<Result<Vec<_>, _>>()?;
        if !matches!(renewed[..], [Renewal::Until(_)])
            || !matches!(token?, Token::Drawn(_))
            || found != Found::Ours
        {
            return Err(StoreError::refused(
                "the lock of a check was lost: `listen` in the URL names another database, or a trigger \
                 changes what is stored",
            ));
        }
        Ok(())
    }

    /// Whether what is told over the one connection comes in over the other: a pooler that gives the session
    /// to somebody else after each transaction keeps wake-ups from coming.
    async fn hears_itself(&self, id: &str) -> Result<(), StoreError> {
        let heard = self.registry.probe(id);
        let answer = self.probe(id, heard).await;
        self.registry.forget_probe(id);
        answer
    }

    async fn probe(&self, id: &str, heard: oneshot::Receiver<()>) -> Result<(), StoreError> {
        // It listens for a while, and no longer.
        self.listening.begin(&self.background);
        self.listening.listen().await.map_err(Fault::told)?;
        let statement = format!(
            "SELECT pg_catalog.pg_notify({}, {})",
            sql::text(&self.registry.channel),
            sql::text(&format!("probe {id}"))
        );
        self.step(&statement, None).await?;
        let until = Instant::now() + self.timeouts.reply;
        let heard = self.background.until(until, heard).await;
        heard.map(|_| ()).map_err(|_| {
            StoreError::refused(
                "a NOTIFY did not come back over the connection that LISTENs: a pooler shares sessions. \
                 Connect to the database itself or to a pooler in session mode, or add `listen=HOST:PORT` \
                 to the URL, which names the database itself for wake-ups and renewals alone",
            )
        })
    }
}
