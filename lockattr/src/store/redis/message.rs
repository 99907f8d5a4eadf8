//! What is published to those who wait, and who is believed.
//!
//! Channels are not guarded as keys are: servers let every user publish and subscribe to all of them
//! unless told otherwise. So no owner goes over a channel. A message names its waiter by a hash of the
//! owner, and proves by a hash over owner and text that it was made by somebody who knows the owner:
//! a script that has read it in the queue. It says when it was made, so that it counts once.
//!
//! SHA-1 is what scripts have on every server. What is asked of it here is that nobody finds the text
//! that was hashed, which its collisions do not touch: an owner is made of 74 random bits or more.

use std::time::Duration;

use sha1_smol::Sha1;

/// `ticket proof what at`, and of a place in the queue the ms for which the lock is held yet, of a
/// grant `index length-of-lock lock` with the queue right after it.
pub(super) struct Message<'a> {
    /// Names the waiter.
    pub(super) ticket: &'a str,
    proof: &'a str,
    text: &'a str,
    /// The server's clock when it was made, in microseconds.
    pub(super) at: u64,
    pub(super) what: What<'a>,
}

pub(super) enum What<'a> {
    Look,
    First { remaining: Duration },
    Granted(Grant<'a>),
}

pub(super) struct Grant<'a> {
    pub(super) index: usize,
    pub(super) lock: &'a str,
    pub(super) queue: &'a str,
}

impl<'a> Message<'a> {
    pub(super) fn read(message: &'a str) -> Option<Self> {
        let (ticket, rest) = message.split_once(' ')?;
        let (proof, text) = rest.split_once(' ')?;
        let (what, rest) = text.split_once(' ')?;
        let (at, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let what = match (what, rest) {
            ("look", "") => What::Look,
            ("first", left) => {
                // A lock that is not held any more has none left.
                let left = left.parse::<i64>().ok()?;
                What::First {
                    remaining: Duration::from_millis(u64::try_from(left).unwrap_or(0)),
                }
            }
            ("grant", rest) => {
                let (index, rest) = rest.split_once(' ')?;
                let (length, rest) = rest.split_once(' ')?;
                let (lock, queue) = rest.split_at_checked(length.parse().ok()?)?;
                let index = index.parse().ok()?;
                What::Granted(Grant { index, lock, queue })
            }
            _ => return None,
        };
        Some(Self {
            ticket,
            proof,
            text,
            at: at.parse().ok()?,
            what,
        })
    }

    /// Whether it was made by somebody who knows this owner.
    pub(super) fn proves(&self, owner: &str) -> bool {
        self.proof == proof(owner, self.text)
    }
}

/// What names a waiter on channels, and tells nobody its owner.
pub(super) fn ticket(owner: &str) -> String {
    sha1(format!("waiter {owner}"))
}

/// Nested, so that nobody can lengthen a text that was proved.
fn proof(owner: &str, text: &str) -> String {
    let inner = sha1(format!("{owner} {text}"));
    sha1(format!("{owner} {inner}"))
}

fn sha1(text: String) -> String {
    Sha1::from(text).digest().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: &str = "0123@host:7";

    fn signed(text: &str) -> String {
        format!("{} {} {text}", ticket(OWNER), proof(OWNER, text))
    }

    #[test]
    fn a_message_says_what_was_given() {
        let text = signed("grant 77 2 8 lock:a block:wait:{lock:a b}");
        let message = Message::read(&text).unwrap();
        assert_eq!(message.ticket, ticket(OWNER));
        assert!(message.proves(OWNER));
        assert_eq!(message.at, 77);
        let What::Granted(grant) = message.what else {
            panic!("no grant")
        };
        let expected = (2, "lock:a b", "lock:wait:{lock:a b}");
        assert_eq!((grant.index, grant.lock, grant.queue), expected);
        let text = signed("look 78");
        let message = Message::read(&text).unwrap();
        assert!(matches!(message.what, What::Look) && message.at == 78);
        for (left, expected) in [("1500", 1500), ("-2", 0)] {
            let text = signed(&format!("first 79 {left}"));
            let message = Message::read(&text).unwrap();
            let What::First { remaining } = message.what else {
                panic!("{text}")
            };
            assert_eq!(
                (message.at, remaining),
                (79, Duration::from_millis(expected))
            );
        }
    }

    #[test]
    fn what_is_not_of_that_form_is_no_message() {
        for broken in [
            "",
            "a",
            "a b",
            "a b look",
            "a b look x",
            "a b look 7 8",
            "a b first 7",
            "a b first 7 x",
            "a b grant 7",
            "a b grant 7 1 9 short",
            "a b grant x 1 1 lq",
            "a b grant 7 x 1 lq",
            "a b grant 7 1 1 éq",
            "a b other 7 8",
        ] {
            assert!(Message::read(broken).is_none(), "{broken}");
        }
    }

    #[test]
    fn a_proof_is_of_one_text_by_one_owner() {
        let text = signed("first 79 1500");
        assert!(!Message::read(&text).unwrap().proves("4567@host:7"));
        for other in ["first 79 15000", "first 80 1500", "grant 79 0 1 ab"] {
            let forged = text.replace("first 79 1500", other);
            assert!(!Message::read(&forged).unwrap().proves(OWNER), "{other}");
        }
    }
}
