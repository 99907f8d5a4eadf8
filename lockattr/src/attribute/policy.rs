//! What a function answers when its body did not run, or did not run to its end under its lease.

use crate::error::Error;

/// Types that have an answer for "it is being done elsewhere": `()`, `Option` and `Result`s of
/// such a type. `on_busy = skip` and `on_unavailable = skip` ask for it.
///
/// ```
/// struct Report { rows: u64 }
/// impl lockattr::Skip for Report {
///     fn skip() -> Self {
///         Report { rows: 0 }
///     }
/// }
/// ```
pub trait Skip: Sized {
    /// The answer of a call that was skipped.
    fn skip() -> Self;
}

/// Types that carry an [`Error`] to the caller: `Result<T, E>` where `E: From<lockattr::Error>`.
/// Every policy called `error`, and `on_lost = cancel`, ask for it.
///
/// ```
/// enum Reply { Done, Locked(lockattr::Error) }
/// impl lockattr::Fail for Reply {
///     fn fail(error: lockattr::Error) -> Self {
///         Reply::Locked(error)
///     }
/// }
/// ```
pub trait Fail: Sized {
    /// The answer that carries `error`.
    fn fail(error: Error) -> Self;
}

#[diagnostic::do_not_recommend]
impl Skip for () {
    fn skip() -> Self {}
}

#[diagnostic::do_not_recommend]
impl<T> Skip for Option<T> {
    fn skip() -> Self {
        None
    }
}

#[diagnostic::do_not_recommend]
impl<T: Skip, E> Skip for Result<T, E> {
    fn skip() -> Self {
        Ok(T::skip())
    }
}

#[diagnostic::do_not_recommend]
impl<T, E: From<Error>> Fail for Result<T, E> {
    fn fail(error: Error) -> Self {
        Err(E::from(error))
    }
}

/// Types whose replies are kept for later calls: `on_done = replay` asks for it. `Result` keeps its `Ok`, `Option`
/// its `Some`, and `()` that the work is done.
///
/// A type of one's own, with [`Fail`]:
///
/// ```
/// enum Answer { Receipt(u64), Locked(lockattr::Error) }
///
/// impl lockattr::Fail for Answer {
///     fn fail(error: lockattr::Error) -> Self {
///         Answer::Locked(error)
///     }
/// }
///
/// impl lockattr::Replay for Answer {
///     type Kept = u64;
///
///     fn kept(&self) -> Option<&u64> {
///         match self {
///             Answer::Receipt(number) => Some(number),
///             Answer::Locked(_) => None,
///         }
///     }
///
///     fn replayed(kept: u64) -> Self {
///         Answer::Receipt(kept)
///     }
/// }
/// ```
#[cfg(feature = "serde")]
#[diagnostic::on_unimplemented(
    message = "`on_done = replay` cannot keep a `{Self}` for later calls",
    label = "`{Self}` is not kept",
    note = "return `()`, an `Option<T>` or a `Result<T, _>`, with a `T` that is `Serialize` and `DeserializeOwned`, \
            or implement `lockattr::Replay` for a type of your own"
)]
pub trait Replay: Sized {
    /// What is kept.
    type Kept: serde::Serialize + serde::de::DeserializeOwned;

    /// What is kept of a value; nothing where the work counts as not done.
    fn kept(&self) -> Option<&Self::Kept>;

    /// The answer of a later call.
    fn replayed(kept: Self::Kept) -> Self;
}

/// `on_busy = skip`.
#[diagnostic::on_unimplemented(
    message = "`on_busy = skip` has no value to return as `{Self}`",
    label = "`{Self}` has no skip value",
    note = "return `()`, an `Option<_>`, or a `Result<(), _>` or `Result<Option<_>, _>`",
    note = "or write `on_busy = return EXPR` with the value for a skipped call, \
            or implement `lockattr::Skip` for a type of your own"
)]
pub trait OnBusySkip {
    fn answer() -> Self;
}

impl<R: Skip> OnBusySkip for R {
    fn answer() -> Self {
        R::skip()
    }
}

/// `on_busy = rerun`.
#[diagnostic::on_unimplemented(
    message = "`on_busy = rerun` has no value to return as `{Self}` for a call that is skipped",
    label = "`{Self}` has no skip value",
    note = "of the calls that come while one runs, one waits and runs after it, and the others are skipped",
    note = "return `()`, an `Option<_>`, or a `Result<(), _>` or `Result<Option<_>, _>`, \
            or implement `lockattr::Skip` for a type of your own"
)]
pub trait OnBusyRerun {
    fn answer() -> Self;
}

impl<R: Skip> OnBusyRerun for R {
    fn answer() -> Self {
        R::skip()
    }
}

/// `on_unavailable = skip`.
#[diagnostic::on_unimplemented(
    message = "`on_unavailable = skip` has no value to return as `{Self}`",
    label = "`{Self}` has no skip value",
    note = "return `()`, an `Option<_>`, or a `Result<(), _>` or `Result<Option<_>, _>`",
    note = "or write `on_unavailable = return EXPR` with the value for a skipped call, \
            or implement `lockattr::Skip` for a type of your own"
)]
pub trait OnUnavailableSkip {
    fn answer() -> Self;
}

impl<R: Skip> OnUnavailableSkip for R {
    fn answer() -> Self {
        R::skip()
    }
}

/// `on_done = skip`, the default where there is a `once`.
#[diagnostic::on_unimplemented(
    message = "`on_done = skip` has no value to return as `{Self}`",
    label = "`{Self}` has no skip value",
    note = "`on_done = skip` is what `once` does unless told otherwise",
    note = "return `()`, an `Option<_>`, or a `Result<(), _>` or `Result<Option<_>, _>`",
    note = "or write `on_done = return EXPR` with the value for work that is done already, \
            or implement `lockattr::Skip` for a type of your own"
)]
pub trait OnDoneSkip {
    fn answer() -> Self;
}

impl<R: Skip> OnDoneSkip for R {
    fn answer() -> Self {
        R::skip()
    }
}

/// `on_done = error`.
#[diagnostic::on_unimplemented(
    message = "`on_done = error` cannot tell that the work is done through `{Self}`",
    label = "`{Self}` cannot carry a `lockattr::Error`",
    note = "a `Result<T, E>` can where `E: From<lockattr::Error>`",
    note = "or write `on_done = skip` to return quietly, or `on_done = return EXPR` with the value \
            for work that is done already"
)]
pub trait OnDoneError {
    fn answer(error: Error) -> Self;
}

impl<R: Fail> OnDoneError for R {
    fn answer(error: Error) -> Self {
        R::fail(error)
    }
}

/// `on_busy = error`.
#[diagnostic::on_unimplemented(
    message = "`on_busy = error` cannot tell a busy key through `{Self}`",
    label = "`{Self}` cannot carry a `lockattr::Error`",
    note = "a `Result<T, E>` can where `E: From<lockattr::Error>`",
    note = "or write `on_busy = skip` to return quietly, or `on_busy = return EXPR` with the value \
            for a busy key",
    note = "a type other than such a `Result`, `()` and `Option<_>` needs `on_unavailable = return \
            EXPR` and `on_lost = return EXPR` as well"
)]
pub trait OnBusyError {
    fn answer(error: Error) -> Self;
}

impl<R: Fail> OnBusyError for R {
    fn answer(error: Error) -> Self {
        R::fail(error)
    }
}

/// `on_unavailable = error`, the default.
#[diagnostic::on_unimplemented(
    message = "`on_unavailable = error` cannot tell an outage through `{Self}`",
    label = "`{Self}` cannot carry a `lockattr::Error`",
    note = "a `Result<T, E>` can where `E: From<lockattr::Error>`; for `()` and \
            `Option<_>` it is logged",
    note = "or write `on_unavailable = return EXPR` with the value for an outage, and `on_lost = \
            return EXPR` with that for a lost lease"
)]
pub trait OnUnavailableError: Sized {
    /// Whether the answer tells the caller; it is logged as an error where it does not.
    const CARRIES: bool;

    fn answer(error: Error) -> Self;
}

/// `on_lost = cancel`, the default.
#[diagnostic::on_unimplemented(
    message = "`on_lost = cancel` cannot tell a lost lease through `{Self}`",
    label = "`{Self}` cannot carry a `lockattr::Error`",
    note = "a `Result<T, E>` can where `E: From<lockattr::Error>`; for `()` and \
            `Option<_>` it is logged",
    note = "or write `on_lost = return EXPR` with the value for a lost lease"
)]
pub trait OnLostCancel: Sized {
    /// Whether the answer tells the caller; it is logged as an error where it does not.
    const CARRIES: bool;

    fn answer(error: Error) -> Self;
}

macro_rules! tell_or_log {
    ($policy:ident) => {
        impl<R: Fail> $policy for R {
            const CARRIES: bool = true;

            fn answer(error: Error) -> Self {
                R::fail(error)
            }
        }

        #[diagnostic::do_not_recommend]
        impl $policy for () {
            const CARRIES: bool = false;

            fn answer(_: Error) -> Self {}
        }

        #[diagnostic::do_not_recommend]
        impl<T> $policy for Option<T> {
            const CARRIES: bool = false;

            fn answer(_: Error) -> Self {
                None
            }
        }
    };
}

tell_or_log!(OnUnavailableError);
tell_or_log!(OnLostCancel);

/// `on_busy = error` of a stream.
#[diagnostic::on_unimplemented(
    message = "`on_busy = error` cannot tell a busy key through items of type `{Self}`",
    label = "items of type `{Self}` cannot carry a `lockattr::Error`",
    note = "a stream of `Result<T, E>` can where `E: From<lockattr::Error>`",
    note = "or write `on_busy = skip` for an empty stream, or `on_busy = return EXPR` with its only item"
)]
pub trait OnBusyErrorItem {
    fn item(error: Error) -> Self;
}

/// `on_done = error` of a stream.
#[diagnostic::on_unimplemented(
    message = "`on_done = error` cannot tell that the work is done through items of type `{Self}`",
    label = "items of type `{Self}` cannot carry a `lockattr::Error`",
    note = "a stream of `Result<T, E>` can where `E: From<lockattr::Error>`",
    note = "or write `on_done = skip` for an empty stream, or `on_done = return EXPR` with its only item"
)]
pub trait OnDoneErrorItem {
    fn item(error: Error) -> Self;
}

/// `on_unavailable = error` of a stream whose items are `Result`s.
#[diagnostic::on_unimplemented(
    message = "`on_unavailable = error` cannot tell an outage through items of type `{Self}`",
    label = "items of type `{Self}` cannot carry a `lockattr::Error`",
    note = "a `Result<T, E>` can where `E: From<lockattr::Error>`",
    note = "or write `on_unavailable = skip` for an empty stream, or `on_unavailable = return EXPR` with its \
            only item, and `on_lost = return EXPR` with the last one after a loss"
)]
pub trait OnUnavailableErrorItem {
    fn item(error: Error) -> Self;
}

/// `on_lost = cancel` of a stream whose items are `Result`s.
#[diagnostic::on_unimplemented(
    message = "`on_lost = cancel` cannot tell a lost lease through items of type `{Self}`",
    label = "items of type `{Self}` cannot carry a `lockattr::Error`",
    note = "a `Result<T, E>` can where `E: From<lockattr::Error>`",
    note = "or write `on_lost = return EXPR` with the last item after a loss"
)]
pub trait OnLostCancelItem {
    fn item(error: Error) -> Self;
}

macro_rules! carried_by_an_item {
    ($($policy:ident)*) => {$(
        impl<T: Fail> $policy for T {
            fn item(error: Error) -> Self {
                T::fail(error)
            }
        }
    )*};
}

carried_by_an_item!(OnBusyErrorItem OnDoneErrorItem OnUnavailableErrorItem OnLostCancelItem);
