//! `lockattr watch`: the locks as they are now, again and again.

use std::collections::HashMap;
use std::io::{self, IsTerminal as _};
use std::time::{Duration, SystemTime};

use anstyle::Style;
use clap::Args;
use lockattr::Error;
use lockattr::store::inspect::Listed;
use serde_json::json;

use crate::cli::{Global, duration};
use crate::exit::{self, Answer, Exit};
use crate::gather::{self, EXITS, Gathered, Selection, gather, oldest};
use crate::interrupts::Interrupts;
use crate::output::Output;
use crate::rows;
use crate::screen::{self, Screen};
use crate::words;

fn after_help() -> String {
    format!(
        "\
On a terminal the list is drawn in place until Ctrl-C; elsewhere each look is written below the last one. What has \
another holder than at the last look is marked.

Examples:
  lockattr watch
  lockattr watch 'sync:*' --sort age --interval 5s
  lockattr watch --looks 1 --json

{}",
        exit::listed(&EXITS, &[])
    )
}

/// Watch locks as they are taken and given back
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    selection: Selection,
    /// How often the store is looked at
    #[arg(long, default_value = "1s", value_parser = interval, value_name = "TIME")]
    interval: Duration,
    /// Ends after so many looks; never where it is left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    looks: Option<u64>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = duration(text)?;
    if interval < Duration::from_millis(100) {
        return Err("the store is looked at ten times a second at most: 100ms or more".to_owned());
    }
    Ok(interval)
}

/// Looks until it is interrupted, and ends as a list of the last look would.
pub(crate) async fn watch(args: WatchArgs, global: &Global, output: Output) -> Answer {
    let client = global.client()?;
    let has_screen = !output.json && io::stdout().is_terminal();
    // Before the terminal is changed, so that nothing ends this process without changing it back.
    let mut interrupts = Interrupts::listen(has_screen)?;
    let screen = if has_screen {
        Some(Screen::enter(output)?)
    } else {
        None
    };
    let mut before = HashMap::new();
    // Until a look is done: what a shell makes of Ctrl-C.
    let mut exit = Exit::INTERRUPTED;
    for look in 1.. {
        let gathered = tokio::select! {
            gathered = gather(&client, &args.selection) => gathered,
            ended = interrupts.next() => return Ok(ended.unwrap_or(exit)),
        };
        let now = SystemTime::now();
        exit = match (&screen, gathered) {
            // A live view goes on when the store comes back.
            (Some(screen), gathered) => {
                screen.draw(&view(&gathered, &mut before, now))?;
                gathered.map_or(Exit::UNAVAILABLE, |gathered| gathered.exit())
            }
            (None, gathered) => {
                let gathered = gathered?;
                print(&gathered, output, now)?;
                gathered.exit()
            }
        };
        if args.looks == Some(look) {
            return Ok(exit);
        }
        tokio::select! {
            () = tokio::time::sleep(args.interval) => {}
            ended = interrupts.next() => return Ok(ended.unwrap_or(exit)),
        }
    }
    unreachable!("nobody looks for so long")
}

/// The lines of a terminal: a summary, what is missing, and the table. Rows that were not there at the
/// look before, or have another holder, are marked.
fn view(
    gathered: &Result<Gathered, Error>,
    before: &mut HashMap<String, Option<SystemTime>>,
    now: SystemTime,
) -> Vec<String> {
    let mut lines = Vec::new();
    let gathered = match gathered {
        Ok(gathered) => gathered,
        Err(error) => {
            let red = rows::style("foreign");
            return vec![format!("{red}{error}{red:#}")];
        }
    };
    lines.push(summary(gathered, now));
    for missing in &gathered.missing {
        let red = rows::style("foreign");
        lines.push(format!(
            "{red}{} does not answer: {}{red:#}",
            missing.part, missing.error
        ));
    }
    lines.push(String::new());
    let width = screen::size().map(|(width, _)| width.saturating_sub(MARK));
    let table = rows::table(&gathered.locks, now).lines(width);
    let mut rows = table.into_iter();
    lines.extend(rows.next().map(|heading| format!("  {heading}")));
    let first_look = before.is_empty();
    for (listed, row) in gathered.locks.iter().zip(rows) {
        let is_new = before.get(&listed.lock) != Some(&oldest(listed));
        let mark = if is_new && !first_look { "•" } else { " " };
        let bold = if is_new && !first_look {
            Style::new().bold()
        } else {
            Style::new()
        };
        lines.push(format!("{bold}{mark}{bold:#} {row}"));
    }
    *before = gathered
        .locks
        .iter()
        .map(|listed| (listed.lock.clone(), oldest(listed)))
        .collect();
    lines
}

/// The columns before a row.
const MARK: usize = 2;

fn summary(gathered: &Gathered, now: SystemTime) -> String {
    let locks = &gathered.locks;
    let entries = locks.iter().flat_map(|listed| &listed.entries);
    let held = entries.filter(|entry| words::is_held(entry)).count();
    let waiting: u64 = locks.iter().map(|listed| listed.waiters).sum();
    let mut parts = vec![format!("{held} held"), format!("{waiting} waiting")];
    let is_held = |listed: &&Listed| words::state(listed) == "held";
    let oldest_held = locks
        .iter()
        .filter(is_held)
        .filter_map(|listed| Some((oldest(listed)?, &listed.lock)))
        .min();
    if let Some((since, key)) = oldest_held {
        let age = words::length(words::age(since, now));
        parts.push(format!("oldest {age} ({})", words::one_line(key)));
    }
    let longest = locks.iter().max_by_key(|listed| listed.waiters);
    if let Some(longest) = longest.filter(|listed| listed.waiters > 0) {
        let key = words::one_line(&longest.lock);
        parts.push(format!("longest queue {} ({key})", longest.waiters));
    }
    let bold = Style::new().bold();
    format!(
        "{bold}{}{bold:#}   {}",
        parts.join("   "),
        words::moment(now)
    )
}

/// A look for a file or a program.
fn print(gathered: &Gathered, output: Output, now: SystemTime) -> io::Result<()> {
    if output.json {
        let locks = gathered
            .locks
            .iter()
            .map(|listed| words::lock_json(listed, now));
        let missing = gathered.missing.iter().map(words::missing_json);
        return Output::object(&json!({
            "at_ms": words::since_ms(now),
            "locks": locks.collect::<Vec<_>>(),
            "missing": missing.collect::<Vec<_>>(),
        }));
    }
    gather::tell_missing(&gathered.missing, output);
    let table = rows::table(&gathered.locks, now).lines(None).join("\n");
    output.styled(&format!("{}\n\n{table}\n\n", summary(gathered, now)))
}
