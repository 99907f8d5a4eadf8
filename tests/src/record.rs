//! What happened, written down by several processes in one file.
//!
//! Each line is one `write` to a file opened for appending, so lines of different processes never
//! mix. Times are the machine's monotonic clock, which all its processes share.

use std::fmt::{self, Display};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use crate::scratch::Scratch;

/// A moment on the machine's monotonic clock.
pub fn now() -> Duration {
    let time = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(time.tv_sec).expect("a clock that starts at zero");
    let nanos = u32::try_from(time.tv_nsec).expect("below a billion");
    Duration::new(seconds, nanos)
}

/// What is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// A call begins, outside of the guarded function; `note` may say whose it is.
    Call,
    /// The body is polled for the first time.
    Enter,
    /// The body is polled again.
    Beat,
    /// The body holds this fencing token; `note` is the number.
    Token,
    /// The body holds this of the key's slots; `note` is the number.
    Slot,
    /// The body has the key beside others; `note` is how: `shared`, or `weight/permits`.
    Beside,
    /// The call is made by the body of another call of its process; `note` is its number.
    Within,
    /// The call leaves a mark on its keys; `note` is the mark and its milliseconds: `once 150`.
    Leaves,
    /// The call was told that it runs on a fallback; `note` is which.
    Fallback,
    /// The body reaches its end.
    Leave,
    /// The call has ended; `note` is how.
    Outcome,
    /// The test hurt something; `note` is what.
    Fault,
    /// The test found a mark under this key; `note` is which.
    Mark,
    /// The test found something under this key when there was rest; `note` is what, and of which
    /// process: `held 7`, `queued 7`.
    Left,
}

impl Event {
    /// Whether a call writes it, and not the test.
    pub fn is_of_a_call(self) -> bool {
        !matches!(self, Self::Fault | Self::Mark | Self::Left)
    }
}

const NAMES: [(Event, &str); 14] = [
    (Event::Call, "call"),
    (Event::Enter, "enter"),
    (Event::Beat, "beat"),
    (Event::Token, "token"),
    (Event::Slot, "slot"),
    (Event::Beside, "beside"),
    (Event::Within, "within"),
    (Event::Leaves, "leaves"),
    (Event::Fallback, "fallback"),
    (Event::Leave, "leave"),
    (Event::Outcome, "outcome"),
    (Event::Fault, "fault"),
    (Event::Mark, "mark"),
    (Event::Left, "left"),
];

impl Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(event, _)| event == self);
        f.write_str(name.map_or("?", |(_, name)| name))
    }
}

impl FromStr for Event {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let event = NAMES.iter().find(|(_, name)| *name == text);
        event
            .map(|(event, _)| *event)
            .ok_or_else(|| format!("no event: {text}"))
    }
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// When.
    pub at: Duration,
    /// The process.
    pub process: u32,
    /// Which call of that process.
    pub call: u64,
    /// What.
    pub event: Event,
    /// The lock's key; of several, all, joined by `+`; `-` where it is about none.
    pub key: String,
    /// What else there is to say; `-` where there is nothing.
    pub note: String,
}

/// An end for writing; cheap to open, one per process.
#[derive(Debug)]
pub struct Pen(File);

impl Pen {
    /// Opens the record at `path`, which a [`Record`] made.
    pub fn open(path: &Path) -> Self {
        let file = OpenOptions::new().append(true).open(path);
        Self(file.expect("the record that the test made"))
    }

    /// Writes down something that happens now.
    pub fn write(&self, call: u64, event: Event, key: &str, note: &str) {
        self.write_at(now(), call, event, key, note);
    }

    /// Writes down something that happened at `at`.
    pub fn write_at(&self, at: Duration, call: u64, event: Event, key: &str, note: &str) {
        let process = std::process::id();
        let time = at.as_nanos();
        let note = if note.is_empty() { "-" } else { note };
        let line = format!("{time}\t{process}\t{call}\t{event}\t{key}\t{note}\n");
        (&self.0)
            .write_all(line.as_bytes())
            .expect("space for a line");
    }
}

/// The file, made by the test and gone with it.
#[derive(Debug)]
pub struct Record {
    path: PathBuf,
    // Held for its end.
    _scratch: Scratch,
}

impl Record {
    /// An empty record.
    pub fn new() -> Self {
        let scratch = Scratch::new();
        let path = scratch.path().join("record");
        File::create(&path).expect("a file in our directory");
        Self {
            path,
            _scratch: scratch,
        }
    }

    /// For the processes that write.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// For the test itself.
    pub fn pen(&self) -> Pen {
        Pen::open(&self.path)
    }

    /// All lines so far, by time.
    pub fn entries(&self) -> Vec<Entry> {
        let text = fs::read_to_string(&self.path).expect("the record that we made");
        let mut entries: Vec<Entry> = text.lines().map(entry).collect();
        entries.sort_by_key(|entry| entry.at);
        entries
    }

    /// How many lines tell of `event`.
    pub fn count(&self, event: Event) -> usize {
        self.entries()
            .iter()
            .filter(|entry| entry.event == event)
            .count()
    }
}

impl Default for Record {
    fn default() -> Self {
        Self::new()
    }
}

fn entry(line: &str) -> Entry {
    let parts: Vec<&str> = line.split('\t').collect();
    let [time, process, call, event, key, note] = parts[..] else {
        panic!("a line that nobody writes: {line}");
    };
    Entry {
        at: Duration::from_nanos(time.parse().expect("nanoseconds")),
        process: process.parse().expect("a process id"),
        call: call.parse().expect("a number"),
        event: event.parse().expect("an event"),
        key: key.to_owned(),
        note: note.to_owned(),
    }
}
