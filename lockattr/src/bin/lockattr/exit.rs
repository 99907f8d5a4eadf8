//! The exit codes: one table, which the help shows, `docs/command.md` explains and tests pin.

use std::fmt::Write;
use std::io;
use std::process::ExitCode;

use lockattr::Error;
use serde_json::{Map, Value, json};

use crate::words;

/// What the process ends with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Exit(pub(crate) u8);

impl Exit {
    pub(crate) const OK: Self = Self(0);
    pub(crate) const NOTHING: Self = Self(1);
    pub(crate) const FAULT: Self = Self(2);
    pub(crate) const INCOMPLETE: Self = Self(3);
    pub(crate) const USAGE: Self = Self(64);
    pub(crate) const DATA: Self = Self(65);
    pub(crate) const UNAVAILABLE: Self = Self(69);
    pub(crate) const INTERNAL: Self = Self(70);
    pub(crate) const BUSY: Self = Self(75);
    pub(crate) const LOST: Self = Self(79);
    pub(crate) const WAITED: Self = Self(124);
    /// What shells make of Ctrl-C.
    pub(crate) const INTERRUPTED: Self = Self(130);
    pub(crate) const NOT_EXECUTABLE: Self = Self(126);
    pub(crate) const NOT_FOUND: Self = Self(127);

    /// What shells make of a process that died of a signal.
    #[cfg(unix)]
    pub(crate) fn of_signal(signal: i32) -> Self {
        Self(u8::try_from(128 + signal).unwrap_or(u8::MAX))
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.0.into()
    }
}

/// A code, the name of it in JSON, and what the help says.
const MEANINGS: &[(Exit, &str, &str)] = &[
    (Exit::OK, "ok", "done"),
    (
        Exit::NOTHING,
        "nothing",
        "nothing was found, or something else than what was asked for",
    ),
    (Exit::FAULT, "fault", "locks do not work there"),
    (
        Exit::INCOMPLETE,
        "incomplete",
        "a part of the store did not answer: what it has is missing",
    ),
    (
        Exit::USAGE,
        "usage",
        "an option, an argument or the URL cannot be used",
    ),
    (
        Exit::DATA,
        "data",
        "the key cannot be a key, or what is stored there is no lock",
    ),
    (
        Exit::UNAVAILABLE,
        "unavailable",
        "the store could not be asked",
    ),
    (Exit::INTERNAL, "internal", "the system refused something"),
    (
        Exit::BUSY,
        "busy",
        "somebody else holds the key, or its work is done already",
    ),
    (
        Exit::LOST,
        "lost",
        "the lease was lost, or its time was over, under the command",
    ),
    (
        Exit::WAITED,
        "waited",
        "the key was still busy when the wait was over",
    ),
    (
        Exit::NOT_EXECUTABLE,
        "not-executable",
        "the command cannot be executed",
    ),
    (Exit::NOT_FOUND, "not-found", "the command was not found"),
];

/// The part of a subcommand's help that lists its codes, with those that are `own` to it behind.
pub(crate) fn listed(codes: &[Exit], own: &[(&str, &str)]) -> String {
    let mut text = "Exit codes:".to_owned();
    for (exit, _, meaning) in MEANINGS.iter().filter(|(exit, ..)| codes.contains(exit)) {
        let _ = write!(text, "\n  {:<7} {meaning}", exit.0);
    }
    for (code, meaning) in own {
        let _ = write!(text, "\n  {code:<7} {meaning}");
    }
    text
}

/// What a subcommand ends with.
pub(crate) type Answer = Result<Exit, Failure>;

/// Why a subcommand did not do what it was asked for: one line, and the same for programs.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// Nothing where there is nothing to tell, or nobody left to read it.
    pub(crate) message: Option<String>,
    details: Map<String, Value>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self {
            exit,
            message: Some(message.into()),
            details: Map::new(),
        }
    }

    #[cfg(unix)]
    pub(crate) fn with_exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        if exit == Exit::WAITED {
            self.details.insert("error".to_owned(), json!("waited"));
        }
        self
    }

    #[cfg(unix)]
    pub(crate) fn silent(mut self) -> Self {
        self.message = None;
        self
    }

    /// As `docs/schema/error.json` has it.
    pub(crate) fn json(&self) -> Value {
        let mut object = self.details.clone();
        // An exit code that the user has chosen keeps the name that its cause has.
        let named = MEANINGS.iter().find(|(exit, ..)| *exit == self.exit);
        let name = named.map_or("internal", |(_, name, _)| name);
        object.entry("error").or_insert_with(|| json!(name));
        object.insert("exit".to_owned(), json!(self.exit.0));
        object.insert("message".to_owned(), json!(self.message));
        object.into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (exit, details) = match &error {
            Error::Busy {
                key,
                holder,
                remaining,
                since,
            } => (
                Exit::BUSY,
                json!({
                    "error": "busy",
                    "key": key,
                    "holder": holder,
                    "since_ms": since.map(words::since_ms),
                    "remaining_ms": words::millis(*remaining),
                }),
            ),
            Error::Done { key, since, .. } => (
                Exit::BUSY,
                json!({ "error": "done", "key": key, "since_ms": words::since_ms(*since) }),
            ),
            Error::Unavailable { key, .. } => (Exit::UNAVAILABLE, json!({ "key": key })),
            Error::Lost { key, .. } => (Exit::LOST, json!({ "key": key })),
            Error::Foreign { key, .. } => (Exit::DATA, json!({ "key": key })),
            Error::Key(_) => (Exit::DATA, json!({})),
            Error::Invalid { key, .. } => (Exit::USAGE, json!({ "key": key })),
            Error::Config(_) => (Exit::USAGE, json!({})),
            _ => (Exit::INTERNAL, json!({})),
        };
        let Value::Object(details) = details else {
            unreachable!("written as objects above")
        };
        Self {
            exit,
            message: Some(error.to_string()),
            details,
        }
    }
}

impl From<io::Error> for Failure {
    /// Whoever reads no further, as `head` does, has what they wanted.
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self {
                exit: Exit::OK,
                message: None,
                details: Map::new(),
            };
        }
        Self::new(Exit::INTERNAL, error.to_string())
    }
}
