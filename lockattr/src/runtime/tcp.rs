//! Connections over TCP.

use std::io;
use std::panic::resume_unwind;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;

/// Connects to whichever of a host's addresses answers first. The name is looked up each time.
pub(crate) async fn connect(host: &str, port: u16) -> io::Result<TcpStream> {
    let mut tries = JoinSet::new();
    for address in lookup_host((host, port)).await? {
        tries.spawn(TcpStream::connect(address));
    }
    let mut outcome = Err(io::Error::other("the name has no address"));
    while let Some(tried) = tries.join_next().await {
        outcome = tried.unwrap_or_else(|ended| match ended.try_into_panic() {
            // Tokio's, where the runtime's I/O is not enabled.
            Ok(panic) => resume_unwind(panic),
            Err(ended) => Err(ended.into()),
        });
        if outcome.is_ok() {
            break;
        }
    }
    let stream = outcome?;
    // Nagle's algorithm would hold small requests back until earlier ones are acknowledged.
    stream.set_nodelay(true)?;
    Ok(stream)
}
