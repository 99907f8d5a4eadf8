//! The terminal: whose keys Ctrl-C and Ctrl-Z are, and what becomes of it afterwards.

use std::fs::File;
use std::io;

use nix::sys::signal::{SigSet, Signal};
use rustix::process::{Pid, getpgid, getsid, test_kill_process_group};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetpgrp, tcsetattr, tcsetpgrp};

use super::family;

/// Lets this thread, and those that it starts, write to the terminal and change it from the background.
pub(super) fn let_background_write() {
    // A signal that exists can be blocked.
    let _ = output_signal().thread_block();
}

/// Calls `start` so that what it starts gets the signal as ever.
pub(super) fn starting<T>(start: impl FnOnce() -> T) -> T {
    let _ = output_signal().thread_unblock();
    let started = start();
    let_background_write();
    started
}

fn output_signal() -> SigSet {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTTOU);
    signals
}

/// Whether nobody is there to continue the group of a process once it has stopped: its parent is in another
/// session, as under `ssh -t` and `cron`. Ctrl-Z does nothing then, as ever.
pub(super) fn nobody_would_continue(process: Pid) -> bool {
    let group = getpgid(Some(process));
    let mut child = process;
    while let Some(parent) = family::parent(child) {
        if getsid(Some(parent)) != getsid(Some(process)) {
            return true;
        }
        if getpgid(Some(parent)) != group {
            return false;
        }
        child = parent;
    }
    true
}

/// The terminal of this session, where there is one.
pub(super) struct Terminal {
    device: File,
    /// The group that has started the command, and which gets the terminal back.
    starter: Pid,
    command: Pid,
    settings: Option<Termios>,
    /// Of the command, while it is stopped.
    kept: Option<Termios>,
}

impl Terminal {
    pub(super) fn open(starter: Pid, command: Pid) -> Option<Self> {
        let device = File::options()
            .read(true)
            .write(true)
            .open("/dev/tty")
            .ok()?;
        let settings = tcgetattr(&device).ok();
        Some(Self {
            device,
            starter,
            command,
            settings,
            kept: None,
        })
    }

    /// Gives it to the command, if whoever has started that has it.
    pub(super) fn give(&mut self) {
        if !self.is_of(self.starter) {
            return;
        }
        if let Some(settings) = self.kept.take() {
            let _ = self.set(&settings);
        }
        let _ = tcsetpgrp(&self.device, self.command);
    }

    /// Whether the command has it.
    pub(super) fn is_given(&self) -> bool {
        self.is_of(self.command)
    }

    /// Takes it back from a command that was stopped, and which may want its settings again.
    pub(super) fn take_from_stopped(&mut self) {
        if self.is_given() {
            self.kept = tcgetattr(&self.device).ok();
            self.restore();
        }
    }

    /// Takes it back from a command that has ended. One that has died has not seen to the settings.
    pub(super) fn take_from_ended(&self, has_died: bool) {
        let is_free =
            tcgetpgrp(&self.device).is_ok_and(|group| test_kill_process_group(group).is_err());
        if !self.is_given() && !is_free {
            return;
        }
        if has_died {
            self.restore();
        } else {
            let _ = tcsetpgrp(&self.device, self.starter);
        }
    }

    fn restore(&self) {
        let _ = tcsetpgrp(&self.device, self.starter);
        if let Some(settings) = &self.settings {
            let _ = self.set(settings);
        }
    }

    fn set(&self, settings: &Termios) -> io::Result<()> {
        Ok(tcsetattr(&self.device, OptionalActions::Now, settings)?)
    }

    fn is_of(&self, group: Pid) -> bool {
        tcgetpgrp(&self.device) == Ok(group)
    }
}
