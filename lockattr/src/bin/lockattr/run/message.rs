//! What the two processes of `lockattr run` say to each other: frames of one length, over a socket pair.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream as Blocking;
use std::time::Duration;

use tokio::io::Interest;
use tokio::net::UnixStream;

/// A kind, and two numbers.
pub(super) const FRAME: usize = 17;

/// One end of the pair.
pub(super) struct Channel {
    reader: UnixStream,
    /// The same end, asked without tokio in between.
    direct: Blocking,
    frame: [u8; FRAME],
    filled: usize,
}

impl Channel {
    pub(super) fn new(end: Blocking) -> io::Result<Self> {
        end.set_nonblocking(true)?;
        Ok(Self {
            direct: end.try_clone()?,
            reader: UnixStream::from_std(end)?,
            frame: [0; FRAME],
            filled: 0,
        })
    }

    /// The next frame, or `None` once the other process has gone. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<[u8; FRAME]> {
        loop {
            self.reader.readable().await.ok()?;
            let Self {
                reader,
                direct,
                frame,
                filled,
            } = self;
            let read = || fill(direct, frame, filled);
            match reader.try_io(Interest::READABLE, read) {
                Ok(frame) => return Some(frame),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return None,
            }
        }
    }

    /// The next frame where it has come already, and the error `WouldBlock` where it has not. The system is
    /// asked: tokio does not know yet what has come while this process stood still.
    pub(super) fn received(&mut self) -> io::Result<[u8; FRAME]> {
        fill(&self.direct, &mut self.frame, &mut self.filled)
    }

    /// Never waits: what the other process does not read for so long that there is no room is lost. It is
    /// frozen then, and what it does not hear makes it end the command.
    pub(super) fn send(&self, frame: [u8; FRAME]) {
        let _ = (&self.direct).write_all(&frame);
    }
}

/// Reads on until a frame is whole.
fn fill(
    mut end: &Blocking,
    frame: &mut [u8; FRAME],
    filled: &mut usize,
) -> io::Result<[u8; FRAME]> {
    while *filled < FRAME {
        match end.read(&mut frame[*filled..])? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => *filled += count,
        }
    }
    *filled = 0;
    Ok(*frame)
}

/// From the holder of the lease.
#[derive(Clone, Copy, Debug)]
pub(super) enum ToGuard {
    /// The lease may be relied on: TERM and KILL are due at these moments of the monotonic clock.
    Until {
        term_at: Duration,
        kill_at: Duration,
    },
    /// TERM is due now, and KILL after that.
    End { grace: Duration },
    /// A signal has come.
    Signal(i32),
}

/// From the guard.
#[derive(Clone, Copy, Debug)]
pub(super) enum FromGuard {
    /// The command was stopped at its terminal, which is given back: whoever has started all this is to
    /// see it stopped.
    Stopped,
    /// The command has ended, as a shell would say it; all else has, where it was ended.
    Ended { status: u8, why: Why },
}

/// How the command came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Why {
    ByItself,
    /// By Ctrl-C at its terminal.
    Interrupted,
    /// The guard has ended it, since the lease was not renewed.
    AtDeadline,
}

/// The first answer of the guard: the command has begun, or the error of the system.
#[derive(Clone, Copy, Debug)]
pub(super) struct Started(pub(super) Result<(), i32>);

impl ToGuard {
    pub(super) fn frame(self) -> [u8; FRAME] {
        match self {
            Self::Until { term_at, kill_at } => frame(b'u', nanos(term_at), nanos(kill_at)),
            Self::End { grace } => frame(b'e', nanos(grace), 0),
            Self::Signal(signal) => frame(b's', signal.unsigned_abs().into(), 0),
        }
    }

    pub(super) fn read(bytes: [u8; FRAME]) -> Option<Self> {
        let (kind, first, second) = parts(bytes);
        Some(match kind {
            b'u' => Self::Until {
                term_at: Duration::from_nanos(first),
                kill_at: Duration::from_nanos(second),
            },
            b'e' => Self::End {
                grace: Duration::from_nanos(first),
            },
            b's' => Self::Signal(i32::try_from(first).ok()?),
            _ => return None,
        })
    }
}

impl FromGuard {
    pub(super) fn frame(self) -> [u8; FRAME] {
        match self {
            Self::Stopped => frame(b't', 0, 0),
            Self::Ended { status, why } => {
                let why = match why {
                    Why::ByItself => 0,
                    Why::Interrupted => 1,
                    Why::AtDeadline => 2,
                };
                frame(b'x', status.into(), why)
            }
        }
    }

    pub(super) fn read(bytes: [u8; FRAME]) -> Option<Self> {
        let (kind, first, second) = parts(bytes);
        Some(match kind {
            b't' => Self::Stopped,
            b'x' => Self::Ended {
                status: u8::try_from(first).ok()?,
                why: match second {
                    0 => Why::ByItself,
                    1 => Why::Interrupted,
                    2 => Why::AtDeadline,
                    _ => return None,
                },
            },
            _ => return None,
        })
    }
}

impl Started {
    pub(super) fn frame(self) -> [u8; FRAME] {
        match self.0 {
            Ok(()) => frame(b'b', 0, 0),
            Err(errno) => frame(b'n', errno.unsigned_abs().into(), 0),
        }
    }

    pub(super) fn read(bytes: [u8; FRAME]) -> Option<Self> {
        let (kind, first, _) = parts(bytes);
        Some(Self(match kind {
            b'b' => Ok(()),
            b'n' => Err(i32::try_from(first).ok()?),
            _ => return None,
        }))
    }
}

/// Five hundred years of them fit.
fn nanos(length: Duration) -> u64 {
    u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)
}

fn frame(kind: u8, first: u64, second: u64) -> [u8; FRAME] {
    let mut bytes = [kind; FRAME];
    bytes[1..9].copy_from_slice(&first.to_le_bytes());
    bytes[9..].copy_from_slice(&second.to_le_bytes());
    bytes
}

fn parts(bytes: [u8; FRAME]) -> (u8, u64, u64) {
    let number = |at: usize| {
        let mut eight = [0; 8];
        eight.copy_from_slice(&bytes[at..at + 8]);
        u64::from_le_bytes(eight)
    };
    (bytes[0], number(1), number(9))
}
