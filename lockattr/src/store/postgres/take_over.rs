//! Another owner in the place of a lease's own.

use super::acquire::permits;
use super::live::unexpected;
use super::{Postgres, sql};
use crate::error::StoreError;
use crate::runtime::clock::millis;
use crate::store::{Held, Renewal, relied_on_until};

impl Postgres {
    /// Asked for twice where an answer was lost: it recognises what was done.
    pub(super) async fn take_lease_over(
        &self,
        lease: Held<'_>,
        new_owner: &str,
    ) -> Result<Renewal, StoreError> {
        let statement = statement(lease, new_owner);
        let (answer, _) = self.step(&statement, Some(new_owner)).await?;
        Ok(match answer.text(0)? {
            "held" => Renewal::Until(relied_on_until(answer.sent, lease.claim.ttl)),
            "taken" => Renewal::Taken,
            "gone" => Renewal::Gone,
            _ => return Err(unexpected("another answer")),
        })
    }
}

fn statement(lease: Held<'_>, new_owner: &str) -> String {
    format!(
        "SELECT * FROM lockattr.take_over({},{},{},{},{})",
        sql::texts(lease.claim.locks.iter().map(String::as_str)),
        permits(&lease.claim),
        sql::text(lease.claim.owner),
        sql::text(new_owner),
        millis(lease.claim.ttl)
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::store::Claim;

    #[test]
    fn it_is_asked_for_by_this_statement() {
        let locks = ["a".to_owned(), "b".to_owned()];
        let claim = Claim::new(&locks, "o", Duration::from_secs(1));
        assert_eq!(
            statement(claim.held(0), "p"),
            "SELECT * FROM lockattr.take_over(ARRAY[E'a',E'b']::text[],1,E'o',E'p',1000)"
        );
    }
}
