//! What can go wrong with a request, and what callers are told of it.

use super::jute::Malformed;
use super::protocol::Code;
use crate::error::StoreError;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The servers answered that they do not do that.
    Refused(Code, &'static str),
    /// It was not sent.
    Unreachable(String),
    /// It was sent, and not answered.
    InDoubt(String),
}

impl From<Malformed> for Failure {
    fn from(_: Malformed) -> Self {
        Self::InDoubt("it does not answer as a ZooKeeper server does".to_owned())
    }
}

impl From<Failure> for StoreError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Refused(code, what) => Self::refused(refusal(code, what)),
            Failure::Unreachable(why) => Self::unreachable(why),
            Failure::InDoubt(why) => Self::in_doubt(why),
        }
    }
}

impl Failure {
    /// What a step is told that has done something before this has failed: more may have been done than
    /// nothing.
    pub(super) fn after_something(self) -> StoreError {
        match self {
            Self::Refused(code, what) => StoreError::in_doubt(refusal(code, what)),
            Self::Unreachable(why) | Self::InDoubt(why) => StoreError::in_doubt(why),
        }
    }
}

fn refusal(code: Code, what: &str) -> String {
    match code {
        Code::NO_AUTH => format!(
            "the ZooKeeper user may not {what} below the node of the URL: give it the rights `cdrw` there, \
             or name another user in the URL"
        ),
        Code::UNIMPLEMENTED => {
            "the ZooKeeper servers know no containers: 3.5.3 or a later version is needed"
                .to_owned()
        }
        code => format!(
            "the ZooKeeper servers refuse to {what}: {} ({})",
            code.name(),
            code.0
        ),
    }
}
