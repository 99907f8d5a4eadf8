//! The requests that are sent, and what is in the answers: the part of ZooKeeper's protocol that locks need.

use std::time::Duration;

use super::jute::{Malformed, Reader, Writer};

/// The xids of messages that answer no request, or one that has no number.
pub(super) const WATCH_XID: i32 = -1;
pub(super) const AUTH_XID: i32 = -4;

mod op {
    pub(super) const CREATE: i32 = 1;
    pub(super) const DELETE: i32 = 2;
    pub(super) const GET: i32 = 4;
    pub(super) const SET: i32 = 5;
    pub(super) const SYNC: i32 = 9;
    pub(super) const LIST: i32 = 8;
    pub(super) const MULTI: i32 = 14;
    pub(super) const CREATE2: i32 = 15;
    pub(super) const CREATE_CONTAINER: i32 = 19;
    pub(super) const CREATE_TTL: i32 = 21;
    pub(super) const AUTH: i32 = 100;
    pub(super) const CLOSE: i32 = -11;
    pub(super) const ERROR: i32 = -1;
}

/// Why a server did not do what it was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code(pub(super) i32);

impl Code {
    pub(super) const UNIMPLEMENTED: Self = Self(-6);
    pub(super) const NO_NODE: Self = Self(-101);
    pub(super) const NO_AUTH: Self = Self(-102);
    pub(super) const BAD_VERSION: Self = Self(-103);
    pub(super) const NODE_EXISTS: Self = Self(-110);
    pub(super) const NOT_EMPTY: Self = Self(-111);
    pub(super) const SESSION_EXPIRED: Self = Self(-112);
    pub(super) const AUTH_FAILED: Self = Self(-115);
    pub(super) const SESSION_MOVED: Self = Self(-118);

    /// What the field calls it.
    pub(super) fn name(self) -> &'static str {
        match self.0 {
            -1 => "a system error",
            -5 => "a request that it cannot read",
            -6 => "an operation that it does not know",
            -8 => "bad arguments",
            -101 => "no such node",
            -102 => "no right",
            -103 => "another version",
            -108 => "an ephemeral node has no children",
            -110 => "the node exists",
            -111 => "the node is not empty",
            -114 => "an invalid ACL",
            -119 => "it is read-only",
            -125 => "a quota is used up",
            -127 => "it is overloaded",
            _ => "an unknown error",
        }
    }
}

/// What kind of node is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Persistent,
    /// Goes with the session.
    Ephemeral,
    /// The same, with the next number of its parent behind its name.
    EphemeralSequential,
}

impl NodeKind {
    fn flags(self) -> i32 {
        match self {
            Self::Persistent => 0,
            Self::Ephemeral => 1,
            Self::EphemeralSequential => 3,
        }
    }
}

/// A container: goes some time after its last child.
const CONTAINER_FLAGS: i32 = 4;

/// Goes some time after its ttl.
const TTL_FLAGS: i32 = 5;

/// Who may use the nodes that are made: everybody, or whoever has logged in as their maker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Acl(pub(super) bool);

impl Acl {
    fn write(self, writer: Writer) -> Writer {
        const ALL: i32 = 31;
        let Self(is_logged_in) = self;
        let (scheme, id) = if is_logged_in {
            ("auth", "")
        } else {
            ("world", "anyone")
        };
        writer.int(1).int(ALL).text(scheme).text(id)
    }
}

/// A request without its number.
#[derive(Clone, Debug)]
pub(super) struct Request {
    op: i32,
    body: Vec<u8>,
    /// What it does to which node, as errors say it.
    pub(super) what: &'static str,
}

impl Request {
    fn new(op: i32, what: &'static str, body: Writer) -> Self {
        let body = body.done();
        Self { op, body, what }
    }

    pub(super) fn create(path: &str, data: &str, kind: NodeKind, acl: Acl) -> Self {
        let body = Writer::default().text(path).text(data);
        let body = acl.write(body).int(kind.flags());
        Self::new(op::CREATE2, "create nodes", body)
    }

    pub(super) fn create_container(path: &str, acl: Acl) -> Self {
        let body = Writer::default().text(path).text("");
        let body = acl.write(body).int(CONTAINER_FLAGS);
        Self::new(op::CREATE_CONTAINER, "create nodes", body)
    }

    /// Servers refuse it that were not told to know such nodes.
    pub(super) fn create_for(path: &str, data: &str, ttl: Duration, acl: Acl) -> Self {
        let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let body = Writer::default().text(path).text(data);
        let body = acl.write(body).int(TTL_FLAGS).long(ttl);
        Self::new(op::CREATE_TTL, "create nodes", body)
    }

    /// Whatever its version.
    pub(super) fn delete(path: &str) -> Self {
        let body = Writer::default().text(path).int(-1);
        Self::new(op::DELETE, "delete nodes", body)
    }

    /// Where it is watched, the next change of it is told, unless it is not there.
    pub(super) fn get(path: &str, watch: bool) -> Self {
        let body = Writer::default().text(path).flag(watch);
        Self::new(op::GET, "read nodes", body)
    }

    pub(super) fn set(path: &str, data: &str, version: i32) -> Self {
        let body = Writer::default().text(path).text(data).int(version);
        Self::new(op::SET, "write nodes", body)
    }

    /// The names of a node's children. Where they are watched, the next that comes or goes is told.
    pub(super) fn list(path: &str, watch: bool) -> Self {
        let body = Writer::default().text(path).flag(watch);
        Self::new(op::LIST, "read nodes", body)
    }

    /// Is answered by the leader, when what it has decided before has come to the server that is asked.
    pub(super) fn sync() -> Self {
        Self::new(op::SYNC, "sync", Writer::default().text("/"))
    }

    pub(super) fn close() -> Self {
        Self::new(op::CLOSE, "close a session", Writer::default())
    }

    /// All of these or none. What is created is answered without its numbers by some servers, so that
    /// nothing but the path is asked for.
    pub(super) fn multi(requests: &[Self]) -> Self {
        let mut body = Writer::default();
        for request in requests {
            let op = match request.op {
                op::CREATE2 => op::CREATE,
                other => other,
            };
            body = body.int(op).flag(false).int(-1).raw(&request.body);
        }
        let what = requests.first().map_or("do nothing", |first| first.what);
        Self::new(op::MULTI, what, body.int(op::ERROR).flag(true).int(-1))
    }

    /// Whether its answer proves that the session lives at the leader: what is read is answered by the
    /// server that is asked, which may be cut off from it.
    pub(super) fn proves_life(&self) -> bool {
        !matches!(self.op, op::GET | op::LIST | op::CLOSE)
    }

    pub(super) fn only_reads(&self) -> bool {
        matches!(self.op, op::GET | op::LIST | op::SYNC)
    }

    /// So many bytes, without its number.
    pub(super) fn len(&self) -> usize {
        self.body.len()
    }

    pub(super) fn frame(&self, xid: i32) -> Vec<u8> {
        Writer::default()
            .int(xid)
            .int(self.op)
            .raw(&self.body)
            .frame()
    }
}

/// The login, which has no number.
pub(super) fn login(user: &str, password: &str) -> Vec<u8> {
    let auth = format!("{user}:{password}");
    Writer::default()
        .int(AUTH_XID)
        .int(op::AUTH)
        .int(0)
        .text("digest")
        .text(&auth)
        .frame()
}

/// The session that a connection is for: that one, or a new one where its id is 0.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SessionKey {
    pub(super) id: i64,
    pub(super) password: [u8; 16],
}

/// The first message of a connection.
pub(super) fn greeting(session: SessionKey, timeout_ms: i32, last_zxid: i64) -> Vec<u8> {
    Writer::default()
        .int(0)
        .long(last_zxid)
        .int(timeout_ms)
        .long(session.id)
        .bytes(&session.password)
        .flag(false)
        .frame()
}

/// The first answer: the session, and its timeout in milliseconds; `None` where that session is over.
pub(super) fn greeted(message: &[u8]) -> Result<Option<(SessionKey, u32)>, Malformed> {
    let mut reader = Reader::new(message);
    let _version = reader.int()?;
    let timeout = reader.int()?;
    let id = reader.long()?;
    let password = reader.bytes()?;
    if timeout <= 0 || id == 0 {
        return Ok(None);
    }
    let password = password.try_into().map_err(|_| Malformed)?;
    let timeout = timeout.unsigned_abs();
    Ok(Some((SessionKey { id, password }, timeout)))
}

/// The head of each message from a server.
pub(super) struct Head {
    pub(super) xid: i32,
    pub(super) zxid: i64,
    pub(super) code: Code,
}

pub(super) fn head(message: &[u8]) -> Result<(Head, &[u8]), Malformed> {
    let mut reader = Reader::new(message);
    let head = Head {
        xid: reader.int()?,
        zxid: reader.long()?,
        code: Code(reader.int()?),
    };
    Ok((head, reader.rest()))
}

/// What has happened to what is watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happened {
    Deleted,
    Changed,
    /// To the connection, and not to a node.
    Other,
}

pub(super) fn watched(body: &[u8]) -> Result<(Happened, String), Malformed> {
    let mut reader = Reader::new(body);
    let happened = match reader.int()? {
        2 => Happened::Deleted,
        3 | 4 => Happened::Changed,
        _ => Happened::Other,
    };
    let _state = reader.int()?;
    Ok((happened, reader.text()?))
}

/// What a server knows of a node, as far as it is of use here.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stat {
    /// The transaction that has changed its data last.
    pub(super) mzxid: i64,
    /// When it was made, and changed last, by the leader's clock, in milliseconds.
    pub(super) ctime: i64,
    pub(super) mtime: i64,
    pub(super) version: i32,
    /// The session that it goes with.
    pub(super) session: i64,
}

fn stat(reader: &mut Reader<'_>) -> Result<Stat, Malformed> {
    let _czxid = reader.long()?;
    let mzxid = reader.long()?;
    let (ctime, mtime) = (reader.long()?, reader.long()?);
    let version = reader.int()?;
    let (_cversion, _aversion) = (reader.int()?, reader.int()?);
    let session = reader.long()?;
    let (_length, _children, _pzxid) = (reader.int()?, reader.int()?, reader.long()?);
    Ok(Stat {
        mzxid,
        ctime,
        mtime,
        version,
        session,
    })
}

pub(super) fn created(body: &[u8]) -> Result<(String, Stat), Malformed> {
    let mut reader = Reader::new(body);
    Ok((reader.text()?, stat(&mut reader)?))
}

pub(super) fn was_set(body: &[u8]) -> Result<Stat, Malformed> {
    stat(&mut Reader::new(body))
}

pub(super) fn data(body: &[u8]) -> Result<(String, Stat), Malformed> {
    let mut reader = Reader::new(body);
    let data = String::from_utf8_lossy(reader.bytes()?).into_owned();
    Ok((data, stat(&mut reader)?))
}

pub(super) fn children(body: &[u8]) -> Result<Vec<String>, Malformed> {
    Reader::new(body).texts()
}

/// The paths of what a multi has created, or why it has done nothing: the first request that was refused,
/// and its code.
pub(super) fn done_together(body: &[u8]) -> Result<Result<Vec<String>, (usize, Code)>, Malformed> {
    let mut reader = Reader::new(body);
    let mut paths = Vec::new();
    let mut refused = None;
    for index in 0.. {
        let (op, is_end, _code) = (reader.int()?, reader.flag()?, reader.int()?);
        if is_end {
            break;
        }
        match op {
            op::CREATE => paths.push(reader.text()?),
            op::CREATE2 | op::CREATE_CONTAINER | op::CREATE_TTL => {
                paths.push(reader.text()?);
                stat(&mut reader)?;
            }
            op::SET => {
                stat(&mut reader)?;
            }
            op::ERROR => {
                let code = reader.int()?;
                // Those before it are answered as 0, and those after it as an inconsistency.
                if code != 0 && refused.is_none() {
                    refused = Some((index, Code(code)));
                }
            }
            _ => {}
        }
    }
    Ok(refused.map_or(Ok(paths), Err))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_its_number_its_kind_and_its_body() {
        let frame = Request::get("/a", true).frame(7);
        let bytes = b"\0\0\0\x0f\0\0\0\x07\0\0\0\x04\0\0\0\x02/a\x01";
        assert_eq!(frame, bytes);
    }

    #[test]
    fn of_a_multi_the_first_refusal_counts() {
        let mut body = Writer::default();
        for code in [0, -110, -2] {
            body = body.int(op::ERROR).flag(false).int(code).int(code);
        }
        let body = body.int(-1).flag(true).int(-1).done();
        assert_eq!(done_together(&body), Ok(Err((1, Code::NODE_EXISTS))));
    }

    #[test]
    fn a_session_that_is_over_has_no_timeout() {
        let message = Writer::default()
            .int(0)
            .int(0)
            .long(0)
            .bytes(&[0; 16])
            .done();
        assert!(greeted(&message).unwrap().is_none());
    }
}
