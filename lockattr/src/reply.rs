//! Replies that are kept beside a mark of `once`, for later calls: the text that a store keeps, and what may be
//! wrong with it. The first word says in which form the rest is, so that a later form has another word.
//!
//! | text | says |
//! |---|---|
//! | `json {text}` | the reply, as JSON |
//! | `error {text}` | the reply was this error, as JSON |
//! | `too-large {bytes}` | no reply: its JSON had so many bytes |
//! | `unwritten` | no reply: no JSON could be made of it |

use std::fmt;
use std::sync::Arc;

const JSON: &str = "json";
const ERROR: &str = "error";
#[cfg(any(feature = "serde", feature = "zookeeper"))]
const TOO_LARGE: &str = "too-large";
#[cfg(feature = "serde")]
const UNWRITTEN: &str = "unwritten";

/// What is kept beside the mark of work that is done: its reply, or why there is none. Cheap to clone.
///
/// Nothing shows it: `Debug` tells how long it is.
#[derive(Clone, PartialEq, Eq)]
pub struct KeptReply {
    text: Arc<str>,
    /// Whether nothing of it may be told, since its key is not.
    redacted: bool,
}

impl KeptReply {
    /// What a store has kept, as it was given to it.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self {
            text: text.into(),
            redacted: false,
        }
    }

    /// What a store is to keep, byte by byte: one line, at most 1 MiB and 32 bytes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// How many bytes the reply has, as JSON; `None` where the mark says why there is none.
    #[must_use]
    pub fn bytes(&self) -> Option<usize> {
        let (form, text) = self.parts();
        [JSON, ERROR].contains(&form).then_some(text.len())
    }

    /// What is kept in its place where a store has no room for it.
    #[cfg(feature = "zookeeper")]
    pub(crate) fn left_out(&self) -> Self {
        match self.bytes() {
            Some(bytes) => Self::new(format!("{TOO_LARGE} {bytes}")),
            None => self.clone(),
        }
    }

    /// The same of the call of a key that may not be shown.
    pub(crate) fn redacted(mut self, redacted: bool) -> Self {
        self.redacted = redacted;
        self
    }

    fn parts(&self) -> (&str, &str) {
        self.text.split_once(' ').unwrap_or((&self.text, ""))
    }
}

impl fmt::Debug for KeptReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KeptReply({} bytes)", self.text.len())
    }
}

/// Why work that is done has no reply to give back.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplyError {
    /// The mark bears none: what has left it keeps no replies.
    NotKept,
    /// It was larger than what the client keeps that has done the work; see
    /// [`ClientBuilder::reply_limit`](crate::ClientBuilder::reply_limit).
    TooLarge {
        /// How many bytes it has as JSON.
        bytes: usize,
    },
    /// No JSON could be made of it: a map whose keys are no strings, for example.
    NotWritten,
    /// It is an error, which `on_done = replay(errors)` keeps and reads, and `on_done = replay` does not.
    IsError,
    /// It is of another type than what is read: by another function, or by a release in which the type was
    /// another.
    DoesNotFit {
        /// What serde says; where the key is redacted, the place alone.
        reason: String,
    },
    /// It is in a form that this release does not read: a later one has written it.
    OtherForm,
}

impl fmt::Display for ReplyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotKept => f.write_str(
                "none was kept: the mark was left by a function that keeps none; one that writes \
                 `on_done = replay` needs a key of its own",
            ),
            Self::TooLarge { bytes } => write!(
                f,
                "it was not kept: it has {bytes} bytes, which is more than the client or its store keeps \
                 (`ClientBuilder::reply_limit`)"
            ),
            Self::NotWritten => f.write_str("it was not kept: no JSON could be made of it"),
            Self::IsError => f.write_str(
                "it is an error, which `on_done = replay` does not give back: write `replay(errors)`",
            ),
            Self::DoesNotFit { reason } => {
                write!(f, "what was kept does not fit the type that is read: {reason}")
            }
            Self::OtherForm => f.write_str("it was kept in a form that this release does not read"),
        }
    }
}

impl std::error::Error for ReplyError {}

#[cfg(feature = "serde")]
mod json {
    use serde::Serialize;
    use serde::de::DeserializeOwned;

    use super::{ERROR, JSON, KeptReply, ReplyError, TOO_LARGE, UNWRITTEN};

    #[cfg_attr(docsrs, doc(cfg(feature = "serde")))]
    impl KeptReply {
        /// The reply, as a value of its type.
        ///
        /// # Errors
        /// Why there is none.
        pub fn read<T: DeserializeOwned>(&self) -> Result<T, ReplyError> {
            match self.read_either::<T, serde::de::IgnoredAny>()? {
                Ok(value) => Ok(value),
                Err(_) => Err(ReplyError::IsError),
            }
        }

        /// The same where an error may have been kept.
        pub(crate) fn read_either<T: DeserializeOwned, E: DeserializeOwned>(
            &self,
        ) -> Result<Result<T, E>, ReplyError> {
            let (form, text) = self.parts();
            match form {
                JSON => self.parsed(text).map(Ok),
                ERROR => self.parsed(text).map(Err),
                TOO_LARGE => Err(match text.parse() {
                    Ok(bytes) => ReplyError::TooLarge { bytes },
                    Err(_) => ReplyError::OtherForm,
                }),
                UNWRITTEN => Err(ReplyError::NotWritten),
                _ => Err(ReplyError::OtherForm),
            }
        }

        fn parsed<T: DeserializeOwned>(&self, text: &str) -> Result<T, ReplyError> {
            serde_json::from_str(text).map_err(|error| ReplyError::DoesNotFit {
                // What serde says may quote what it has read.
                reason: if self.redacted {
                    format!("line {} column {}", error.line(), error.column())
                } else {
                    error.to_string()
                },
            })
        }

        /// A reply as it is kept.
        pub(crate) fn of(value: &(impl Serialize + ?Sized)) -> Result<Self, ReplyError> {
            written(JSON, value)
        }

        /// An error as it is kept.
        pub(crate) fn of_error(error: &impl Serialize) -> Result<Self, ReplyError> {
            written(ERROR, error)
        }

        /// The same if it is not too large.
        pub(crate) fn within(self, limit: usize) -> Result<Self, ReplyError> {
            match self.bytes() {
                Some(bytes) if bytes > limit => Err(ReplyError::TooLarge { bytes }),
                _ => Ok(self),
            }
        }

        /// What is kept in the place of a reply that is not.
        pub(crate) fn missing(why: &ReplyError) -> Self {
            match why {
                ReplyError::TooLarge { bytes } => Self::new(format!("{TOO_LARGE} {bytes}")),
                _ => Self::new(UNWRITTEN),
            }
        }
    }

    fn written(form: &str, value: &(impl Serialize + ?Sized)) -> Result<KeptReply, ReplyError> {
        let text = serde_json::to_string(value).map_err(|_| ReplyError::NotWritten)?;
        Ok(KeptReply::new(format!("{form} {text}")))
    }

    #[cfg(test)]
    mod tests {
        use std::collections::BTreeMap;

        use super::*;

        #[test]
        fn what_is_kept_is_read() {
            let kept = KeptReply::of(&(7, "a b\n\"c\"")).expect("it is written");
            assert_eq!(kept.as_str(), r#"json [7,"a b\n\"c\""]"#);
            assert_eq!(kept.read(), Ok((7, "a b\n\"c\"".to_owned())));
            assert_eq!(kept.bytes(), Some(16));
            assert_eq!(KeptReply::new(kept.as_str()), kept);
            assert_eq!(KeptReply::of(&()).and_then(|kept| kept.read()), Ok(()));
            let error = KeptReply::of_error(&"declined").expect("it is written");
            assert_eq!(error.as_str(), r#"error "declined""#);
            let read: Result<Result<u8, String>, _> = error.read_either();
            assert_eq!(read, Ok(Err("declined".to_owned())));
            assert_eq!(error.read::<String>(), Err(ReplyError::IsError));
        }

        #[test]
        fn what_is_not_kept_says_why() {
            let kept = KeptReply::of("12345678").expect("it is written");
            assert_eq!(kept.clone().within(10), Ok(kept.clone()));
            let why = ReplyError::TooLarge { bytes: 10 };
            assert_eq!(kept.within(9), Err(why.clone()));
            let missing = KeptReply::missing(&why);
            assert_eq!(missing.as_str(), "too-large 10");
            assert_eq!(missing.bytes(), None);
            assert_eq!(missing.read::<String>(), Err(why));
            let why = KeptReply::of(&BTreeMap::from([((1, 2), 3)])).expect_err("no JSON");
            assert_eq!(why, ReplyError::NotWritten);
            let missing = KeptReply::missing(&why);
            assert_eq!(missing.read::<String>(), Err(why));
            for other in ["", "json2 7", "cbor", "too-large x"] {
                let read = KeptReply::new(other).read::<u8>();
                assert_eq!(read, Err(ReplyError::OtherForm), "{other}");
            }
        }

        #[test]
        fn what_does_not_fit_is_told_without_what_may_not_be_shown() {
            let kept = KeptReply::of("4111 1111").expect("it is written");
            let told = |kept: &KeptReply| kept.read::<u32>().expect_err("no number").to_string();
            assert!(told(&kept).contains("expected u32"), "{}", told(&kept));
            let hidden = told(&kept.clone().redacted(true));
            assert!(hidden.ends_with("line 1 column 11"), "{hidden}");
            assert_eq!(format!("{kept:?}"), "KeptReply(16 bytes)");
        }
    }
}
