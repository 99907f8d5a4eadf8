//! What the trait promises, in its own words.

use std::fmt::{self, Display};

/// A sentence of the documentation of [`Store`](crate::store::Store) or of what it is asked with.
pub(super) struct Promise {
    /// Where it stands.
    of: &'static str,
    says: &'static str,
}

impl Promise {
    const fn new(of: &'static str, says: &'static str) -> Self {
        Self { of, says }
    }

    /// Ends the test.
    #[track_caller]
    pub(super) fn broken(&self, found: impl Display) -> ! {
        panic!("the store breaks a promise of {self}: {found}")
    }

    /// Ends the test unless it is so.
    #[track_caller]
    pub(super) fn holds(&self, is_so: bool, otherwise: impl Display) {
        if !is_so {
            self.broken(otherwise);
        }
    }
}

impl Display for Promise {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of, says } = self;
        write!(f, "`{of}`, \"{says}\"")
    }
}

macro_rules! promises {
    ($($name:ident: $of:literal, $says:literal;)*) => {
        $(pub(super) const $name: Promise = Promise::new($of, $says);)*

        #[cfg(test)]
        pub(super) const ALL: &[Promise] = &[$($name),*];
    };
}

promises! {
    BOUND: "Store", "Every answer comes within [`Limits::longest_answer`]";
    UNKNOWN: "Store", "what a step does not know by then it answers as an error";
    MISMATCH: "Store", "every step but the first acts only where it finds that owner; finding another \
        one, it writes nothing";
    DROPPED: "Store", "A future may be dropped at any time. What it asked for may then still be done; \
        the owner's keys are given back after that, and once more when it is \
        [`settled`](Store::settled)";
    CHECKED: "Store::check", "`claim` is for a key that is nobody else's, and of which nothing is left";
    GRANTS: "Store::acquire", "Grants all locks of the claim to its owner for its ttl, if nobody holds \
        them; or nothing";
    TOGETHER: "Store::acquire", "A lock with permits is granted as long as its holders have no more of \
        them together than there are, by the number that the claim counts, each with the lowest slot that \
        no other holder has; and to readers beside readers. No other claims are granted beside each other";
    ORDER: "Store::acquire", "whoever comes, or does not wait, is granted nothing past a waiter who \
        waits for what it would have a part of";
    RECOGNISES: "Store::acquire", "Asked again for the same owner, it recognises its own grant and \
        starts the ttl anew";
    RELIED_ON: "Acquired::Granted", "Until when that may be relied on, by the clock of the caller: the \
        store has allowed for how long the answer took, and for clocks that drift";
    SLOT: "Acquired::Granted", "Which slot";
    BUSY_LOCK: "Acquired::Busy", "Which of the locks";
    BUSY_OWNER: "Acquired::Busy", "The owner that was found";
    BUSY_REMAINING: "Acquired::Busy", "How long its lease still runs";
    BUSY_SINCE: "Acquired::Busy", "Since when that owner holds it, if the store says it: by the store's \
        clock, and not from when the owner has begun to wait for it";
    SINCE: "Acquired::Done", "Since when";
    PLACE: "Acquired::Busy", "How many stand before the claim in the store's queue, if it stands there: \
        it will be granted the lock, or told to look again";
    ZERO_WAIT: "Attempt::wait", "With zero, a claim that stood in the store's queue stands there no more";
    RENEWS: "Store::renew", "Starts the ttl of each lease anew where its owner still holds it";
    NEVER_CREATES: "Store::renew", "Never creates a key";
    ONE_EACH: "Store::renew", "One answer for each lease, in their order: what is not known of one says \
        nothing of another";
    SHORTENS: "Held::shortens", "Whether a renewal is to shorten what is left";
    NEVER_SHORTENS: "Held::shortens", "If not, it never does: it may be carried out later than one that \
        was asked for after it";
    RENEWAL_GONE: "Renewal::Gone", "One of its keys was gone";
    RENEWAL_TAKEN: "Renewal::Taken", "One of its keys stood under another owner, or under something that \
        is not a lock. It was left as it was";
    ENDS: "Store::release", "Ends the owner's hold of what it still holds of the claim, and leaves there \
        what is to be left";
    FOUND: "Store::release", "Answers [`Found::Ours`] where it held all of it; of one of which it is not \
        known what it holds, where it held any, or stood in a queue";
    LEAVES_QUEUE: "Store::release", "An owner that stands in the store's queue stands there no more";
    CLOSED: "Leave::Closed", "A lock that nobody holds any more, for this long";
    DONE: "Leave::Done", "The mark that the work is done, for this long";
    KEEP_MARKS: "Release::keep_marks", "Whether a mark of work that is done is to be left also where \
        nothing is there any more";
    TOKEN: "Store::token", "larger than every token before of any of its locks, and only while its owner \
        holds all of them";
    AT_LEAST: "Held::at_least", "A token that is drawn is no smaller than this";
    SETTLED: "Store::settled", "Waits until no earlier request of this owner that was not answered can be \
        carried out any more, as far as the store can know";
}

#[cfg(test)]
mod tests {
    use super::ALL;

    /// What is promised is what is read.
    #[test]
    fn every_promise_is_a_sentence_of_the_trait() {
        let text = concat!(
            include_str!("../../store.rs"),
            include_str!("../request.rs"),
            include_str!("../answer.rs")
        )
        .replace("///", "");
        let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
        let text = words(&text);
        for promise in ALL {
            assert!(text.contains(&words(promise.says)), "{}", promise.says);
        }
    }
}
