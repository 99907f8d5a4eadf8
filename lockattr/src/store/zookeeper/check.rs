//! Tries every right and setting that is needed, on a key that is nobody else's.

use super::ZooKeeper;
use crate::error::StoreError;
use crate::store::{Acquired, Attempt, Claim, Leave, Release};

use std::time::Duration;

impl ZooKeeper {
    pub(super) async fn prove(&self, claim: Claim<'_>) -> Result<(), StoreError> {
        let life = self.step().life().await?;
        if life.timeout < self.timeout {
            return Err(StoreError::invalid(format!(
                "the ZooKeeper servers keep sessions for at most {:?}, and this client's ttl is {:?}, which is \
                 what a session is for: give it a ttl of at most that (`ClientBuilder::ttl`), or the servers \
                 a larger `maxSessionTimeout`",
                life.timeout, self.timeout
            )));
        }
        let ttl = claim.ttl.min(life.timeout);
        let claim = Claim { ttl, ..claim };
        match self.take(claim, Attempt::default()).await? {
            Acquired::Granted { slot, .. } => {
                self.draw(claim.held(slot)).await?;
                // What is left of it is over when the next one looks.
                let leave = [Leave::Closed(Duration::from_millis(1))];
                self.give_back(claim, Release::held(slot, &leave)).await?;
                let step = self.step();
                for lock in claim.locks {
                    step.remove_lock(lock).await?;
                }
                Ok(())
            }
            other => Err(StoreError::refused(format!(
                "a key that nobody else has was answered as {other:?}"
            ))),
        }
    }
}
