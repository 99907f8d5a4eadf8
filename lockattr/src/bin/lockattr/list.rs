//! `lockattr list`: the locks of a store, a line each.

use std::io::Write as _;
use std::time::SystemTime;

use clap::Args;
use serde_json::json;

use crate::cli::Global;
use crate::exit::{self, Answer};
use crate::gather::{self, EXITS, Selection, gather};
use crate::output::Output;
use crate::{rows, screen, words};

fn after_help() -> String {
    format!(
        "\
Nothing is held up by it: the store is read in small steps. What is taken or given back meanwhile may be shown \
either way.

Examples:
  lockattr list                            all of them
  lockattr list 'sync:*' --sort age        what is held for longest
  lockattr list --waiting --sort waiters   where callers queue
  lockattr list --state held --json        an object a line

{}",
        exit::listed(&EXITS, &[])
    )
}

/// List locks: who holds them, since when, and how many wait
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct ListArgs {
    #[command(flatten)]
    selection: Selection,
}

pub(crate) async fn list(args: ListArgs, global: &Global, output: Output) -> Answer {
    let client = global.client()?;
    if output.json {
        return stream(&client, &args.selection).await;
    }
    let gathered = gather(&client, &args.selection).await?;
    if !gathered.locks.is_empty() {
        let width = screen::size().map(|(width, _)| width);
        let mut text = rows::table(&gathered.locks, SystemTime::now())
            .lines(width)
            .join("\n");
        text.push('\n');
        output.styled(&text)?;
    }
    gather::tell_missing(&gathered.missing, output);
    Ok(gathered.exit())
}

/// As they come: however many there are, one page of them is in memory.
async fn stream(client: &lockattr::Client, selection: &Selection) -> Answer {
    let inspector = client.inspect()?;
    let mut listing = inspector.list(&selection.pattern);
    let (mut is_empty, mut is_incomplete) = (true, false);
    while let Some(page) = listing.next().await? {
        let now = SystemTime::now();
        let mut lines = Vec::new();
        for listed in page.locks.iter().filter(|listed| selection.wants(listed)) {
            is_empty = false;
            writeln!(lines, "{}", words::lock_json(listed, now))?;
        }
        for missing in &page.missing {
            is_incomplete = true;
            writeln!(
                lines,
                "{}",
                json!({ "missing": words::missing_json(missing) })
            )?;
        }
        Output::text(&lines)?;
    }
    Ok(gather::exit(is_empty, is_incomplete))
}
