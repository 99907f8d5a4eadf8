//! The processes below one: what a command has started, whatever group or session it has moved to.
//!
//! They are found in `/proc`; where there is none, a command's process group is all that can be ended.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, getppid, kill_process, kill_process_group};

/// A process that is in the middle of something in the kernel ends when that is over, and is not waited
/// for any longer than this.
const LONGEST_END: Duration = Duration::from_secs(2);

const PAUSE: Duration = Duration::from_millis(2);

struct Process {
    id: Pid,
    parent: Option<Pid>,
    group: Option<Pid>,
    has_ended: bool,
}

impl Process {
    fn of(id: Pid) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
        // The name in parentheses may hold anything.
        let mut fields = stat.rsplit_once(") ")?.1.split(' ');
        let has_ended = matches!(fields.next()?, "Z" | "X");
        let mut next_id = || Pid::from_raw(fields.next()?.parse().ok()?);
        Some(Self {
            id,
            parent: next_id(),
            group: next_id(),
            has_ended,
        })
    }
}

/// The parent of a process.
pub(super) fn parent(id: Pid) -> Option<Pid> {
    if id == getpid() {
        getppid()
    } else {
        Process::of(id)?.parent
    }
}

/// Makes this process the parent of what its descendants leave behind when they end. On Linux alone.
pub(super) fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    // Without it less is found; nothing else can be done about it.
    let _ = rustix::process::set_child_subreaper(Some(getpid()));
}

/// Whether a process below this one lives.
pub(super) fn has_descendants() -> bool {
    !descendants().is_empty()
}

/// Sends a signal to a process group, and to all below this process that are in none of these two.
pub(super) fn signal_all(group: Pid, signal: Signal) {
    let _ = kill_process_group(group, signal);
    for process in descendants() {
        if process.group != Some(group) {
            // It may have ended since.
            let _ = kill_process(process.id, signal);
        }
    }
}

/// Ends a process group, and all below this process, and waits until they have ended.
pub(super) fn kill_all(group: Option<Pid>) {
    let start = Instant::now();
    loop {
        if let Some(group) = group {
            let _ = kill_process_group(group, Signal::KILL);
        }
        let left = descendants();
        // What they have started meanwhile is found when it is looked again.
        for process in &left {
            let _ = kill_process(process.id, Signal::KILL);
        }
        if left.is_empty() || start.elapsed() > LONGEST_END {
            return;
        }
        thread::sleep(PAUSE);
    }
}

/// The processes below this one that have not ended.
fn descendants() -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else {
        return Vec::new();
    };
    let id = |name: &str| Pid::from_raw(name.parse().ok()?);
    let mut others: Vec<Process> = entries
        .filter_map(|entry| Process::of(id(entry.ok()?.file_name().to_str()?)?))
        .collect();
    let mut found = Vec::new();
    let mut parents = vec![getpid()];
    while let Some(parent) = parents.pop() {
        let (children, rest): (Vec<_>, _) = others
            .into_iter()
            .partition(|process| process.parent == Some(parent));
        others = rest;
        parents.extend(children.iter().map(|child| child.id));
        found.extend(children);
    }
    found.retain(|process| !process.has_ended);
    found
}

/// The signals that this process ignores, a bit each.
pub(super) fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .unwrap_or_default()
}
