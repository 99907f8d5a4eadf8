//! The guard, as the holder of the lease sees it.

use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use lockattr::Lease;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use rustix::process::getpgrp;

use super::bounds::Bounds;
use super::message::{Channel, FromGuard, Started, ToGuard};
use super::{family, guard, terminal};
use crate::cli::RunArgs;
use crate::exit::{Exit, Failure};

pub(super) struct Warden {
    guard: Child,
    channel: Channel,
}

impl Warden {
    /// Starts the guard, and has it start the command.
    pub(super) async fn start(args: &RunArgs, lease: &Lease) -> Result<Self, Failure> {
        let token = if args.token {
            Some(lease.token().await?)
        } else {
            None
        };
        family::adopt_orphans();
        let (ours, theirs) = UnixStream::pair()?;
        let mut command = Command::new(this_program()?);
        command
            .arg0("lockattr")
            .arg(guard::NAME)
            .arg(args.grace.as_millis().to_string())
            .arg(getpgrp().to_string())
            .args(&args.command)
            .env("LOCKATTR_KEY", lease.key())
            // What ends the group of this process, as `kill -9 %1` does, does not end the guard.
            .process_group(0)
            .stdin(std::os::fd::OwnedFd::from(theirs));
        match token {
            Some(token) => command.env("LOCKATTR_TOKEN", token.to_string()),
            None => command.env_remove("LOCKATTR_TOKEN"),
        };
        let guard = terminal::starting(|| command.spawn())?;
        // It has the other end: what is left open here would hide the guard's end.
        drop(command);
        send_stdin(&ours, Bounds::new(args).until(lease))?;
        let mut channel = Channel::new(ours)?;
        let started = channel.next().await.and_then(Started::read);
        let mut warden = Self { guard, channel };
        match started {
            Some(Started(Ok(()))) => Ok(warden),
            Some(Started(Err(errno))) => {
                let _ = warden.guard.wait();
                Err(not_started(args, errno))
            }
            None => {
                warden.end_all();
                Err(Failure::new(
                    Exit::INTERNAL,
                    "the process that guards the command was killed before that began",
                ))
            }
        }
    }

    /// What the guard says next, or `None` once it has gone without a word. Cancel-safe.
    pub(super) async fn says(&mut self) -> Option<FromGuard> {
        let said = self.channel.next().await.and_then(FromGuard::read);
        if let Some(FromGuard::Ended { .. }) = said {
            // It says nothing more, and ends.
            let _ = self.guard.wait();
        }
        said
    }

    pub(super) fn tell(&self, message: ToGuard) {
        self.channel.send(message.frame());
    }

    /// Ends the guard and all that the command has started: for a guard that is frozen, or has gone.
    pub(super) fn end_all(&mut self) {
        let _ = self.guard.kill();
        let _ = self.guard.wait();
        family::kill_all(None);
    }
}

/// The standard input of this process, which is to be the command's; that of the guard is the channel.
fn send_stdin(channel: &UnixStream, first: ToGuard) -> io::Result<()> {
    let stdin = io::stdin();
    let descriptors = [stdin.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    ancillary.push(SendAncillaryMessage::ScmRights(&descriptors));
    let frame = first.frame();
    sendmsg(
        channel,
        &[IoSlice::new(&frame)],
        &mut ancillary,
        SendFlags::empty(),
    )?;
    Ok(())
}

/// The program that runs, also where a newer one was installed in its place.
fn this_program() -> io::Result<PathBuf> {
    let this = Path::new("/proc/self/exe");
    if this.exists() {
        return Ok(this.to_owned());
    }
    env::current_exe()
}

fn not_started(args: &RunArgs, errno: i32) -> Failure {
    let program = args.command[0].to_string_lossy();
    let error = io::Error::from_raw_os_error(errno);
    let is_missing = errno == Errno::NOENT.raw_os_error();
    let exit = if is_missing {
        Exit::NOT_FOUND
    } else {
        Exit::NOT_EXECUTABLE
    };
    Failure::new(exit, format!("`{program}` could not be started: {error}"))
}
