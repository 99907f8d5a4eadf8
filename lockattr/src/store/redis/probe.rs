//! Finds out what answers at an address where no Redis does, so that the error can name it.
//!
//! Asked only after a check has failed. The question does nothing on any server that is known here.

use std::io;
use std::sync::Arc;

use redis::ConnectionAddr;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::server::Server;

/// A request that Redis, HTTP, mail and TLS servers each answer in their own way, and act on in none.
const QUESTION: &[u8] = b"PING / HTTP/1.0\r\n\r\n";

/// Why no Redis answers there, if that can be told. Where something has `answered` in Redis's protocol,
/// only what is known to be another server is told.
pub(super) async fn at(server: &Arc<Server>, answered: bool) -> Option<String> {
    let target = server.fixed()?;
    let ConnectionAddr::Tcp(host, port) = target.address() else {
        return None;
    };
    let asking = {
        let (host, port) = (host.clone(), *port);
        async move { ask(&host, port).await }
    };
    let asked = server
        .background
        .spawn(timeout(server.connect_timeout, asking));
    let answer = asked.await.ok()?.ok()?.ok()?;
    let what = if target.is_tls() {
        match recognise(&answer) {
            Some(what) => what,
            None if is_redis(&answer) => {
                return Some(format!(
                    "the Redis at {} answers without TLS: write redis:// or valkey:// in place of \
                     rediss:// or valkeys://, or use its TLS port",
                    server.address()
                ));
            }
            // TLS itself has failed.
            None => return None,
        }
    } else {
        match recognise(&answer) {
            Some(what) => what,
            None if answered || is_redis(&answer) => return None,
            None => unknown(&answer),
        }
    };
    Some(format!("no Redis answers at {}: {what}", server.address()))
}

/// The first bytes that come.
async fn ask(host: &str, port: u16) -> io::Result<Vec<u8>> {
    let stream = TcpStream::connect((host, port)).await?;
    stream.writable().await?;
    // A server that speaks first does so whether or not this was written.
    let _ = stream.try_write(QUESTION);
    let mut buffer = vec![0; 64];
    loop {
        stream.readable().await?;
        match stream.try_read(&mut buffer) {
            Ok(length) => {
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            // The server has closed the connection.
            Err(_) => return Ok(Vec::new()),
        }
    }
}

fn is_redis(answer: &[u8]) -> bool {
    answer.starts_with(b"-") || answer.starts_with(b"+PONG")
}

fn recognise(answer: &[u8]) -> Option<&'static str> {
    let starts = |with: &[&[u8]]| with.iter().any(|with| answer.starts_with(with));
    Some(if starts(&[b"HTTP/", b"<"]) {
        "it is an HTTP server"
    } else if starts(&[b"SSH-"]) {
        "it is an SSH server"
    } else if starts(&[b"220", b"* OK", b"+OK "]) {
        "it is a mail or FTP server"
    } else if starts(&[b"ERROR\r\n"]) {
        "it looks like memcached"
    } else if answer.get(3..5) == Some(&[0, 10]) {
        "it is a MySQL server"
    } else {
        return None;
    })
}

fn unknown(answer: &[u8]) -> &'static str {
    match answer {
        // A TLS alert.
        [0x15, 3, ..] => "it is a TLS port: write rediss:// or valkeys://, with the feature `tls`",
        [] => {
            "it closed the connection without an answer, as a TLS port does: write rediss:// or \
             valkeys:// if it is one, with the feature `tls`"
        }
        _ => "something else does, in another protocol; is the port the right one?",
    }
}
