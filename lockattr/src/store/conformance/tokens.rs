//! Fencing tokens.

use super::promise::{MISMATCH, TOKEN};
use super::subject::{Claimant, Subject};
use crate::store::{Found, Store, Token};

/// Tokens of a lock grow, and are drawn by its holder alone.
pub async fn tokens(store: &dyn Store) {
    let subject = Subject::new(store);
    let mut holder = subject.newcomer();
    let mut last = 0;
    for _ in 0..3 {
        not_drawn(&subject, &holder, 0, Found::Nothing).await;
        let grant = subject.granted(&holder).await;
        // A second one is what is drawn again where the first answer never came.
        for _ in 0..2 {
            last = drawn(&subject, &holder, grant.slot, last).await;
        }
        let other = subject.rival(&holder);
        not_drawn(&subject, &other, grant.slot, Found::Another).await;
        subject.busy(&MISMATCH, &other, &holder, grant).await;
        subject.give_back(&holder, grant.slot).await;
        not_drawn(&subject, &holder, grant.slot, Found::Nothing).await;
        holder = other;
    }
}

/// Draws a token larger than the last.
pub(super) async fn drawn(subject: &Subject<'_>, holder: &Claimant, slot: usize, last: u64) -> u64 {
    match subject.token(holder, slot).await {
        Token::Drawn(token) if token > last => token,
        other => TOKEN.broken(format!(
            "the holder, after a token of {last}, was answered {other:?}"
        )),
    }
}

pub(super) async fn not_drawn(subject: &Subject<'_>, caller: &Claimant, slot: usize, found: Found) {
    let answer = subject.token(caller, slot).await;
    TOKEN.holds(
        answer == Token::NotHeld(found),
        format!("an owner that does not hold all of it was answered {answer:?}"),
    );
}
