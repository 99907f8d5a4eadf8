//! The signals that go to the command instead of ending this process.

use std::io;
use std::task::Poll;

use rustix::process::{Signal, getpid, kill_process};
use tokio::signal::unix::{self, SignalKind};

use super::{family, terminal};

/// What ends a process that does not see to it.
const ENDING: [Signal; 4] = [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT];

const OTHERS: [Signal; 5] = [
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::CONT,
    Signal::TSTP,
];

pub(super) struct Signals(Vec<(Signal, unix::Signal)>);

impl Signals {
    /// Takes them from now on. Those that are ignored, as by `nohup`, stay so, for the command as well.
    pub(super) fn listen() -> io::Result<Self> {
        let ignored = family::ignored_signals();
        let heard = ENDING.into_iter().chain(OTHERS);
        let heard = heard.filter(|signal| ignored & (1 << (signal.as_raw() - 1)) == 0);
        let listen = |signal: Signal| {
            let kind = SignalKind::from_raw(signal.as_raw());
            Ok((signal, unix::signal(kind)?))
        };
        heard.map(listen).collect::<io::Result<_>>().map(Self)
    }

    /// The number of the next signal.
    pub(super) async fn next(&mut self) -> i32 {
        std::future::poll_fn(|context| {
            for (signal, stream) in &mut self.0 {
                if stream.poll_recv(context).is_ready() {
                    return Poll::Ready(signal.as_raw());
                }
            }
            Poll::Pending
        })
        .await
    }

    /// The number of the next signal that would have ended this process. Ctrl-Z works as ever.
    pub(super) async fn that_ends(&mut self) -> i32 {
        loop {
            let signal = self.next().await;
            if ENDING.iter().any(|ending| ending.as_raw() == signal) {
                return signal;
            }
            if signal == Signal::TSTP.as_raw() && !terminal::nobody_would_continue(getpid()) {
                stop();
            }
        }
    }
}

/// Ends this process as Ctrl-C ends one that does not see to it.
pub(super) fn die_of_interrupt() {
    // It cannot fail: the signal is one that ends a process.
    let _ = signal_hook::low_level::emulate_default_handler(Signal::INT.as_raw());
}

/// Stops this process as Ctrl-Z would, until it is continued.
pub(super) fn stop() {
    // It cannot fail: the signal exists, and so does the process.
    let _ = kill_process(getpid(), Signal::STOP);
}
