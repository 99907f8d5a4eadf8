//! Fencing tokens. One that was drawn and not heard of is drawn again: it is merely larger.

use super::acquire::number;
use super::live::unexpected;
use super::{Postgres, sql};
use crate::error::StoreError;
use crate::store::{Claim, Found, Held, Token};

impl Postgres {
    pub(super) async fn draw_token(&self, lease: Held<'_>) -> Result<Token, StoreError> {
        let floor = i64::try_from(lease.at_least).map_err(|_| {
            StoreError::invalid("PostgreSQL draws no token that has more than 63 bits")
        })?;
        let Claim { locks, owner, .. } = lease.claim;
        let (function, of) = match locks {
            [lock] if !lease.claim.sharing().is_alone() => ("draw_holder_token", sql::text(lock)),
            _ => ("draw_token", sql::texts(locks.iter().map(String::as_str))),
        };
        let statement = format!(
            "SELECT * FROM lockattr.{function}({of},{},{floor})",
            sql::text(owner)
        );
        let (answer, _) = self.step(&statement, None).await?;
        Ok(match answer.text(0)? {
            "ours" => Token::Drawn(number(answer.text(1)?)?),
            "nothing" => Token::NotHeld(Found::Nothing),
            "another" => Token::NotHeld(Found::Another),
            _ => return Err(unexpected("another answer")),
        })
    }
}
