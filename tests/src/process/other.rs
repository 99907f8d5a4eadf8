//! Processes that servers start by themselves, and servers that do not run as root.

use std::fs;
use std::os::unix::fs::chown;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// Freezes a process that another one has started.
pub(crate) fn stop_other(id: u32) {
    signal_other(id, Signal::STOP);
}

/// Sends a signal to a process that another one has started, and that may have ended.
pub(crate) fn signal_other(id: u32, signal: Signal) {
    if let Some(id) = i32::try_from(id).ok().and_then(Pid::from_raw) {
        let _ = kill_process(id, signal);
    }
}

/// The processes that a process has started.
pub(crate) fn children(id: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |child: &u32| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        let parent = stat
            .rsplit_once(") ")
            .and_then(|(_, rest)| rest.split(' ').nth(1));
        parent.and_then(|parent| parent.parse().ok()) == Some(id)
    };
    ids.filter(is_child).collect()
}

/// A program as somebody who is not root, in a directory that is theirs then: some servers do not run as
/// root.
pub(crate) fn unprivileged(program: &Path, directory: &Path) -> Command {
    let mut command = if give_away(directory) {
        let mut command = Command::new("setpriv");
        command
            .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
            .arg(program);
        command
    } else {
        Command::new(program)
    };
    command.current_dir(directory).stdin(Stdio::null());
    command
}

/// Gives a file to somebody who is not root, if we are; says whether it was.
pub(crate) fn give_away(path: &Path) -> bool {
    const NOBODY: u32 = 65534;
    chown(path, Some(NOBODY), Some(NOBODY)).is_ok()
}
