//! Answers of renewals beside extends: in which order the store has carried them out is not known.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Confirmed;
use crate::acquisition::Acquisition;
use crate::store::relied_on_until;

const SECOND: Duration = Duration::from_secs(1);
const TTL: Duration = Duration::from_secs(30);

fn lease() -> Arc<Acquisition> {
    let queue = 0.into();
    Acquisition::sample(queue, Instant::now(), TTL, |_| {})
}

fn confirmed(asked: Duration) -> Confirmed {
    let until = relied_on_until(Instant::now(), asked);
    Confirmed { asked, until }
}

/// Extends a lease, and is answered at once.
fn extend(lease: &Acquisition, ttl: Duration) -> bool {
    let extension = lease.begin_extension(ttl);
    let in_full = lease.extended(extension, confirmed(ttl));
    lease.end_extension();
    in_full
}

fn left(lease: &Acquisition) -> Duration {
    lease.deadline().saturating_duration_since(Instant::now())
}

#[test]
fn a_renewal_that_was_sent_before_a_shorter_extend_had_ended_confirms_no_more_than_that() {
    let lease = lease();
    let ended = lease.shortenings_ended();
    lease.renewing.store(true, super::Ordering::Relaxed);
    let longer = lease.begin_extension(60 * SECOND);
    assert!(extend(&lease, 2 * SECOND));
    assert!(!lease.extended(longer, confirmed(60 * SECOND)));
    lease.end_extension();
    lease.renewed(confirmed(TTL), ended);
    assert!(left(&lease) <= 2 * SECOND, "{:?}", left(&lease));
    // What is sent from now on is carried out after both.
    let ended = lease.shortenings_ended();
    lease.renewed(confirmed(lease.ttl()), ended);
    assert!(left(&lease) > 50 * SECOND, "{:?}", left(&lease));
}

#[test]
fn a_renewal_beside_a_shorter_extend_that_was_given_up_confirms_no_more_than_that() {
    let lease = lease();
    let shorter = lease.begin_extension(2 * SECOND);
    lease.give_up_extension(shorter);
    lease.end_extension();
    assert!(lease.may_be_shortened());
    assert_eq!(lease.ttl(), 2 * SECOND);
    let ended = lease.shortenings_ended();
    assert!(!extend(&lease, 60 * SECOND));
    lease.renewed(confirmed(60 * SECOND), ended);
    assert!(left(&lease) <= 2 * SECOND, "{:?}", left(&lease));
    lease.extension_settled();
    assert_eq!(lease.ttl(), 60 * SECOND);
    lease.renewed(confirmed(60 * SECOND), ended);
    assert!(left(&lease) <= 2 * SECOND, "{:?}", left(&lease));
    assert!(extend(&lease, 60 * SECOND));
    assert!(left(&lease) > 50 * SECOND, "{:?}", left(&lease));
}

/// The store tells one of those who ask for how long it is not sure, and says so of all of them.
#[test]
fn those_that_were_given_up_are_outstanding_until_the_last_of_them_is_settled() {
    let lease = lease();
    for ttl in [2 * SECOND, 3 * SECOND] {
        let shorter = lease.begin_extension(ttl);
        lease.give_up_extension(shorter);
        lease.end_extension();
    }
    lease.extension_settled();
    assert_eq!(lease.ttl(), 2 * SECOND);
    lease.extension_settled();
    assert!(!lease.may_be_shortened());
    assert_eq!(lease.ttl(), TTL);
    assert!(left(&lease) <= 2 * SECOND, "{:?}", left(&lease));
}

/// Only what is refused leaves everything as it was.
#[test]
fn a_refused_extend_gives_back_no_more_than_others_have_left() {
    let lease = lease();
    let (one, two) = (3 * SECOND, 2 * SECOND);
    let refused = lease.begin_extension(one);
    let carried_out = lease.begin_extension(two);
    lease.extended(carried_out, confirmed(two));
    lease.extension_refused(refused);
    assert!(left(&lease) <= two, "{:?}", left(&lease));
    assert_eq!(lease.ttl(), two);
}
