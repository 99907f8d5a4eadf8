//! The state of one acquisition, from its first request to the last thing that may still come of it.
//!
//! ```text
//!                  Refuse
//!         ┌────────────────────┐
//!         ▼                    │
//!       Idle ────Ask────────► Asking ◄───Ask─── Queued
//!         │                    │  │ └───Refuse────► │
//!         │ Grant        Grant │  │ (queued)        │
//!         │ (handed on)        ▼  │                 │
//!         └─────────────────► Held ◄─────Grant──────┤
//!                              │  │                 │
//!                     GiveBack,│  └─GiveBack─┐      │ GiveBack
//!                  Lose(cause) ▼             ▼      ▼
//!                            Over(GivenBack or Lost, …)
//!
//!             HandOn (given back only)
//!      NotYet ─────────────────────────► HandedOn ──NotTaken──► Unclaimed
//!        │ ▲                              │                       │
//!        │ └───────────NotHandedOn────────┘                       │
//!        │ Release                                                │ Answer
//!        ▼                                                        ▼
//!      Asked ──────────────────────Answer───────────────────────► Done
//!        │ ▲
//!        │ └─Release─ Failed, InDoubt ◄─┐
//!        └────────────Fail──────────────┘
//! ```
//!
//! Who causes what: the call that asks `Ask`, `Refuse` and `Grant`; the holder, or whatever drops its
//! last handle, `GiveBack`; the keeper and a shutdown `Lose`; whoever gives the keys back `HandOn`
//! before it offers them to the next caller, `NotHandedOn` where none was there, `Release`, `Answer` and
//! `Fail`; a caller that does not take what was handed to it `NotTaken`. An event that has no arrow from
//! the present state changes nothing: of two that end a lease, the first one counts.

use std::sync::atomic::{AtomicU8, Ordering};

use crate::error::LossCause;
use crate::listed::listed;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Nothing is asked for, and nothing is held.
    Idle,
    /// A request is on its way, or its grant was not taken up: keys may be held.
    Asking,
    /// It was refused, and may stand in the store's queue.
    Queued,
    /// A lease runs.
    Held,
    /// It is held no longer.
    Over(EndedBy, Return),
}

/// How it came to be held no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    GivenBack,
    Lost(LossCause),
}

listed! {
    /// How far giving back the keys has come.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum Return {
        /// Nobody has asked the store to take them.
        NotYet,
        /// Another caller of this process goes on with them, or is being offered them; or another process is to.
        HandedOn,
        /// They were handed on, and not taken: whoever was to have them gives them back.
        Unclaimed,
        /// The store is being asked.
        Asked,
        /// It could not be asked, and that was told.
        Failed,
        /// The same, and it may have been done.
        InDoubt,
        Done,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Ask,
    Refuse { queued: bool },
    Grant,
    GiveBack,
    Lose(LossCause),
    HandOn,
    NotHandedOn,
    NotTaken,
    Release,
    Answer,
    Fail { in_doubt: bool },
}

impl State {
    /// The state after an event; `None` where it has no arrow from here.
    fn after(self, event: Event) -> Option<Self> {
        use Return::{Asked, Done, Failed, HandedOn, InDoubt, NotYet, Unclaimed};
        Some(match (self, event) {
            (Self::Idle | Self::Asking | Self::Queued, Event::Ask) => Self::Asking,
            (Self::Asking, Event::Refuse { queued: true }) => Self::Queued,
            (Self::Asking, Event::Refuse { queued: false }) => Self::Idle,
            (Self::Idle | Self::Asking | Self::Queued, Event::Grant) => Self::Held,
            (Self::Asking | Self::Queued | Self::Held, Event::GiveBack) => {
                Self::Over(EndedBy::GivenBack, NotYet)
            }
            (Self::Held, Event::Lose(cause)) => Self::Over(EndedBy::Lost(cause), NotYet),
            (Self::Over(EndedBy::GivenBack, NotYet), Event::HandOn) => {
                Self::Over(EndedBy::GivenBack, HandedOn)
            }
            (Self::Over(ending, HandedOn), Event::NotHandedOn) => Self::Over(ending, NotYet),
            (Self::Over(ending, HandedOn), Event::NotTaken) => Self::Over(ending, Unclaimed),
            (Self::Over(ending, NotYet | Asked | Failed | InDoubt), Event::Release) => {
                Self::Over(ending, Asked)
            }
            (Self::Over(ending, Asked | Unclaimed), Event::Answer) => Self::Over(ending, Done),
            (Self::Over(ending, Asked), Event::Fail { in_doubt }) => {
                Self::Over(ending, if in_doubt { InDoubt } else { Failed })
            }
            _ => return None,
        })
    }

    fn code(self) -> u8 {
        match self {
            Self::Idle => 0,
            Self::Asking => 1,
            Self::Queued => 2,
            Self::Held => 3,
            Self::Over(ending, returned) => OVER + ending.code() * RETURNS + returned as u8,
        }
    }

    fn of(code: u8) -> Self {
        match code {
            0 => Self::Idle,
            1 => Self::Asking,
            2 => Self::Queued,
            3 => Self::Held,
            code => {
                let (ending, returned) = ((code - OVER) / RETURNS, (code - OVER) % RETURNS);
                Self::Over(EndedBy::of(ending), Return::ALL[usize::from(returned)])
            }
        }
    }
}

/// The code of the first state that is over.
const OVER: u8 = 4;

#[expect(clippy::cast_possible_truncation, reason = "checked below")]
const RETURNS: u8 = Return::ALL.len() as u8;

const _: () = assert!(
    OVER as usize + (1 + LossCause::ALL.len()) * Return::ALL.len() <= u8::MAX as usize,
    "every state has a code of a byte"
);

impl EndedBy {
    fn code(self) -> u8 {
        match self {
            Self::GivenBack => 0,
            Self::Lost(cause) => 1 + cause as u8,
        }
    }

    fn of(code: u8) -> Self {
        match code.checked_sub(1) {
            None => Self::GivenBack,
            Some(cause) => Self::Lost(LossCause::ALL[usize::from(cause)]),
        }
    }
}

/// A state that several threads change.
#[derive(Debug)]
pub(crate) struct SharedState(AtomicU8);

impl SharedState {
    pub(crate) fn new(state: State) -> Self {
        Self(AtomicU8::new(state.code()))
    }

    pub(crate) fn get(&self) -> State {
        State::of(self.0.load(Ordering::Acquire))
    }

    /// Makes an event happen. The answer is the state before, where it changes anything, and the
    /// present one where it does not.
    #[inline]
    pub(crate) fn happens(&self, event: Event) -> Result<State, State> {
        let mut code = self.0.load(Ordering::Acquire);
        loop {
            let before = State::of(code);
            let Some(after) = before.after(event) else {
                return Err(before);
            };
            match self.0.compare_exchange_weak(
                code,
                after.code(),
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return Ok(before),
                Err(now) => code = now,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::iter;

    use super::*;

    const TAKEN: EndedBy = EndedBy::Lost(LossCause::Taken);

    fn endings() -> impl Iterator<Item = EndedBy> {
        let lost = LossCause::ALL.iter().copied().map(EndedBy::Lost);
        iter::once(EndedBy::GivenBack).chain(lost)
    }

    fn all() -> Vec<State> {
        let before_the_end = [State::Idle, State::Asking, State::Queued, State::Held];
        let over = endings().flat_map(|ending| {
            let returns = Return::ALL.iter().copied();
            returns.map(move |returned| State::Over(ending, returned))
        });
        before_the_end.into_iter().chain(over).collect()
    }

    const EVENTS: [Event; 13] = [
        Event::Ask,
        Event::Refuse { queued: true },
        Event::Refuse { queued: false },
        Event::Grant,
        Event::GiveBack,
        Event::Lose(LossCause::Taken),
        Event::HandOn,
        Event::NotHandedOn,
        Event::NotTaken,
        Event::Release,
        Event::Answer,
        Event::Fail { in_doubt: true },
        Event::Fail { in_doubt: false },
    ];

    #[test]
    fn every_state_has_a_code_of_its_own() {
        for (code, state) in (0..).zip(all()) {
            assert_eq!((state.code(), State::of(code)), (code, state));
        }
    }

    /// The drawing, arrow by arrow; from every state, every other event changes nothing.
    #[test]
    fn there_are_these_arrows_and_no_others() {
        use Return::{Asked, Done, Failed, HandedOn, InDoubt, NotYet, Unclaimed};
        let over = |returned| State::Over(EndedBy::GivenBack, returned);
        let (queued, free) = (
            Event::Refuse { queued: true },
            Event::Refuse { queued: false },
        );
        let (failed, in_doubt) = (
            Event::Fail { in_doubt: false },
            Event::Fail { in_doubt: true },
        );
        let mut arrows = vec![
            (State::Idle, Event::Ask, State::Asking),
            (State::Asking, Event::Ask, State::Asking),
            (State::Queued, Event::Ask, State::Asking),
            (State::Asking, queued, State::Queued),
            (State::Asking, free, State::Idle),
            (State::Idle, Event::Grant, State::Held),
            (State::Asking, Event::Grant, State::Held),
            (State::Queued, Event::Grant, State::Held),
            (State::Asking, Event::GiveBack, over(NotYet)),
            (State::Queued, Event::GiveBack, over(NotYet)),
            (State::Held, Event::GiveBack, over(NotYet)),
            (
                State::Held,
                Event::Lose(LossCause::Taken),
                State::Over(TAKEN, NotYet),
            ),
            (over(NotYet), Event::HandOn, over(HandedOn)),
        ];
        for ending in endings() {
            let over = |returned| State::Over(ending, returned);
            arrows.push((over(HandedOn), Event::NotHandedOn, over(NotYet)));
            arrows.push((over(HandedOn), Event::NotTaken, over(Unclaimed)));
            for from in [NotYet, Asked, Failed, InDoubt] {
                arrows.push((over(from), Event::Release, over(Asked)));
            }
            for from in [Asked, Unclaimed] {
                arrows.push((over(from), Event::Answer, over(Done)));
            }
            arrows.push((over(Asked), failed, over(Failed)));
            arrows.push((over(Asked), in_doubt, over(InDoubt)));
        }
        for state in all() {
            for event in EVENTS {
                let arrow = arrows
                    .iter()
                    .find(|(from, on, _)| (*from, *on) == (state, event));
                let expected = arrow.map(|(.., to)| *to);
                assert_eq!(state.after(event), expected, "{state:?} on {event:?}");
                let shared = SharedState::new(state);
                let happened = shared.happens(event);
                assert_eq!(happened.is_ok(), expected.is_some());
                assert_eq!(shared.get(), expected.unwrap_or(state));
            }
        }
    }
}
