//! What is written for whoever called: answers on stdout, and one line for what went wrong on stderr.

use std::borrow::Cow;
use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal, Write};

use anstream::adapter::strip_str;
use clap::ValueEnum;
use serde_json::Value;

use crate::cli::{Color, Global};
use crate::exit::Failure;
use crate::words;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    pub(crate) json: bool,
    pub(crate) color: Color,
}

impl Output {
    pub(crate) fn new(global: &Global) -> Self {
        Self {
            json: global.json,
            color: global.color,
        }
    }

    /// The same before all arguments are understood, for what is told of those that are not.
    pub(crate) fn asked_for(args: impl Iterator<Item = OsString>) -> Self {
        let mut asked = Self {
            json: false,
            color: Color::Auto,
        };
        let mut args = args.take_while(|arg| arg != "--");
        while let Some(arg) = args.next() {
            let color = match arg.to_str() {
                Some("--json") => {
                    asked.json = true;
                    None
                }
                Some("--color") => args.next(),
                Some(arg) => arg.strip_prefix("--color=").map(OsString::from),
                None => None,
            };
            if let Some(Ok(color)) =
                color.map(|color| Color::from_str(&color.to_string_lossy(), false))
            {
                asked.color = color;
            }
        }
        asked
    }

    /// One line on stderr that is no failure; programs have it on stdout.
    pub(crate) fn note(self, text: &str) {
        if !self.json {
            let _ = writeln!(io::stderr(), "lockattr: {}", words::one_line(text));
        }
    }

    /// One line on stderr. That nobody can read it is no reason to fail.
    pub(crate) fn tell(self, failure: &Failure) {
        let Some(message) = &failure.message else {
            return;
        };
        let mut stderr = io::stderr().lock();
        let _ = if self.json {
            writeln!(stderr, "{}", failure.json())
        } else if self.has_colors(&stderr) {
            writeln!(stderr, "\x1b[1;31mlockattr:\x1b[0m {message}")
        } else {
            writeln!(stderr, "lockattr: {message}")
        };
    }

    /// A text on stdout, whole or with an error.
    pub(crate) fn text(text: &[u8]) -> io::Result<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(text)?;
        stdout.flush()
    }

    /// A text on stdout whose colours are left out where there are to be none.
    pub(crate) fn styled(self, text: &str) -> io::Result<()> {
        Self::text(self.painted(text).as_bytes())
    }

    /// A text for stdout, with its colours where they are wanted.
    pub(crate) fn painted(self, text: &str) -> Cow<'_, str> {
        if self.has_colors(&io::stdout()) {
            text.into()
        } else {
            strip_str(text).to_string().into()
        }
    }

    /// An object on stdout, in one line.
    pub(crate) fn object(object: &Value) -> io::Result<()> {
        Self::text(format!("{object}\n").as_bytes())
    }

    /// Whether what goes to this stream is to be coloured.
    fn has_colors(self, stream: &impl IsTerminal) -> bool {
        let is_set = |name| env::var_os(name).is_some_and(|value| !value.is_empty());
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => {
                let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
                stream.is_terminal() && !is_set("NO_COLOR") && !is_dumb
            }
        }
    }
}
