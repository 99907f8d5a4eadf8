//! Asking etcd by its JSON gateway: another way than the client's, so that a test believes neither alone.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// How long an answer may take: a frozen member is left for another.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a member did not do, in its own words.
#[derive(Debug)]
pub struct Refused(pub String);

/// One key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// Its name.
    pub name: String,
    /// What stands under it.
    pub value: String,
    /// The revision at which it was created.
    pub created: u64,
    /// Its lease; zero where it has none.
    pub lease: u64,
}

pub(super) fn encoded(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn text(value: &Value, field: &str) -> String {
    let direct = &value[field];
    let found = if direct.is_null() {
        &value["header"][field]
    } else {
        direct
    };
    found.as_str().unwrap_or_default().to_owned()
}

pub(super) fn number(value: &Value, field: &str) -> u64 {
    // The gateway writes numbers of 64 bits as text.
    value[field]
        .as_str()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

pub(super) fn keys(answer: &Value) -> Vec<Key> {
    let decoded = |value: &Value| {
        let bytes = STANDARD
            .decode(value.as_str().unwrap_or_default())
            .unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let kvs = answer["kvs"].as_array().into_iter().flatten();
    kvs.map(|kv| Key {
        name: decoded(&kv["key"]),
        value: decoded(&kv["value"]),
        created: number(kv, "create_revision"),
        lease: number(kv, "lease"),
    })
    .collect()
}

pub(super) fn post(
    address: SocketAddr,
    path: &str,
    body: &str,
    token: Option<&str>,
) -> Result<Value, Refused> {
    let token = token.map(|token| format!("Authorization: {token}\r\n"));
    let head = format!(
        "POST {path} HTTP/1.0\r\n{}Content-Length: {}\r\n\r\n",
        token.unwrap_or_default(),
        body.len()
    );
    let answer = exchange(address, &format!("{head}{body}"));
    let answer = answer.map_err(|problem| Refused(problem.to_string()))?;
    let value: Value = serde_json::from_str(&answer).map_err(|_| Refused(answer.clone()))?;
    match value["error"].as_str() {
        Some(error) => Err(Refused(error.to_owned())),
        None => Ok(value),
    }
}

pub(super) fn get(address: SocketAddr, path: &str) -> io::Result<String> {
    exchange(address, &format!("GET {path} HTTP/1.0\r\n\r\n"))
}

/// The body of an answer.
fn exchange(address: SocketAddr, request: &str) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let body = answer
        .split_once("\r\n\r\n")
        .map(|(_, body)| body.to_owned());
    body.ok_or_else(|| io::Error::other("no answer"))
}
