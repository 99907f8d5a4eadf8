//! Connections over TCP.

use std::io;
use std::panic;

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
        outcome = match tried {
            Ok(outcome) => outcome,
            // Tokio's, where the runtime has no I/O: whoever connects is to know.
            Err(ended) if ended.is_panic() => panic::resume_unwind(ended.into_panic()),
            Err(ended) => Err(ended.into()),
        };
        if outcome.is_ok() {
            break;
        }
    }
    let stream = outcome?;
    // Nagle's algorithm would hold small requests back until earlier ones are acknowledged.
    stream.set_nodelay(true)?;
    Ok(stream)
}
