//! The arguments of `lockattr run`, and its help.

use std::ffi::OsString;
use std::time::Duration;

use clap::Args;

use super::duration;
use crate::exit::{self, Exit};

const ABOUT: &str = "\
Run a command under a lock, at most once at a time on all machines.

The lease is renewed while the command runs, and given back when it ends. When the lease is lost, the command is \
ended: its process group, and on Linux everything that it has started, gets TERM, and then KILL, before another can \
hold the key. Signals to `lockattr run` go to the command, whose standard input, output and error are its own. The \
command finds the key in LOCKATTR_KEY.";

fn after_help() -> String {
    let codes = exit::listed(
        &[
            Exit::USAGE,
            Exit::DATA,
            Exit::UNAVAILABLE,
            Exit::INTERNAL,
            Exit::BUSY,
            Exit::LOST,
            Exit::WAITED,
            Exit::NOT_EXECUTABLE,
            Exit::NOT_FOUND,
        ],
        &[
            ("128+n", "the command died of signal n"),
            ("other", "the command's own, untouched"),
        ],
    );
    format!(
        "\
Examples:
  lockattr run backup -- pg_dump -f dump.sql app
      Back up, unless it is done somewhere already: then end with 75

  */5 * * * *  lockattr run mail --skip-code 0 --min-hold 10s -- send-mails
      A line of a crontab on several machines, of which one sends; the others are silent

  lockattr run report --once 20h -- make-report
      Once a day: after a success it does not run again for 20 hours

  lockattr run deploy --wait 10m --ttl 10s -- ./deploy.sh
      Wait for a turn; a machine that dies is out of the way after 10 seconds

{codes}"
    )
}

#[derive(Debug, Args)]
#[command(about = "Run a command under a lock", long_about = ABOUT, after_help = after_help())]
pub(crate) struct RunArgs {
    /// What is locked: any text without braces, at most 1,024 bytes
    pub(crate) key: OsString,

    /// How long the lease lasts without renewal, and so how long a machine that died blocks others
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) ttl: Duration,

    /// How long a busy key is waited for
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = duration)]
    pub(crate) wait: Duration,

    /// End with this code where the command does not run because the key is busy or its work done;
    /// with 0 nothing is told either [default: 75, and 124 after a wait]
    #[arg(long, value_name = "CODE")]
    pub(crate) skip_code: Option<u8>,

    /// After the command has ended with 0, do not run it again under this key for that long
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) once: Option<Duration>,

    /// Keep the key closed for at least that long, however early the command ends: for clocks that differ
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) min_hold: Option<Duration>,

    /// End the command after that long, as a loss is
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(crate) max_hold: Option<Duration>,

    /// How many permits the key has: so many may hold it at a time, or fewer with a weight each
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub(crate) permits: u32,

    /// How many of the permits to take, all or none
    #[arg(long, value_name = "NUMBER", default_value = "1")]
    pub(crate) weight: u32,

    /// Hold the key beside others that say so as well: many readers, or one writer
    #[arg(long)]
    pub(crate) shared: bool,

    /// How long the command has between TERM and KILL: less where the lease ends sooner
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration)]
    pub(crate) grace: Duration,

    /// Draw a fencing token, and give it to the command as `LOCKATTR_TOKEN`
    #[arg(long)]
    pub(crate) token: bool,

    /// Say nothing of a key that is busy or done, nor of what the library warns of
    #[arg(short, long)]
    pub(crate) quiet: bool,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", num_args = 1..)]
    pub(crate) command: Vec<OsString>,
}
