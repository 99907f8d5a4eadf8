//! Giving locks back.

use super::live::unexpected;
use super::{Postgres, sql};
use crate::error::StoreError;
use crate::runtime::clock::millis;
use crate::store::{Claim, Found, Leave, Release};

impl Postgres {
    pub(super) async fn give_back(
        &self,
        claim: Claim<'_>,
        release: Release<'_>,
    ) -> Result<Found, StoreError> {
        let (answer, lost) = self.step(&statement(claim, release), None).await?;
        self.wake(answer.text(1)?).await;
        match answer.text(0)? {
            "ours" => Ok(Found::Ours),
            // The request before, which was not answered, may have done it: another has the lock since, if one does.
            "nothing" | "another" if lost && release.slot.is_some() => Ok(Found::Ours),
            "nothing" => Ok(Found::Nothing),
            "another" => Ok(Found::Another),
            _ => Err(unexpected("another answer")),
        }
    }
}

fn statement(claim: Claim<'_>, release: Release<'_>) -> String {
    let (owner, whatever) = (sql::text(claim.owner), release.slot.is_none());
    if let ([lock], false) = (claim.locks, claim.sharing().is_alone()) {
        let closed = match release.leave {
            [Leave::Closed(length), ..] => Some(millis(*length)),
            _ => None,
        };
        return format!(
            "SELECT * FROM lockattr.release_beside({},{owner},{whatever},{},{},{})",
            sql::text(lock),
            closed.is_some(),
            closed.unwrap_or_default(),
            release.may_queue
        );
    }
    let leaves_something = release.leave.iter().any(|leave| *leave != Leave::Nothing);
    let leave = if leaves_something { release.leave } else { &[] };
    let (kinds, lengths): (Vec<_>, Vec<_>) = leave
        .iter()
        .map(|leave| match leave {
            Leave::Nothing => ("nothing", 0),
            Leave::Closed(length) => ("closed", millis(*length)),
            Leave::Done(length) | Leave::Replied(length, _) => ("done", millis(*length)),
        })
        .unzip();
    let replies = leave.iter().map(|leave| {
        let reply = leave.reply().map(|reply| sql::text(reply.as_str()));
        sql::optional(reply)
    });
    let (function, replies) = if leave.iter().any(|leave| leave.reply().is_some()) {
        (
            "release_replied",
            format!(",{}", sql::array(replies, "text")),
        )
    } else {
        ("release", String::new())
    };
    format!(
        "SELECT * FROM lockattr.{function}({},{owner},{whatever},{},{},{},{}{replies})",
        sql::texts(claim.locks.iter().map(String::as_str)),
        sql::texts(kinds),
        sql::array(lengths.iter().map(u64::to_string), "bigint"),
        release.keep_marks,
        release.may_queue
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reply::KeptReply;

    #[test]
    fn it_is_asked_for_by_this_statement() {
        let locks = ["a".to_owned(), "b".to_owned()];
        let claim = Claim::new(&locks, "o", Duration::from_secs(1));
        assert_eq!(
            statement(claim, Release::whatever(true)),
            "SELECT * FROM lockattr.release(ARRAY[E'a',E'b']::text[],E'o',true,ARRAY[]::text[],\
             ARRAY[]::bigint[],false,true)"
        );
        let leave = [Leave::Nothing, Leave::Done(Duration::from_millis(5))];
        assert_eq!(
            statement(claim, Release::held(0, &leave).keeping_marks()),
            "SELECT * FROM lockattr.release(ARRAY[E'a',E'b']::text[],E'o',false,\
             ARRAY[E'nothing',E'done']::text[],ARRAY[0,5]::bigint[],true,false)"
        );
        let reply = KeptReply::new("json \"it's\"");
        let leave = [Leave::Replied(Duration::from_millis(5), reply)];
        assert_eq!(
            statement(
                Claim::new(&locks[..1], "o", claim.ttl),
                Release::held(0, &leave)
            ),
            "SELECT * FROM lockattr.release_replied(ARRAY[E'a']::text[],E'o',false,ARRAY[E'done']::text[],\
             ARRAY[5]::bigint[],false,false,ARRAY[E'json \"it''s\"']::text[])"
        );
        let reader = Claim::new(&locks[..1], "o", claim.ttl).shared(true);
        assert_eq!(
            statement(reader, Release::whatever(true)),
            "SELECT * FROM lockattr.release_beside(E'a',E'o',true,false,0,true)"
        );
        let closed = [Leave::Closed(Duration::from_millis(5))];
        assert_eq!(
            statement(reader, Release::held(0, &closed)),
            "SELECT * FROM lockattr.release_beside(E'a',E'o',false,true,5,false)"
        );
    }
}
