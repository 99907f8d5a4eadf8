//! The messages that are published to those who wait, and which of them are genuine.
//!
//! Channels are not guarded as keys are: a server lets every user publish and subscribe to all of them
//! unless it is told otherwise. So no owner is ever published. A message names its waiter by a hash of
//! the owner. It carries a message authentication code with the owner as the secret, which only a script
//! can make that has read the owner in the queue. It says when it was made, so that a replay is detected
//! by the receiver.
//!
//! SHA-1 is the hash that scripts have on every server. All that is needed of it is preimage resistance,
//! which its known collisions do not affect: an owner has 74 random bits or more.

use std::time::Duration;

use sha1_smol::Sha1;

/// `waiter-id proof kind at`, and what the kind adds: `first` the ms for which the lock is still held, and
/// `grant` the words `slot length-of-key key`, with the queue directly behind the key.
pub(super) struct Message<'a> {
    /// Names the waiter; see [`waiter_id`].
    pub(super) waiter_id: &'a str,
    proof: &'a str,
    text: &'a str,
    /// The server's clock when it was made, in microseconds.
    pub(super) at: u64,
    pub(super) kind: MessageKind<'a>,
}

pub(super) enum MessageKind<'a> {
    Look,
    First { remaining: Duration },
    Granted(GrantMessage<'a>),
}

pub(super) struct GrantMessage<'a> {
    pub(super) slot: usize,
    pub(super) key: &'a str,
    pub(super) queue: &'a str,
}

impl<'a> Message<'a> {
    pub(super) fn read(message: &'a str) -> Option<Self> {
        let (waiter_id, rest) = message.split_once(' ')?;
        let (proof, text) = rest.split_once(' ')?;
        let (kind, rest) = text.split_once(' ')?;
        let (at, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let kind = match (kind, rest) {
            ("look", "") => MessageKind::Look,
            ("first", left) => {
                // Negative where the lock is not held any more.
                let left = left.parse::<i64>().ok()?;
                MessageKind::First {
                    remaining: Duration::from_millis(u64::try_from(left).unwrap_or(0)),
                }
            }
            ("grant", rest) => {
                let (slot, rest) = rest.split_once(' ')?;
                let (length, rest) = rest.split_once(' ')?;
                let (key, queue) = rest.split_at_checked(length.parse().ok()?)?;
                let slot = slot.parse().ok()?;
                MessageKind::Granted(GrantMessage { slot, key, queue })
            }
            _ => return None,
        };
        Some(Self {
            waiter_id,
            proof,
            text,
            at: at.parse().ok()?,
            kind,
        })
    }

    /// Whether it was made by somebody who knows this owner.
    pub(super) fn proves(&self, owner: &str) -> bool {
        self.proof == proof(owner, self.text)
    }
}

/// Names a waiter on a channel without telling its owner.
pub(super) fn waiter_id(owner: &str) -> String {
    sha1(format!("waiter {owner}"))
}

/// Hashed twice, as in HMAC: nobody can append to a text that was proved.
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
        format!("{} {} {text}", waiter_id(OWNER), proof(OWNER, text))
    }

    #[test]
    fn a_message_says_what_was_given() {
        let text = signed("grant 77 2 8 lock:a block:wait:{lock:a b}");
        let message = Message::read(&text).unwrap();
        assert_eq!(message.waiter_id, waiter_id(OWNER));
        assert!(message.proves(OWNER));
        assert_eq!(message.at, 77);
        let MessageKind::Granted(grant) = message.kind else {
            panic!("no grant")
        };
        let expected = (2, "lock:a b", "lock:wait:{lock:a b}");
        assert_eq!((grant.slot, grant.key, grant.queue), expected);
        let text = signed("look 78");
        let message = Message::read(&text).unwrap();
        assert!(matches!(message.kind, MessageKind::Look) && message.at == 78);
        for (left, expected) in [("1500", 1500), ("-2", 0)] {
            let text = signed(&format!("first 79 {left}"));
            let message = Message::read(&text).unwrap();
            let MessageKind::First { remaining } = message.kind else {
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
