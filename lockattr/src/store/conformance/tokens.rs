//! Fencing tokens.

use super::promise::{AT_LEAST, MISMATCH, TOKEN};
use super::subject::{Claimant, Subject};
use crate::store::{Found, Store, Token};

/// What one of several stores may have drawn that the others have not.
const AHEAD: u64 = 1 << 40;

/// Tokens of a lock grow, and are drawn by its holder alone. One that is asked to be larger than all before
/// is remembered.
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
        last = raised(&subject, &holder, grant.slot, last + AHEAD).await;
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

/// Draws a token no smaller than one that was drawn elsewhere.
async fn raised(subject: &Subject<'_>, holder: &Claimant, slot: usize, least: u64) -> u64 {
    let reply = subject.store.token(holder.held(slot).at_least(least));
    match subject.answer("token", reply).await {
        Token::Drawn(token) if token >= least => token,
        other => AT_LEAST.broken(format!(
            "the holder, who asked for {least} at least, was answered {other:?}"
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
