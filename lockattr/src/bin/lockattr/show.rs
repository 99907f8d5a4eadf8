//! `lockattr show`: one lock, and everybody who waits for it.

use std::time::{Duration, SystemTime};

use clap::Args;
use lockattr::store::inspect::{Entry, EntryKind, Part, Shown, Waiter};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::exit::{self, Answer, Exit};
use crate::output::Output;
use crate::words::{self, length};

fn after_help() -> String {
    let codes = [
        Exit::OK,
        Exit::NOTHING,
        Exit::INCOMPLETE,
        Exit::USAGE,
        Exit::DATA,
        Exit::UNAVAILABLE,
    ];
    format!(
        "\
Examples:
  lockattr show sync:42
  lockattr show tick --json

{}",
        exit::listed(&codes, &[])
    )
}

/// Show one lock: who holds it, who waits in which order, and what that means
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct ShowArgs {
    /// The key, without the prefix
    key: String,
}

pub(crate) async fn show(args: ShowArgs, global: &Global, output: Output) -> Answer {
    let client = global.client()?;
    let shown = client.inspect()?.show(&args.key).await?;
    let now = SystemTime::now();
    if output.json {
        Output::object(&json(&shown, now))?;
    } else {
        output.styled(&format!("{}\n", text(&shown, now)))?;
    }
    Ok(if is_undecided(&shown) {
        Exit::INCOMPLETE
    } else if is_free(&shown) {
        Exit::NOTHING
    } else {
        Exit::OK
    })
}

fn is_free(shown: &Shown) -> bool {
    shown.listed.entries.is_empty() && shown.listed.waiters == 0 && shown.queue.is_empty()
}

/// Whether nobody is known to hold it, and the servers that do not answer may know of somebody: together
/// with those that have something, they are a majority.
pub(crate) fn is_undecided(shown: &Shown) -> bool {
    let has_something = |part: &&Part| !matches!(&part.entries, Ok(entries) if entries.is_empty());
    let is_away = |part: &Part| part.entries.is_err();
    let votes = shown.parts.iter().filter(has_something).count();
    shown.listed.entries.is_empty()
        && shown.parts.iter().any(is_away)
        && votes > shown.parts.len() / 2
}

/// For people: what stands there, what that means, who waits, and what each server has.
pub(crate) fn text(shown: &Shown, now: SystemTime) -> String {
    let key = words::one_line(&shown.listed.lock);
    let entries = &shown.listed.entries;
    if is_free(shown) && shown.parts.is_empty() {
        return format!("{key} is free: nobody holds it, and nobody waits for it");
    }
    let mut lines = Vec::new();
    match (entries.as_slice(), shown.listed.permits) {
        ([], _) if is_undecided(shown) => lines.push(format!(
            "{key} may be held: too few servers answer to tell by whom"
        )),
        ([], _) if is_free(shown) => lines.push(format!("{key} is free: nobody holds it")),
        ([], _) => lines.push(format!(
            "{key} is free, and is about to be granted to the first of those who wait"
        )),
        ([entry], None) if !shown.listed.shared => {
            lines.push(format!("{key} {}", headline(entry, now)));
            lines.extend(
                details(entry, now)
                    .into_iter()
                    .map(|line| format!("  {line}")),
            );
        }
        (entries, permits) => {
            lines.push(match permits {
                _ if shown.listed.shared => format!("{key} has {} readers", entries.len()),
                Some(permits) => {
                    let taken = words::taken(&shown.listed);
                    format!("{key} has {taken} of {permits} slots taken")
                }
                None => format!("{key} has {} slots taken", entries.len()),
            });
            for entry in entries {
                let what = match entry.weight {
                    _ if shown.listed.shared => "a place".to_owned(),
                    1 => format!("slot {}", entry.slot),
                    weight => format!("slot {} with {weight} permits", entry.slot),
                };
                lines.push(format!("  {what} {}", headline(entry, now)));
                lines.extend(
                    details(entry, now)
                        .into_iter()
                        .map(|line| format!("    {line}")),
                );
            }
        }
    }
    lines.extend(queue(shown, now));
    if !shown.parts.is_empty() {
        lines.push("  by server".to_owned());
        lines.extend(
            shown
                .parts
                .iter()
                .map(|part| format!("    {}", part_line(part, now))),
        );
    }
    lines.join("\n")
}

/// What stands there, after the key or the slot.
fn headline(entry: &Entry, now: SystemTime) -> String {
    let age = words::since(&entry.kind).map(|since| length(words::age(since, now)));
    match &entry.kind {
        EntryKind::Held { owner, .. } => {
            let held = age.map_or_else(String::new, |age| format!(", for {age}"));
            format!("is held by {}{held}", words::one_line(words::origin(owner)))
        }
        EntryKind::Closed { owner, .. } => format!(
            "is closed: {} has finished, and keeps it closed for its min_hold",
            words::one_line(words::origin(owner))
        ),
        EntryKind::Done { since } => format!(
            "is done, since {} ({} ago)",
            words::moment(*since),
            age.unwrap_or_default()
        ),
        EntryKind::Foreign { found } => format!(
            "cannot be locked: {} that is not a lock is stored there",
            words::one_line(found)
        ),
        _ => "is in a state that this version does not know".to_owned(),
    }
}

/// What follows from it.
fn details(entry: &Entry, now: SystemTime) -> Vec<String> {
    let since = words::since(&entry.kind);
    let until = entry.remaining.map(|remaining| now + remaining);
    let left = entry.remaining.unwrap_or_default();
    let ends = until.map_or_else(|| "never".to_owned(), words::moment);
    match &entry.kind {
        EntryKind::Held { .. } => {
            let mut lines = Vec::new();
            lines.extend(since.map(|since| format!("since      {}", words::moment(since))));
            lines.push(format!(
                "remaining  {}, unless it is renewed, as a live holder does every third of its ttl",
                length(left)
            ));
            lines
        }
        EntryKind::Closed { .. } => vec![format!(
            "until      {ends} (in {}): nobody holds it, and nobody is granted it before",
            length(left)
        )],
        EntryKind::Done { .. } => vec![format!(
            "until      {ends} (in {}): calls with `once` are answered as done, others find it busy",
            length(left)
        )],
        EntryKind::Foreign { .. } => vec![
            "every call of this key fails: delete what is there, or use another key or prefix"
                .to_owned(),
        ],
        _ => Vec::new(),
    }
}

fn queue(shown: &Shown, now: SystemTime) -> Vec<String> {
    let waiters = usize::try_from(shown.listed.waiters).unwrap_or(usize::MAX);
    if waiters == 0 && shown.queue.is_empty() {
        return vec!["  nobody waits".to_owned()];
    }
    let mut lines = vec![format!("  waiting    {}", waiters.max(shown.queue.len()))];
    for (place, waiting) in (1..).zip(&shown.queue) {
        lines.push(format!("    {place:>3}. {}", waiting_line(waiting, now)));
    }
    let more = waiters.saturating_sub(shown.queue.len());
    if more > 0 {
        lines.push(format!("    … and {more} more"));
    }
    lines
}

fn waiting_line(waiting: &Waiter, now: SystemTime) -> String {
    let asked = |since| format!(", for {}", length(words::age(since, now)));
    let ttl = |ttl: Duration| format!(", wants it for {}", length(ttl));
    format!(
        "{}{}{}",
        words::one_line(words::origin(&waiting.owner)),
        waiting.since.map(asked).unwrap_or_default(),
        waiting.ttl.map(ttl).unwrap_or_default()
    )
}

fn part_line(part: &Part, now: SystemTime) -> String {
    let has = match &part.entries {
        Err(error) => format!("does not answer: {error}"),
        Ok(entries) if entries.is_empty() => "has nothing".to_owned(),
        Ok(entries) => {
            let entries = entries.iter().map(|entry| headline(entry, now));
            entries.collect::<Vec<_>>().join("; ")
        }
    };
    format!("{}  {has}", words::one_line(&part.part))
}

/// For machines; `docs/schema/show.json` describes it.
fn json(shown: &Shown, now: SystemTime) -> Value {
    let queue = shown.queue.iter().map(|waiting| {
        json!({
            "holder": words::origin(&waiting.owner),
            "since_ms": waiting.since.map(words::since_ms),
            "age_ms": waiting.since.map(|since| words::millis(words::age(since, now))),
            "ttl_ms": waiting.ttl.map(words::millis),
        })
    });
    let parts = shown.parts.iter().map(|part| {
        let entries = part.entries.as_ref().ok();
        let entries = entries.map(|entries| {
            let entries = entries.iter().map(|entry| words::entry_json(entry, now));
            entries.collect::<Vec<_>>()
        });
        json!({
            "part": part.part,
            "entries": entries,
            "error": part.entries.as_ref().err().map(ToString::to_string),
        })
    });
    let mut lock = words::lock_json(&shown.listed, now);
    if is_undecided(shown) {
        lock["state"] = "unknown".into();
    } else if is_free(shown) {
        lock["state"] = "free".into();
    }
    lock["queue"] = queue.collect();
    lock["parts"] = parts.collect();
    lock
}
