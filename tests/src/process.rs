//! Signals to processes that the harness started.

use std::fs;
use std::process::Child;

use rustix::process::{Pid, Signal, kill_process};

use crate::wait;

#[cfg(feature = "postgres")]
mod other;
#[cfg(feature = "postgres")]
pub(crate) use other::{children, give_away, signal_other, stop_other, unprivileged};

/// Freezes a process and waits until it stands still.
pub fn freeze(child: &Child) {
    send(child, Signal::STOP);
    wait::block_until("the process stands still", || state(child) == Some('T'));
}

/// Lets a frozen process go on.
pub fn thaw(child: &Child) {
    send(child, Signal::CONT);
}

/// Ends a process as a power cut would, frozen or not, and waits for its end.
pub fn end(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}

fn send(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("a process of our own takes signals");
}

/// The letter that the kernel shows for a process: `R`unning, `S`leeping, s`T`opped …
fn state(child: &Child) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).ok()?;
    // The name in parentheses may hold anything, the state is what follows the last of them.
    stat.rsplit_once(") ")?.1.chars().next()
}
