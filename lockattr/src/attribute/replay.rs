//! `on_done = replay`: the reply of a success is kept beside the mark of `once`, and given back to later calls.

use super::answer::Judge;
use super::blocking::Body;
use super::ended::CallError;
use super::within::Ending;
use crate::error::Error;
use crate::reply::ReplyError;

/// `on_done = replay`.
#[cfg_attr(
    feature = "serde",
    diagnostic::on_unimplemented(
        message = "`on_done = replay` cannot keep a `{Self}` for later calls",
        label = "`{Self}` cannot be kept, or cannot carry a `lockattr::Error`",
        note = "return `()`, an `Option<T>`, or a `Result<T, E>` where `E: From<lockattr::Error>`, with a `T` that is \
                `Serialize` and `DeserializeOwned`",
        note = "or implement `lockattr::Replay` and `lockattr::Fail` for a type of your own"
    )
)]
#[cfg_attr(
    not(feature = "serde"),
    diagnostic::on_unimplemented(
        message = "`on_done = replay` needs the feature `serde` of `lockattr`",
        label = "nothing is kept without it",
        note = "switch it on: `cargo add lockattr --features serde`"
    )
)]
pub trait OnDoneReplay: Sized {
    /// What says which end a value is, and keeps it.
    const JUDGE: Judge<Self>;

    /// The answer of a later call.
    fn answer(ended: CallError) -> Self;
}

/// `on_done = replay(errors)`.
#[cfg_attr(
    feature = "serde",
    diagnostic::on_unimplemented(
        message = "`on_done = replay(errors)` cannot keep a `{Self}` for later calls",
        label = "`{Self}` has no errors that can be kept",
        note = "return a `Result<T, E>` where `E: From<lockattr::Error>`, and both `T` and `E` are `Serialize` and \
                `DeserializeOwned`",
        note = "or write `on_done = replay`, which keeps successes alone"
    )
)]
#[cfg_attr(
    not(feature = "serde"),
    diagnostic::on_unimplemented(
        message = "`on_done = replay(errors)` needs the feature `serde` of `lockattr`",
        label = "nothing is kept without it",
        note = "switch it on: `cargo add lockattr --features serde`"
    )
)]
pub trait OnDoneReplayErrors: Sized {
    /// What says which end a value is, and keeps it.
    const JUDGE: Judge<Self>;

    /// The answer of a later call.
    fn answer(ended: CallError) -> Self;
}

/// A body that has not ended.
pub trait ToEnd {
    /// What it comes to.
    type Value;
}

impl<T> ToEnd for Ending<T> {
    type Value = T;
}

impl<T, F: FnOnce() -> T> ToEnd for Body<F> {
    type Value = T;
}

/// What judges the value of a body: `on_done = replay`.
#[must_use]
pub fn keep_replay<B: ToEnd<Value: OnDoneReplay>>(_: &B) -> Judge<B::Value> {
    B::Value::JUDGE
}

/// The same for `on_done = replay(errors)`.
#[must_use]
pub fn keep_replay_errors<B: ToEnd<Value: OnDoneReplayErrors>>(_: &B) -> Judge<B::Value> {
    B::Value::JUDGE
}

/// What a later call answers: `on_done = replay`.
#[must_use]
pub fn done_replay<R: OnDoneReplay>(ended: CallError) -> R {
    R::answer(ended)
}

/// The same for `on_done = replay(errors)`.
#[must_use]
pub fn done_replay_errors<R: OnDoneReplayErrors>(ended: CallError) -> R {
    R::answer(ended)
}

/// A reply that was read, or the error in its place, which is told to the log.
#[cfg_attr(not(feature = "serde"), expect(dead_code, reason = "nothing is kept"))]
fn read<T>(
    ended: CallError,
    caller_is_told: bool,
    read: fn(&crate::KeptReply) -> Result<T, ReplyError>,
) -> Result<T, Error> {
    let Error::Done { reply, .. } = &ended.error else {
        return Err(ended.error);
    };
    let cause = match reply.as_ref().map(read) {
        Some(Ok(value)) => {
            ended.tell_done();
            return Ok(value);
        }
        Some(Err(cause)) => cause,
        None => ReplyError::NotKept,
    };
    let ended = ended.without_reply(cause);
    ended.tell_no_reply(caller_is_told);
    Err(ended.error)
}

#[cfg(feature = "serde")]
mod kept {
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::super::answer::{End, Judge};
    use super::super::ended::CallError;
    use super::super::guarded::Guarded;
    use super::super::policy::{Fail, Replay};
    use super::{OnDoneReplay, OnDoneReplayErrors, read};
    use crate::error::Error;
    use crate::reply::{KeptReply, ReplyError};

    impl Replay for () {
        type Kept = ();

        fn kept(&self) -> Option<&()> {
            Some(self)
        }

        fn replayed((): ()) -> Self {}
    }

    impl<T: Serialize + DeserializeOwned> Replay for Option<T> {
        type Kept = T;

        fn kept(&self) -> Option<&T> {
            self.as_ref()
        }

        fn replayed(kept: T) -> Self {
            Some(kept)
        }
    }

    impl<T: Serialize + DeserializeOwned, E> Replay for Result<T, E> {
        type Kept = T;

        fn kept(&self) -> Option<&T> {
            self.as_ref().ok()
        }

        fn replayed(kept: T) -> Self {
            Ok(kept)
        }
    }

    /// Keeps what there is to be kept of a value; one of which there is nothing leaves no mark.
    fn judged<R: Replay>(value: &R, lease: &Guarded, otherwise: End) -> End {
        match value.kept() {
            Some(kept) => {
                // Told to the log, and to later calls; this one has its value.
                let _ = lease.keep(KeptReply::of(kept));
                End::Success
            }
            None => otherwise,
        }
    }

    fn replayed<R: Replay>(reply: &KeptReply) -> Result<R, ReplyError> {
        reply.read().map(R::replayed)
    }

    #[diagnostic::do_not_recommend]
    impl<R: Replay + Fail> OnDoneReplay for R {
        const JUDGE: Judge<Self> = |value, lease| judged(value, lease, End::Failure);

        fn answer(ended: CallError) -> Self {
            read(ended, true, replayed).unwrap_or_else(R::fail)
        }
    }

    #[diagnostic::do_not_recommend]
    impl OnDoneReplay for () {
        const JUDGE: Judge<Self> = |value, lease| judged(value, lease, End::Nothing);

        fn answer(ended: CallError) -> Self {
            // The log is told, and there is nothing else to say.
            let _: Result<(), Error> = read(ended, false, replayed);
        }
    }

    #[diagnostic::do_not_recommend]
    impl<T: Serialize + DeserializeOwned> OnDoneReplay for Option<T> {
        const JUDGE: Judge<Self> = |value, lease| judged(value, lease, End::Nothing);

        fn answer(ended: CallError) -> Self {
            read(ended, false, replayed).unwrap_or_default()
        }
    }

    #[diagnostic::do_not_recommend]
    impl<T, E> OnDoneReplayErrors for Result<T, E>
    where
        T: Serialize + DeserializeOwned,
        E: Serialize + DeserializeOwned + From<Error>,
    {
        const JUDGE: Judge<Self> = |value, lease| match value {
            Ok(kept) => {
                let _ = lease.keep(KeptReply::of(kept));
                End::Success
            }
            // It leaves its mark, and stands where the lease has ended before.
            Err(error) => {
                let _ = lease.keep(KeptReply::of_error(error));
                End::Failure
            }
        };

        fn answer(ended: CallError) -> Self {
            match read(ended, true, KeptReply::read_either) {
                Ok(reply) => reply,
                Err(error) => Err(E::from(error)),
            }
        }
    }
}
