//! What is written behind `lockattr`: the options of all subcommands, and the list of these.

use std::time::Duration;

use clap::{ColorChoice, Parser, Subcommand, ValueEnum};
use lockattr::{Client, Error};

use crate::bench::BenchArgs;
use crate::doctor::DoctorArgs;
use crate::generate::{CompletionsArgs, ManArgs};
use crate::list::ListArgs;
use crate::release::ReleaseArgs;
use crate::show::ShowArgs;
use crate::watch::WatchArgs;

mod run_args;

pub(crate) use run_args::RunArgs;

/// Distributed locks for the shell: run a command under a lock that other machines respect.
#[derive(Debug, Parser)]
#[command(
    name = "lockattr",
    version,
    max_term_width = 100,
    after_help = "Passwords belong into LOCKATTR_URL rather than behind --url, where everybody sees them in the \
                  list of processes."
)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunArgs),
    List(ListArgs),
    Show(ShowArgs),
    Watch(WatchArgs),
    Release(ReleaseArgs),
    Doctor(DoctorArgs),
    Bench(BenchArgs),
    Completions(CompletionsArgs),
    Man(ManArgs),
}

/// Options that all subcommands take.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Options of all subcommands")]
pub(crate) struct Global {
    /// Where locks are kept: any URL that the library takes, such as `redis+sentinel://s1,s2,s3/mymaster`
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LOCKATTR_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1/"
    )]
    pub(crate) url: String,

    /// What every key in the store starts with; the same for all that shall exclude each other
    #[arg(
        long,
        global = true,
        value_name = "PREFIX",
        env = "LOCKATTR_PREFIX",
        default_value = "lock:"
    )]
    pub(crate) prefix: String,

    /// How long a connection may take to be made
    #[arg(long, global = true, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) connect_timeout: Duration,

    /// How long a reply may take
    #[arg(long, global = true, value_name = "TIME", default_value = "1s", value_parser = duration)]
    pub(crate) reply_timeout: Duration,

    /// Tell everything as JSON: answers on stdout, errors on stderr, an object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// When to use colours; `NO_COLOR` turns them off as well
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub(crate) color: Color,

    /// Tell what the library does; twice for all of it
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
}

impl Global {
    /// A client that connects when it is first used.
    pub(crate) fn client(&self) -> Result<Client, Error> {
        Client::builder()
            .prefix(&self.prefix)
            .connect_timeout(self.connect_timeout)
            .reply_timeout(self.reply_timeout)
            .connect_lazily(&self.url)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Color {
    Auto,
    Always,
    Never,
}

impl From<Color> for ColorChoice {
    fn from(color: Color) -> Self {
        match color {
            Color::Auto => Self::Auto,
            Color::Always => Self::Always,
            Color::Never => Self::Never,
        }
    }
}

/// A length of time with its unit, as in `500ms`, `30s` and `1m 30s`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|error| format!("{error}; it is written like 500ms, 30s, 1h or 1m 30s"))
}
