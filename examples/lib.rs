//! What the examples stand on: somewhere to keep locks, on any machine, and the signals that end a program.

mod server;

use std::io;

pub use server::Server;
use tokio::signal::unix::{SignalKind, signal};

/// Waits for SIGTERM, which Kubernetes, systemd and Docker send, or for Ctrl-C.
///
/// # Errors
/// Signals that cannot be listened to.
pub async fn stop_signal() -> io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    tokio::select! {
        _ = terminate.recv() => Ok(()),
        pressed = tokio::signal::ctrl_c() => pressed,
    }
}
