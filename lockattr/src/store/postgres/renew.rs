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

/// One statement for all: those that others may hold a lock beside are in a table of their own.
fn statement(leases: &[Held<'_>]) -> String {
    let (mut alone, mut beside) = (Asked::default(), Asked::default());
    for (index, lease) in leases.iter().enumerate() {
        let asked = if lease.claim.sharing().is_alone() {
            &mut alone
        } else {
            &mut beside
        };
        for lock in lease.claim.locks {
            asked.add(index, lock, lease);
        }
    }
    let selects = [(alone, "renew"), (beside, "renew_holders")]
        .into_iter()
        .filter(|(asked, _)| !asked.names.is_empty())
        .map(|(asked, function)| asked.select(function));
    selects.collect::<Vec<_>>().join(" UNION ALL ")
}

/// What a function is given: an array for each of these, with one of each for every lock of a lease.
#[derive(Default)]
struct Asked<'a> {
    indices: Vec<String>,
    names: Vec<&'a str>,
    owners: Vec<&'a str>,
    ttls: Vec<String>,
    shorten: Vec<String>,
}

impl<'a> Asked<'a> {
    fn add(&mut self, index: usize, lock: &'a str, lease: &Held<'a>) {
        self.indices.push(index.to_string());
        self.names.push(lock);
        self.owners.push(lease.claim.owner);
        self.ttls.push(millis(lease.claim.ttl).to_string());
        self.shorten.push(lease.shortens.to_string());
    }

    fn select(self, function: &str) -> String {
        format!(
            "SELECT * FROM lockattr.{function}({},{},{},{},{})",
            sql::array(self.indices, "integer"),
            sql::texts(self.names),
            sql::texts(self.owners),
            sql::array(self.ttls, "bigint"),
            sql::array(self.shorten, "boolean")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Claim;

    #[test]
    fn leases_are_renewed_by_one_statement() {
        let (one, two) = (["a".to_owned()], ["b".to_owned(), "c".to_owned()]);
        let permits = Claim::new(&one, "o", Duration::from_secs(1))
            .permits(3)
            .held(2);
        let both = Claim::new(&two, "p", Duration::from_secs(2))
            .held(0)
            .shortening();
        let alone = |index| {
            format!(
                "SELECT * FROM lockattr.renew(ARRAY[{index},{index}]::integer[],\
                 ARRAY[E'b',E'c']::text[],ARRAY[E'p',E'p']::text[],\
                 ARRAY[2000,2000]::bigint[],ARRAY[true,true]::boolean[])"
            )
        };
        let beside = "SELECT * FROM lockattr.renew_holders(ARRAY[0]::integer[],\
             ARRAY[E'a']::text[],ARRAY[E'o']::text[],ARRAY[1000]::bigint[],ARRAY[false]::boolean[])";
        assert_eq!(statement(&[both]), alone(0));
        assert_eq!(statement(&[permits]), beside);
        assert_eq!(
            statement(&[permits, both]),
            format!("{} UNION ALL {beside}", alone(1))
        );
    }
}
