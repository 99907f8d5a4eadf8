//! What the library tells, on stderr: a plain line an event, or an object.

use std::fmt;
use std::io;

use serde_json::json;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::cli::{Cli, Command, Global};
use crate::output::Output;

/// Warnings and errors, unless more or less is asked for.
pub(crate) fn install(cli: &Cli, output: Output) {
    let Global { verbose, .. } = cli.global;
    let is_quiet = matches!(&cli.command, Command::Run(args) if args.quiet);
    let level = match verbose {
        0 if is_quiet => Level::ERROR,
        0 => Level::WARN,
        1 => Level::DEBUG,
        _ => Level::TRACE,
    };
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_ansi(false)
        .with_writer(io::stderr)
        .event_format(Line { json: output.json })
        .init();
}

struct Line {
    json: bool,
}

impl<S, N> FormatEvent<S, N> for Line
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut message = String::new();
        context
            .field_format()
            .format_fields(Writer::new(&mut message), event)?;
        let level = event.metadata().level().as_str().to_lowercase();
        if self.json {
            writeln!(writer, "{}", json!({ "log": level, "message": message }))
        } else {
            writeln!(writer, "lockattr: {level}: {message}")
        }
    }
}
