//! What ends a subcommand that goes on until it is ended, and has to leave the terminal as it was.

use std::io;

use crate::exit::Exit;

/// Signals that are waited for instead of ending this process.
pub(crate) struct Interrupts {
    #[cfg(unix)]
    signals: Vec<(tokio::signal::unix::SignalKind, tokio::signal::unix::Signal)>,
}

#[cfg(unix)]
impl Interrupts {
    /// None is missed from now on: Ctrl-C, and where the terminal has to be left, what else would end this
    /// process.
    pub(crate) fn listen(has_screen: bool) -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        let mut kinds = vec![SignalKind::interrupt()];
        if has_screen {
            kinds.extend([
                SignalKind::terminate(),
                SignalKind::hangup(),
                SignalKind::quit(),
            ]);
        }
        let listen = |kind| Ok((kind, signal(kind)?));
        let signals = kinds.into_iter().map(listen).collect::<io::Result<_>>()?;
        Ok(Self { signals })
    }

    /// Waits for the next one, and says what the process ends with; nothing for Ctrl-C, by which people end
    /// what they have seen enough of. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Exit> {
        use std::task::Poll;
        use tokio::signal::unix::SignalKind;

        let kind = std::future::poll_fn(|context| {
            for (kind, signal) in &mut self.signals {
                if signal.poll_recv(context).is_ready() {
                    return Poll::Ready(*kind);
                }
            }
            Poll::Pending
        })
        .await;
        (kind != SignalKind::interrupt()).then(|| Exit::of_signal(kind.as_raw_value()))
    }
}

#[cfg(not(unix))]
impl Interrupts {
    #[expect(clippy::unnecessary_wraps, reason = "as on Unix")]
    pub(crate) fn listen(_: bool) -> io::Result<Self> {
        Ok(Self {})
    }

    pub(crate) async fn next(&mut self) -> Option<Exit> {
        let _ = tokio::signal::ctrl_c().await;
        None
    }
}
