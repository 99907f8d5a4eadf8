//! The guard: a process that is the command's parent, and sees to it that the command ends in time.
//!
//! It knows nothing of stores. The holder of the lease tells it how long that may be relied on, and the
//! signals that come; when it hears nothing more, because the holder was killed, or in time, because the
//! holder is frozen or the store is away, it ends the command and everything that this has started.

use std::ffi::OsString;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};
use std::time::Duration;

use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getppid, kill_process_group, waitid, waitpid,
};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep_until;

use super::message::{Channel, FRAME, FromGuard, Started, ToGuard, Why};
use super::signals::Signals;
use super::terminal::{self, Terminal};
use super::{clock, family};
use crate::exit::Exit;

/// The subcommand that nobody calls by hand.
pub(crate) const NAME: &str = "__guard";

/// How often it is looked whether those have ended that were asked to, whose end is not told.
const LOOK: Duration = Duration::from_millis(50);

/// Plays the guard where the arguments ask for it.
pub(crate) fn if_asked_for(mut args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    if args.nth(1)? != NAME {
        return None;
    }
    let guarded = Orders::read(args).and_then(|orders| guard(&orders));
    Some(match guarded {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("lockattr: the command could not be guarded: {error}");
            Exit::INTERNAL.into()
        }
    })
}

struct Orders {
    grace: Duration,
    starter: Pid,
    command: Vec<OsString>,
}

impl Orders {
    fn read(mut args: impl Iterator<Item = OsString>) -> io::Result<Self> {
        let mut number = || args.next()?.to_str()?.parse::<u64>().ok();
        let grace = number().map(Duration::from_millis);
        let starter = number().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        let command: Vec<_> = args.collect();
        match (grace, starter, command.is_empty()) {
            (Some(grace), Some(starter), false) => Ok(Self {
                grace,
                starter,
                command,
            }),
            _ => Err(io::Error::other("it is started by `lockattr run` alone")),
        }
    }
}

fn guard(orders: &Orders) -> io::Result<()> {
    terminal::let_background_write();
    let control = UnixStream::from(fcntl_dupfd_cloexec(io::stdin(), 3)?);
    let Some((stdin, first)) = receive_stdin(&control)? else {
        return Ok(());
    };
    family::adopt_orphans();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // What ends the holder of the lease is seen by its silence. None is to end the guard first.
        let _signals = Signals::listen()?;
        let channel = Channel::new(control)?;
        let mut ends = signal(SignalKind::child())?;
        let mut command = Command::new(&orders.command[0]);
        command
            .args(&orders.command[1..])
            .process_group(0)
            .stdin(stdin);
        let started = terminal::starting(|| command.spawn());
        drop(command);
        let child = match &started {
            Ok(child) => Pid::from_child(child),
            Err(error) => {
                let errno = error.raw_os_error().unwrap_or_default();
                channel.send(Started(Err(errno)).frame());
                return Ok(());
            }
        };
        channel.send(Started(Ok(())).frame());
        let mut terminal = Terminal::open(orders.starter, child);
        if let Some(terminal) = &mut terminal {
            terminal.give();
        }
        let mut guard = Guard {
            channel,
            holder: getppid(),
            child,
            terminal,
            grace: orders.grace,
            term_at: Duration::ZERO,
            kill_at: Duration::ZERO,
            ending: None,
            at_deadline: false,
            is_alone: false,
            is_stopped: false,
            status: None,
        };
        guard.hear(first);
        loop {
            // A guard that has stood still acts by what it was told meanwhile, not by what it knew before.
            while let Ok(frame) = guard.channel.received() {
                guard.hear(frame);
            }
            if guard.is_over() {
                break;
            }
            let due = sleep_until(clock::instant(guard.due()));
            tokio::select! {
                frame = guard.channel.next(), if !guard.is_alone => match frame {
                    Some(frame) => guard.hear(frame),
                    None => guard.is_left_alone(),
                },
                _ = ends.recv() => {}
                () = due => {}
            }
        }
        guard.finish();
        Ok(())
    })
}

struct Guard {
    channel: Channel,
    holder: Option<Pid>,
    /// Also the number of its process group.
    child: Pid,
    terminal: Option<Terminal>,
    grace: Duration,
    term_at: Duration,
    kill_at: Duration,
    /// When KILL is due, once TERM was sent.
    ending: Option<Duration>,
    at_deadline: bool,
    is_alone: bool,
    is_stopped: bool,
    /// How the command has ended.
    status: Option<Status>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Status {
    Exited(u8),
    Died(i32),
}

impl Guard {
    fn hear(&mut self, frame: [u8; FRAME]) {
        match ToGuard::read(frame) {
            Some(ToGuard::Until { term_at, kill_at }) => {
                (self.term_at, self.kill_at) = (term_at, kill_at);
            }
            Some(ToGuard::End { grace }) => self.end_within(grace),
            Some(ToGuard::Signal(signal)) => self.pass_on(signal),
            None => {}
        }
    }

    /// The holder of the lease was killed: nobody renews that any more.
    fn is_left_alone(&mut self) {
        self.is_alone = true;
        self.end_within(self.grace);
    }

    fn pass_on(&mut self, signal: i32) {
        let Some(signal) = Signal::from_named_raw(signal) else {
            return;
        };
        if signal == Signal::CONT {
            // Who is being ended does not go on.
            if self.ending.is_none() && clock::now() < self.kill_at {
                if let Some(terminal) = &mut self.terminal {
                    terminal.give();
                }
                self.resume();
            }
        } else {
            let _ = kill_process_group(self.child, signal);
        }
    }

    fn resume(&mut self) {
        self.is_stopped = false;
        let _ = kill_process_group(self.child, Signal::CONT);
    }

    fn end_within(&mut self, grace: Duration) {
        if self.ending.is_some() {
            return;
        }
        self.ending = Some(clock::now() + grace);
        // Who is stopped would not hear it, and is not to go on.
        if !grace.is_zero() && !self.is_stopped {
            family::signal_all(self.child, Signal::TERM);
        }
    }

    /// When there is something to do.
    fn due(&self) -> Duration {
        match self.ending {
            None => self.term_at.min(self.kill_at),
            Some(kill_at) => kill_at.min(self.kill_at).min(clock::now() + LOOK),
        }
    }

    /// Does what is due, and says whether the command has ended, and all else where it is to.
    fn is_over(&mut self) -> bool {
        self.look();
        if self.status.is_some() && (self.ending.is_none() || !family::has_descendants()) {
            return true;
        }
        let now = clock::now();
        if self.ending.is_none() && now >= self.term_at {
            self.at_deadline = true;
            self.end_within(self.kill_at.saturating_sub(now));
        }
        let Some(kill_at) = self.ending else {
            return false;
        };
        if now < kill_at.min(self.kill_at) {
            return false;
        }
        family::kill_all(Some(self.child));
        self.look();
        true
    }

    fn look(&mut self) {
        let id = self.child;
        let child = || WaitId::Pid(id);
        // Not reaped before all is over: until then its number, and its group's, are nobody else's.
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if let Ok(Some(status)) = waitid(child(), ended) {
            self.status = Status::of(status.exit_status(), status.terminating_signal());
            return;
        }
        let stopped = WaitIdOptions::STOPPED | WaitIdOptions::CONTINUED | WaitIdOptions::NOHANG;
        while let Ok(Some(status)) = waitid(child(), stopped) {
            match status.stopping_signal().and_then(Signal::from_named_raw) {
                Some(signal) => self.has_stopped(signal),
                None => self.is_stopped = false,
            }
        }
        if self.ending.is_none() {
            self.reap_orphans();
        }
    }

    /// What the command's children have left behind has this process as its parent.
    fn reap_orphans(&mut self) {
        while let Ok(Some((id, status))) = waitpid(None, WaitOptions::NOHANG) {
            if id == self.child {
                self.status = Status::of(status.exit_status(), status.terminating_signal());
                return;
            }
        }
    }

    fn has_stopped(&mut self, signal: Signal) {
        self.is_stopped = true;
        let Some(terminal) = &mut self.terminal else {
            return;
        };
        let wants_terminal = [Signal::TTIN, Signal::TTOU].contains(&signal);
        // It has asked for the terminal before that was given to it.
        let has_it_now = wants_terminal && terminal.is_given();
        let is_in_vain =
            signal == Signal::TSTP && self.holder.is_none_or(terminal::nobody_would_continue);
        if has_it_now || is_in_vain {
            self.resume();
        } else {
            terminal.take_from_stopped();
            self.channel.send(FromGuard::Stopped.frame());
        }
    }

    fn finish(&self) {
        let died = matches!(self.status, None | Some(Status::Died(_)));
        let mut why = Why::ByItself;
        if let Some(terminal) = &self.terminal {
            if terminal.is_given() && self.status == Some(Status::Died(Signal::INT.as_raw())) {
                why = Why::Interrupted;
            }
            terminal.take_from_ended(died);
        }
        if self.at_deadline {
            why = Why::AtDeadline;
        }
        let status = match self.status {
            Some(Status::Exited(code)) => code,
            Some(Status::Died(signal)) => Exit::of_signal(signal).0,
            None => Exit::of_signal(Signal::KILL.as_raw()).0,
        };
        self.channel.send(FromGuard::Ended { status, why }.frame());
    }
}

impl Status {
    fn of(code: Option<i32>, signal: Option<i32>) -> Option<Self> {
        let exited = code.and_then(|code| u8::try_from(code).ok());
        exited.map(Self::Exited).or_else(|| signal.map(Self::Died))
    }
}

/// The command's standard input, and the first thing that is said. Nothing where the holder has ended.
fn receive_stdin(control: &UnixStream) -> io::Result<Option<(OwnedFd, [u8; FRAME])>> {
    let mut frame = [0; FRAME];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = recvmsg(
        control,
        &mut [IoSliceMut::new(&mut frame)],
        &mut ancillary,
        RecvFlags::empty(),
    )?;
    let mut descriptors = ancillary.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    let stdin = descriptors
        .next()
        .and_then(|mut descriptors| descriptors.next());
    match stdin {
        Some(stdin) if received.bytes == FRAME => {
            fcntl_setfd(&stdin, FdFlags::CLOEXEC)?;
            Ok(Some((stdin, frame)))
        }
        _ => Ok(None),
    }
}
