//! Taking locks.

use std::time::{Duration, Instant, UNIX_EPOCH};

use super::live::unexpected;
use super::{Postgres, sql};
use crate::error::StoreError;
use crate::reply::KeptReply;
use crate::runtime::clock::millis;
use crate::store::clock_anchor::ClockAnchor;
use crate::store::{Acquired, Attempt, Claim, Sharing, relied_on_until};

impl Postgres {
    pub(super) async fn take(
        &self,
        claim: Claim<'_>,
        attempt: Attempt,
    ) -> Result<Acquired, StoreError> {
        can_be_stored(claim.locks)?;
        // One that nobody wakes stands in no queue.
        let waits = !attempt.wait.is_zero() && self.registry.is_waiting(claim.owner);
        let statement = statement(claim, attempt, waits.then_some(&*self.registry.channel));
        self.registry.asks(claim.owner);
        let (answer, lost) = self.step(&statement, Some(claim.owner)).await?;
        self.sweep();
        self.registry
            .answered(claim.owner, answer.sent, number(answer.text(5)?)?);
        self.wake(answer.text(6)?).await;
        let index = number(answer.text(1)?)?;
        let micros = Duration::from_micros(number(answer.text(3)?).unwrap_or_default());
        let acquired = match answer.text(0)? {
            "granted" => {
                // It may have waited for its turn on the server for longer than its ttl.
                let came = ClockAnchor::new(answer.sent, number(answer.text(7)?)?);
                let since = came.not_later_than(number(answer.text(5)?)?, Instant::now());
                let since = since.unwrap_or(answer.sent);
                Acquired::granted(index, relied_on_until(since, claim.ttl))
            }
            "done" => {
                let done = Acquired::done(index, UNIX_EPOCH + micros);
                match answer.text(9)? {
                    "" => done,
                    reply => done.replied(KeptReply::new(reply)),
                }
            }
            "busy" => {
                let mut busy = Acquired::busy(index, answer.text(2)?, micros);
                if let Ok(since) = answer.text(8)?.parse() {
                    busy = busy.since(UNIX_EPOCH + Duration::from_micros(since));
                }
                match answer.text(4)? {
                    "" => busy,
                    place => busy.queued(number(place)?),
                }
            }
            _ => return Err(unexpected("another answer")),
        };
        Ok(if lost { acquired.doubtful() } else { acquired })
    }
}

/// What stands beside a mark is looked up after the step, since a release may have left it meanwhile.
fn statement(claim: Claim<'_>, attempt: Attempt, channel: Option<&str>) -> String {
    let locks = sql::texts(claim.locks.iter().map(String::as_str));
    format!(
        "SELECT a.*,CASE a.answer WHEN 'done' THEN lockattr.reply(({locks})[a.index + 1],a.micros) END \
         FROM lockattr.acquire({locks},{},{},{},{},{},{}) a",
        permits(&claim),
        claim.weight,
        sql::text(claim.owner),
        millis(claim.ttl),
        sql::optional(channel.map(sql::text)),
        attempt.again
    )
}

/// As the functions are told how locks are wanted: alone with 1, beside readers with 0, and beside others with permits
/// with more.
pub(super) fn permits(claim: &Claim<'_>) -> u32 {
    match claim.sharing() {
        Sharing::Alone => 1,
        Sharing::Readers => 0,
        Sharing::Permits { permits, .. } => permits,
    }
}

/// A text in a database has every character but one.
pub(super) fn can_be_stored(locks: &[impl AsRef<str>]) -> Result<(), StoreError> {
    if locks.iter().any(|lock| lock.as_ref().contains('\0')) {
        return Err(StoreError::invalid(
            "PostgreSQL stores no text with the character U+0000: use a key without it",
        ));
    }
    Ok(())
}

pub(super) fn number<T: std::str::FromStr>(text: &str) -> Result<T, StoreError> {
    text.parse().map_err(|_| unexpected("no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_asked_for_by_this_statement() {
        let locks = ["lock:a".to_owned(), "lock:it's".to_owned()];
        let claim = Claim::new(&locks, "id@host:7", Duration::from_secs(30));
        assert_eq!(
            statement(claim, Attempt::default(), None),
            "SELECT a.*,CASE a.answer WHEN 'done' THEN \
               lockattr.reply((ARRAY[E'lock:a',E'lock:it''s']::text[])[a.index + 1],a.micros) END \
             FROM lockattr.acquire(ARRAY[E'lock:a',E'lock:it''s']::text[],1,1,E'id@host:7',30000,\
             NULL,false) a"
        );
        let one = Claim::new(&locks[..1], "id@host:7", Duration::from_secs(30));
        let wait = Attempt::again(Duration::from_secs(5));
        for (claim, how) in [(one.permits(3).weight(2), "3,2"), (one.shared(true), "0,1")] {
            let asked = format!(
                "FROM lockattr.acquire(ARRAY[E'lock:a']::text[],{how},E'id@host:7',30000,E'lockattr_1',true) a"
            );
            let statement = statement(claim, wait, Some("lockattr_1"));
            assert!(statement.ends_with(&asked), "{statement}");
        }
    }
}
