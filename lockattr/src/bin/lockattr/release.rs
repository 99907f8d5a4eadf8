//! `lockattr release`: ends what is stuck, after it was shown and confirmed.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::time::{Duration, SystemTime};

use clap::Args;
use lockattr::store::inspect::{Ended, Entry, EntryKind, Shown};
use serde_json::{Value, json};

use crate::cli::Global;
use crate::exit::{self, Answer, Exit, Failure};
use crate::output::Output;
use crate::show;
use crate::words::{self, length};

fn after_help() -> String {
    let codes = [
        Exit::OK,
        Exit::NOTHING,
        Exit::USAGE,
        Exit::DATA,
        Exit::UNAVAILABLE,
    ];
    format!(
        "\
What was shown is released, and nothing else: where the holder has changed since, nothing is done. Stop the \
holder's process first where its work must not go on beside that of the next one.

Examples:
  lockattr release sync:42                             shows it, and asks
  lockattr release sync:42 --owner web-3:4711 --yes    only if that is who holds it
  lockattr release geocoder --slot 2

{}",
        exit::listed(&codes, &[])
    )
}

/// Release a lock that is stuck, after it was shown and confirmed
#[derive(Debug, Args)]
#[command(after_help = after_help())]
pub(crate) struct ReleaseArgs {
    /// The key, without the prefix
    key: String,
    /// Only if this is who holds it, as `show` tells
    #[arg(long, value_name = "HOST:PID")]
    owner: Option<String>,
    /// Which slot, of a key with several holders
    #[arg(long, value_name = "N")]
    slot: Option<usize>,
    /// Does not ask: needed where there is no terminal
    #[arg(long, short)]
    yes: bool,
}

pub(crate) async fn release(args: ReleaseArgs, global: &Global, output: Output) -> Answer {
    let client = global.client()?;
    let inspector = client.inspect()?;
    let shown = inspector.show(&args.key).await?;
    if show::is_undecided(&shown) {
        return Err(Failure::new(
            Exit::UNAVAILABLE,
            format!(
                "{} was not released: too few servers answer to tell who holds it, as `lockattr show` says in full",
                words::one_line(&args.key)
            ),
        ));
    }
    let now = SystemTime::now();
    let answer = |entry, result| json(&args.key, entry, result, now);
    let entry = match args.choose(&shown) {
        Choice::Entry(entry) => entry,
        Choice::Nothing => {
            return told(output, Exit::NOTHING, &answer(None, "gone"), || {
                format!(
                    "{} is free: there is nothing to release",
                    words::one_line(&args.key)
                )
            });
        }
        Choice::Changed(why) => {
            return told(output, Exit::NOTHING, &answer(None, "changed"), || why);
        }
        Choice::Refused(why) => return Err(Failure::new(Exit::DATA, why)),
    };
    if !args.yes && !confirmed(&shown, entry, output, now)? {
        return told(output, Exit::NOTHING, &answer(Some(entry), "kept"), || {
            "nothing was released".to_owned()
        });
    }
    let ended = inspector.end(&args.key, entry).await?;
    let exit = if ended == Ended::Ended {
        Exit::OK
    } else {
        Exit::NOTHING
    };
    told(output, exit, &answer(Some(entry), word(ended)), || {
        outcome(&args.key, entry, ended)
    })
}

fn told(output: Output, exit: Exit, json: &Value, text: impl FnOnce() -> String) -> Answer {
    if output.json {
        Output::object(json)?;
    } else {
        Output::text(format!("{}\n", text()).as_bytes())?;
    }
    Ok(exit)
}

/// Shows what there is and what will come of it, and asks.
fn confirmed(
    shown: &Shown,
    entry: &Entry,
    output: Output,
    now: SystemTime,
) -> Result<bool, Failure> {
    let stdin = io::stdin();
    if !stdin.is_terminal() || output.json {
        return Err(Failure::new(
            Exit::USAGE,
            "nobody can be asked here, and nothing was released: say --yes, and better --owner too",
        ));
    }
    let mut stderr = io::stderr().lock();
    let waiters = shown.listed.waiters;
    write!(
        stderr,
        "{}\n\n{}\n\nRelease it? [y/N] ",
        output.painted(&show::text(shown, now)),
        consequences(entry, waiters)
    )?;
    stderr.flush()?;
    let mut line = String::new();
    stdin.lock().read_line(&mut line)?;
    Ok(matches!(line.trim(), "y" | "Y" | "yes"))
}

/// What a look at the key has come to.
#[derive(Debug, PartialEq, Eq)]
enum Choice<'a> {
    /// This is to be ended.
    Entry(&'a Entry),
    /// Nothing stands there.
    Nothing,
    /// Something else stands there than what was asked for.
    Changed(String),
    /// There is more than one, or nothing that can be ended: what to do.
    Refused(String),
}

impl ReleaseArgs {
    /// The one entry that is meant.
    fn choose<'a>(&self, shown: &'a Shown) -> Choice<'a> {
        let key = words::one_line(&self.key);
        let entries = &shown.listed.entries;
        if entries.is_empty() {
            return Choice::Nothing;
        }
        let in_slot = |entry: &&Entry| self.slot.is_none_or(|slot| slot == entry.slot);
        let in_slot: Vec<&Entry> = entries.iter().filter(in_slot).collect();
        if in_slot.is_empty() {
            return Choice::Nothing;
        }
        let is_owners = |entry: &&Entry| match &self.owner {
            Some(owner) => words::holder(&entry.kind) == Some(owner),
            None => true,
        };
        let meant: Vec<&Entry> = in_slot.iter().copied().filter(is_owners).collect();
        match meant.as_slice() {
            [] => {
                let holders = in_slot.iter().map(|entry| who(entry));
                let holders = holders.collect::<Vec<_>>().join(", ");
                Choice::Changed(format!("{key} is not {}'s: {holders}", self.owner()))
            }
            [entry] => match &entry.kind {
                EntryKind::Foreign { found } => Choice::Refused(format!(
                    "{key} cannot be released: {found} that is not a lock is stored there. Delete it \
                     with the tools of the store if it is not needed"
                )),
                _ => Choice::Entry(entry),
            },
            several => Choice::Refused(format!(
                "{key} has {} holders: name one by --slot or --owner",
                several.len()
            )),
        }
    }

    fn owner(&self) -> String {
        words::one_line(self.owner.as_deref().unwrap_or_default())
    }
}

fn who(entry: &Entry) -> String {
    match words::holder(&entry.kind) {
        Some(holder) => format!("held by {}", words::one_line(holder)),
        None => words::kind(&entry.kind).to_owned(),
    }
}

/// What will come of it, which is told before anybody is asked.
fn consequences(entry: &Entry, waiters: u64) -> String {
    let next = match waiters {
        0 => "Nobody waits: the key is free then.".to_owned(),
        1 => "The one that waits is granted it at once.".to_owned(),
        waiters => format!("The first of the {waiters} that wait is granted it at once."),
    };
    match &entry.kind {
        EntryKind::Held { .. } => {
            let within = match entry.remaining {
                Some(remaining) => format!(
                    "within {} at most",
                    length(remaining.max(Duration::from_secs(1)))
                ),
                None => "soon".to_owned(),
            };
            format!(
                "The holder is told that it has lost its lease at its next renewal or before, {within}, and its \
                 body is cancelled then. Until then it may go on beside the next holder. {next}"
            )
        }
        EntryKind::Closed { .. } => {
            format!("Nobody holds it: what its min_hold keeps apart may run again at once. {next}")
        }
        EntryKind::Done { .. } => {
            "Its work is done: without the mark, the next call does it again.".to_owned()
        }
        _ => next,
    }
}

/// What came of it.
fn outcome(key: &str, entry: &Entry, ended: Ended) -> String {
    let key = words::one_line(key);
    match ended {
        Ended::Ended => match words::holder(&entry.kind) {
            Some(holder) if matches!(entry.kind, EntryKind::Held { .. }) => {
                format!(
                    "{key} was released: {} has lost it",
                    words::one_line(holder)
                )
            }
            _ => format!("{key} was released"),
        },
        Ended::Gone => format!("{key} was free already: nothing was released"),
        _ => format!("{key} has changed since it was shown: nothing was released"),
    }
}

/// For machines; `docs/schema/release.json` describes it.
fn json(key: &str, entry: Option<&Entry>, result: &str, now: SystemTime) -> Value {
    json!({
        "key": key,
        "result": result,
        "entry": entry.map(|entry| words::entry_json(entry, now)),
    })
}

/// The word for what came of it.
fn word(ended: Ended) -> &'static str {
    match ended {
        Ended::Ended => "released",
        Ended::Gone => "gone",
        _ => "changed",
    }
}

#[cfg(test)]
mod tests {
    use lockattr::store::inspect::Listed;

    use super::*;

    fn release(owner: Option<&str>, slot: Option<usize>) -> ReleaseArgs {
        ReleaseArgs {
            key: "k".to_owned(),
            owner: owner.map(str::to_owned),
            slot,
            yes: false,
        }
    }

    fn held(slot: usize, origin: &str) -> Entry {
        let owner = format!("0190aabb@{origin}");
        let kind = EntryKind::Held { owner, since: None };
        Entry::new(slot, kind, Some(Duration::from_secs(20)))
    }

    #[test]
    fn one_entry_is_meant_or_none_is_ended() {
        let shown = |entries| Shown::new(Listed::new("k", entries, 0), Vec::new());
        let one = shown(vec![held(0, "a:1")]);
        let two = shown(vec![held(0, "a:1"), held(2, "b:2")]);
        let foreign = EntryKind::Foreign {
            found: "a hash".to_owned(),
        };
        let foreign = shown(vec![Entry::new(0, foreign, None)]);

        let is_slot =
            |choice: Choice<'_>, slot| matches!(choice, Choice::Entry(entry) if entry.slot == slot);
        assert!(is_slot(release(None, None).choose(&one), 0));
        assert!(is_slot(release(Some("a:1"), None).choose(&one), 0));
        assert!(is_slot(release(Some("b:2"), None).choose(&two), 2));
        assert!(is_slot(release(None, Some(2)).choose(&two), 2));
        assert!(matches!(
            release(None, None).choose(&two),
            Choice::Refused(_)
        ));
        assert!(matches!(
            release(Some("c:3"), None).choose(&one),
            Choice::Changed(_)
        ));
        assert!(matches!(
            release(Some("a:1"), Some(2)).choose(&two),
            Choice::Changed(_)
        ));
        assert_eq!(release(None, Some(1)).choose(&two), Choice::Nothing);
        assert_eq!(
            release(None, None).choose(&shown(Vec::new())),
            Choice::Nothing
        );
        assert!(matches!(
            release(None, None).choose(&foreign),
            Choice::Refused(_)
        ));
    }

    #[test]
    fn what_will_come_of_it_is_said_before() {
        let said = consequences(&held(0, "a:1"), 3);
        assert!(said.contains("within 20s at most"), "{said}");
        assert!(said.contains("first of the 3"), "{said}");
        let done = EntryKind::Done {
            since: SystemTime::UNIX_EPOCH,
        };
        let said = consequences(&Entry::new(0, done, None), 0);
        assert!(said.contains("does it again"), "{said}");
    }
}
