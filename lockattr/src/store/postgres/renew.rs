//! Renewing leases, many in one statement, over the connection that carries no callers' requests.

use std::time::{Duration, Instant};

use super::acquire::number;
use super::live::value;
use super::{Fault, Postgres, sql};
use crate::error::StoreError;
use crate::runtime::clock::millis;
use crate::store::{Held, Renewal, Renewed, relied_on_until};

impl Postgres {
    pub(super) async fn renew_all(
        &self,
        leases: &[Held<'_>],
        patience: Duration,
    ) -> Result<Vec<Renewed>, StoreError> {
        let statement = statement(leases);
        let patience = patience.min(self.timeouts.reply);
        let until = Instant::now() + patience;
        let connection = &self.listening.connection;
        let answer = loop {
            match connection.ask(&statement, patience, None).await {
                Ok(answer) => break answer,
                // It was not done, or may be done again.
                Err(Fault::NotSent(_) | Fault::Transient(_)) if Instant::now() < until => {}
                Err(fault) => {
                    if matches!(fault, Fault::Standby(_)) {
                        connection.discard();
                    }
                    return Err(fault.told());
                }
            }
        };
        let mut renewed: Vec<Renewed> = leases
            .iter()
            .map(|_| {
                Err(StoreError::in_doubt(
                    "the database has not answered for this lease",
                ))
            })
            .collect();
        for row in &answer.rows {
            let index: usize = number(value(row, 0)?)?;
            let (Some(one), Some(lease)) = (renewed.get_mut(index), leases.get(index)) else {
                continue;
            };
            *one = match value(row, 1)? {
                "held" => Ok(Renewal::Until(relied_on_until(
                    answer.sent,
                    lease.claim.ttl,
                ))),
                "gone" => Ok(Renewal::Gone),
                "taken" => Ok(Renewal::Taken),
                _ => Err(StoreError::refused(
                    "the row of the lock is locked by a transaction of somebody else's",
                )),
            };
        }
        Ok(renewed)
    }
}

fn statement(leases: &[Held<'_>]) -> String {
    let (mut indices, mut names, mut owners, mut ttls, mut shorten) =
        (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (index, lease) in leases.iter().enumerate() {
        for name in held_names(lease) {
            indices.push(index.to_string());
            names.push(name);
            owners.push(lease.claim.owner);
            ttls.push(millis(lease.claim.ttl).to_string());
            shorten.push(lease.shortens.to_string());
        }
    }
    format!(
        "SELECT * FROM lockattr.renew({},{},{},{},{})",
        sql::array(indices, "integer"),
        sql::texts(names.iter().map(String::as_str)),
        sql::texts(owners),
        sql::array(ttls, "bigint"),
        sql::array(shorten, "boolean")
    )
}

/// The names of what is held: as the function `lockattr.slot` makes them.
pub(super) fn held_names(lease: &Held<'_>) -> Vec<String> {
    match (lease.claim.locks, lease.slot) {
        ([lock], slot @ 1..) => vec![format!("{{{lock}}}{slot}")],
        (locks, _) => locks.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Claim;

    #[test]
    fn leases_are_renewed_by_one_statement() {
        let (one, two) = (["a".to_owned()], ["b".to_owned(), "c".to_owned()]);
        let slot = Claim::new(&one, "o", Duration::from_secs(1))
            .permits(3)
            .held(2);
        let both = Claim::new(&two, "p", Duration::from_secs(2))
            .held(0)
            .shortening();
        assert_eq!(
            statement(&[slot, both]),
            "SELECT * FROM lockattr.renew(ARRAY[0,1,1]::integer[],\
             ARRAY[E'{a}2',E'b',E'c']::text[],ARRAY[E'o',E'p',E'p']::text[],\
             ARRAY[1000,2000,2000]::bigint[],ARRAY[false,true,true]::boolean[])"
        );
    }
}
