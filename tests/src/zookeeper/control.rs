//! What an operator does with the nodes of a ZooKeeper ensemble, over a connection of its own.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// A session of the test's own.
#[derive(Debug)]
pub struct Control {
    stream: TcpStream,
    xid: i32,
    /// Whether something has happened to what is watched.
    is_told: bool,
}

/// Why a request was refused: ZooKeeper's number for it.
pub type Refused = i32;

impl Control {
    /// A session on this server.
    pub fn of(server: SocketAddr) -> Self {
        let stream = TcpStream::connect(server).expect("the server listens");
        let bound = Some(Duration::from_secs(10));
        stream.set_read_timeout(bound).expect("a socket");
        let mut control = Self {
            stream,
            xid: 0,
            is_told: false,
        };
        let mut greeting = vec![0; 12];
        greeting.extend(30_000_i32.to_be_bytes());
        greeting.extend([0; 8]);
        greeting.extend(16_i32.to_be_bytes());
        greeting.extend([0; 17]);
        control.send(&greeting);
        control.receive();
        control
    }

    /// Logs in; what is made from then on is this user's alone.
    pub fn log_in(&mut self, user: &str, password: &str) {
        let mut message = Vec::new();
        for number in [-4_i32, 100, 0] {
            message.extend(number.to_be_bytes());
        }
        text(&mut message, "digest");
        text(&mut message, &format!("{user}:{password}"));
        self.send(&message);
        self.receive();
    }

    /// The names of a node's children, sorted; none where it is not there.
    pub fn children(&mut self, path: &str) -> Vec<String> {
        let mut body = Vec::new();
        text(&mut body, path);
        body.push(0);
        let answer = self.ask(8, &body).unwrap_or_else(|_| vec![0; 4]);
        let mut rest = &answer[4..];
        let mut names = Vec::new();
        while let Some((length, behind)) = rest.split_first_chunk::<4>() {
            let length = usize::try_from(i32::from_be_bytes(*length)).expect("a length");
            let (name, behind) = behind.split_at(length);
            names.push(String::from_utf8_lossy(name).into_owned());
            rest = behind;
        }
        names.sort();
        names
    }

    /// Whether a node is there.
    pub fn exists(&mut self, path: &str) -> bool {
        let mut body = Vec::new();
        text(&mut body, path);
        body.push(0);
        self.ask(3, &body).is_ok()
    }

    /// Waits until a node is deleted or changed, if it is there.
    pub fn wait_for_change(&mut self, path: &str) {
        let mut body = Vec::new();
        text(&mut body, path);
        body.push(1);
        self.is_told = false;
        if self.ask(4, &body).is_ok() {
            while !self.is_told {
                let message = self.receive();
                self.is_told = is_event(&message);
            }
        }
    }

    /// Deletes a node.
    ///
    /// # Errors
    /// What the server says.
    pub fn delete(&mut self, path: &str) -> Result<(), Refused> {
        let mut body = Vec::new();
        text(&mut body, path);
        body.extend((-1_i32).to_be_bytes());
        self.ask(2, &body).map(drop)
    }

    /// Makes a node: 0 persistent, 1 ephemeral, 2 with a number. Where `is_own`, whoever has logged in may
    /// use it and nobody else.
    ///
    /// # Errors
    /// What the server says.
    pub fn create(&mut self, path: &str, kind: i32, is_own: bool) -> Result<(), Refused> {
        let (scheme, id) = if is_own {
            ("auth", "")
        } else {
            ("world", "anyone")
        };
        let mut body = Vec::new();
        text(&mut body, path);
        text(&mut body, "");
        for number in [1_i32, 31] {
            body.extend(number.to_be_bytes());
        }
        text(&mut body, scheme);
        text(&mut body, id);
        body.extend(kind.to_be_bytes());
        self.ask(1, &body).map(drop)
    }

    fn ask(&mut self, kind: i32, body: &[u8]) -> Result<Vec<u8>, Refused> {
        self.xid += 1;
        let mut message = Vec::new();
        message.extend(self.xid.to_be_bytes());
        message.extend(kind.to_be_bytes());
        message.extend(body);
        self.send(&message);
        let mut answer = self.receive();
        while is_event(&answer) {
            self.is_told = true;
            answer = self.receive();
        }
        let code = answer[12..16].try_into().expect("four bytes");
        match i32::from_be_bytes(code) {
            0 => Ok(answer[16..].to_vec()),
            code => Err(code),
        }
    }

    fn send(&mut self, message: &[u8]) {
        let length = i32::try_from(message.len()).expect("a short message");
        let mut frame = length.to_be_bytes().to_vec();
        frame.extend(message);
        self.stream.write_all(&frame).expect("the server reads");
    }

    fn receive(&mut self) -> Vec<u8> {
        let mut length = [0; 4];
        self.stream.read_exact(&mut length).expect("an answer");
        let length = usize::try_from(i32::from_be_bytes(length)).expect("a length");
        let mut message = vec![0; length];
        self.stream.read_exact(&mut message).expect("an answer");
        message
    }
}

/// Whether a message tells of something that is watched, and is no answer.
fn is_event(message: &[u8]) -> bool {
    message.starts_with(&(-1_i32).to_be_bytes())
}

fn text(message: &mut Vec<u8>, text: &str) {
    let length = i32::try_from(text.len()).expect("a short text");
    message.extend(length.to_be_bytes());
    message.extend(text.bytes());
}
