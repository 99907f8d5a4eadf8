//! Reads a whole list of locks, and sorts it.

use std::cmp::Reverse;
use std::time::SystemTime;

use clap::ValueEnum;
use lockattr::store::inspect::{Listed, Missing};
use lockattr::{Client, Error};

use crate::exit::Exit;
use crate::output::Output;
use crate::words;

/// How a command ends that reads a list.
pub(crate) const EXITS: [Exit; 5] = [
    Exit::OK,
    Exit::NOTHING,
    Exit::INCOMPLETE,
    Exit::USAGE,
    Exit::UNAVAILABLE,
];

/// Which locks are wanted, and in which order.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Selection {
    /// Which keys: `*` stands for any text, `?` for one character; all where it is left out
    #[arg(default_value = "*", hide_default_value = true)]
    pub(crate) pattern: String,
    /// Only locks in one of these states, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', value_name = "STATE")]
    state: Vec<State>,
    /// Only locks that somebody waits for
    #[arg(long)]
    waiting: bool,
    /// The order
    #[arg(long, value_enum, default_value_t, value_name = "ORDER")]
    sort: Sort,
}

/// What a lock may be in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum State {
    /// Somebody holds it
    Held,
    /// Nobody holds it, and it stays closed for a while (`min_hold`)
    Closed,
    /// Its work is done (`once`)
    Done,
    /// Something that is not a lock is stored there
    Foreign,
    /// Nobody holds it, and somebody waits
    Waiting,
}

/// The order of a list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum Sort {
    /// By key
    #[default]
    Key,
    /// What stands there for longest first
    Age,
    /// What ends first
    Remaining,
    /// The longest queue first
    Waiters,
}

impl Selection {
    /// Whether a lock is wanted.
    pub(crate) fn wants(&self, listed: &Listed) -> bool {
        let state = words::state(listed);
        let is_it = |wanted: &State| {
            let value = wanted.to_possible_value();
            value.is_some_and(|value| value.get_name() == state)
        };
        (self.state.is_empty() || self.state.iter().any(is_it))
            && (!self.waiting || listed.waiters > 0)
    }

    fn sort(&self, locks: &mut [Listed]) {
        locks.sort_by(|a, b| a.lock.cmp(&b.lock));
        match self.sort {
            Sort::Key => {}
            Sort::Age => {
                locks.sort_by_key(|listed| oldest(listed).map_or((1, None), |at| (0, Some(at))));
            }
            Sort::Remaining => locks.sort_by_key(|listed| {
                let remaining = listed
                    .entries
                    .iter()
                    .filter_map(|entry| entry.remaining)
                    .min();
                remaining.map_or((1, None), |remaining| (0, Some(remaining)))
            }),
            Sort::Waiters => locks.sort_by_key(|listed| Reverse(listed.waiters)),
        }
    }
}

/// Since when the oldest entry of a lock stands there.
pub(crate) fn oldest(listed: &Listed) -> Option<SystemTime> {
    let since = listed.entries.iter().map(|entry| words::since(&entry.kind));
    since.flatten().min()
}

/// What was found.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    pub(crate) locks: Vec<Listed>,
    /// What did not answer.
    pub(crate) missing: Vec<Missing>,
}

impl Gathered {
    /// What a list with these ends with.
    pub(crate) fn exit(&self) -> Exit {
        exit(self.locks.is_empty(), !self.missing.is_empty())
    }
}

/// What a list ends with.
pub(crate) fn exit(is_empty: bool, is_incomplete: bool) -> Exit {
    match (is_incomplete, is_empty) {
        (true, _) => Exit::INCOMPLETE,
        (false, true) => Exit::NOTHING,
        (false, false) => Exit::OK,
    }
}

/// Says on stderr what is missing.
pub(crate) fn tell_missing(missing: &[Missing], output: Output) {
    for Missing { part, error, .. } in missing {
        output.note(&format!(
            "{part} does not answer, and its locks are missing: {error}"
        ));
    }
}

/// Everything that is wanted, in its order.
pub(crate) async fn gather(client: &Client, selection: &Selection) -> Result<Gathered, Error> {
    let inspector = client.inspect()?;
    let mut listing = inspector.list(&selection.pattern);
    let mut gathered = Gathered::default();
    while let Some(page) = listing.next().await? {
        let wanted = page
            .locks
            .into_iter()
            .filter(|listed| selection.wants(listed));
        gathered.locks.extend(wanted);
        gathered.missing.extend(page.missing);
    }
    selection.sort(&mut gathered.locks);
    Ok(gathered)
}
