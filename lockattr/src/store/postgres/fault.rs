//! What an error of the server or of a connection means for a step.

use std::error::Error as _;

use tokio_postgres::Error;
use tokio_postgres::error::{DbError, SqlState};

use crate::error::StoreError;

/// Why a step has no answer.
#[derive(Clone, Debug)]
pub(super) enum Fault {
    /// It was not sent: the connection had ended before.
    NotSent(String),
    /// It was sent, and may have been done.
    Lost(String),
    /// The server has rolled it back for others' sake, and it may be asked again.
    Transient(String),
    /// The server takes no changes: it is a standby by now.
    Standby(String),
    /// It was not done.
    Final(StoreError),
}

impl Fault {
    /// Of a request that was sent, or of one that could not be.
    pub(super) fn of_request(error: &Error, was_sent: bool) -> Self {
        let message = message(error);
        let Some(state) = error.code() else {
            return if was_sent {
                Self::Lost(message)
            } else {
                Self::NotSent(message)
            };
        };
        if [
            SqlState::T_R_SERIALIZATION_FAILURE,
            SqlState::T_R_DEADLOCK_DETECTED,
            SqlState::LOCK_NOT_AVAILABLE,
            SqlState::QUERY_CANCELED,
        ]
        .contains(state)
        {
            Self::Transient(message)
        } else if *state == SqlState::READ_ONLY_SQL_TRANSACTION || is_made_read_write(error) {
            Self::Standby(message)
        } else if ends_connection(error, state) {
            Self::Lost(message)
        } else {
            Self::Final(StoreError::refused(format!("{message}{}", advice(state))))
        }
    }

    /// What the caller is told where nothing more is tried.
    pub(super) fn told(self) -> StoreError {
        match self {
            Self::NotSent(message) => StoreError::unreachable(message),
            Self::Lost(message) => StoreError::in_doubt(message),
            Self::Transient(message) => StoreError::refused(format!(
                "{message}: it was tried again until it had taken as long as an answer may"
            )),
            Self::Standby(message) => StoreError::refused(format!(
                "{message}: the server is a standby, and none of the others is a primary"
            )),
            Self::Final(error) => error,
        }
    }
}

/// Of a connection that could not be made.
pub(super) fn of_connect(error: &Error) -> StoreError {
    let message = message(error);
    match error.code() {
        Some(state) if is_absence(state) => StoreError::unreachable(message),
        Some(state) => StoreError::refused(format!("{message}{}", advice(state))),
        None if is_login(error) => StoreError::refused(message),
        None => StoreError::unreachable(message),
    }
}

/// The server, or a pooler before it, is there for nobody for a while.
fn is_absence(state: &SqlState) -> bool {
    let absences = [
        SqlState::CANNOT_CONNECT_NOW,
        SqlState::ADMIN_SHUTDOWN,
        SqlState::CRASH_SHUTDOWN,
        SqlState::TOO_MANY_CONNECTIONS,
    ];
    absences.contains(state) || state.code().starts_with("08")
}

/// The server ends the session with this error: an answer that was on its way is lost.
fn ends_connection(error: &Error, state: &SqlState) -> bool {
    let is_fatal = error
        .as_db_error()
        .is_some_and(|error| matches!(error.severity(), "FATAL" | "PANIC"));
    is_fatal || state.code().starts_with("08") || state.code().starts_with("57P")
}

/// Whether a transaction of a standby was to be made one that writes. Among all that is not supported, it is known by
/// the function of the server's that refuses a setting of this kind: no step has another one of it.
fn is_made_read_write(error: &Error) -> bool {
    let routine = error.as_db_error().and_then(DbError::routine);
    error.code() == Some(&SqlState::FEATURE_NOT_SUPPORTED)
        && routine == Some("call_bool_check_hook")
}

/// Whether the two sides do not agree on how to log in, which no error of the server says.
fn is_login(error: &Error) -> bool {
    let text = error.to_string();
    text.starts_with("authentication error") || text.starts_with("invalid configuration")
}

/// What to do about it.
fn advice(state: &SqlState) -> &'static str {
    if *state == SqlState::INSUFFICIENT_PRIVILEGE {
        "; have an administrator run the SQL of `lockattr::POSTGRES_SCHEMA`, and grant the role what its \
         first lines say"
    } else if *state == SqlState::INVALID_SCHEMA_NAME
        || *state == SqlState::UNDEFINED_TABLE
        || *state == SqlState::UNDEFINED_FUNCTION
        || *state == SqlState::UNDEFINED_COLUMN
    {
        "; the schema is not there, or not whole: run the SQL of `lockattr::POSTGRES_SCHEMA`"
    } else {
        ""
    }
}

/// One line: what the server says, or else the error with what is below it.
pub(super) fn message(error: &Error) -> String {
    if let Some(error) = error.as_db_error() {
        return format!(
            "the server says: {} ({})",
            error.message(),
            error.code().code()
        );
    }
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        let more = error.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        below = error.source();
    }
    text
}
