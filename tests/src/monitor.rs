//! The commands that a server sees, as they come.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);

/// One command as `MONITOR` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Whether a script called it, not a client.
    pub by_script: bool,
    /// The command and its arguments.
    pub words: Vec<String>,
}

/// A connection on which the server reports every command.
#[derive(Debug)]
pub struct Monitor {
    input: BufReader<TcpStream>,
    /// For a word of our own now and then.
    other: BufReader<TcpStream>,
}

impl Monitor {
    pub(crate) fn open(address: SocketAddr, password: Option<&str>) -> Self {
        let mut input = connect(address, password);
        say(&mut input, "MONITOR");
        Self {
            input,
            other: connect(address, password),
        }
    }

    /// Everything seen since the last call. Nothing that ran before this one is missed.
    pub fn seen(&mut self) -> Vec<Seen> {
        static MARKS: AtomicU64 = AtomicU64::new(0);
        // A command of our own marks the end of what there is.
        let mark = format!("mark-{}-", MARKS.fetch_add(1, Ordering::Relaxed));
        writeln!(self.other.get_ref(), "ECHO {mark}\r").expect("an open socket");
        let mut seen = Vec::new();
        loop {
            let command = parse(&read(&mut self.input));
            if command.words.last() == Some(&mark) {
                return seen;
            }
            seen.push(command);
        }
    }
}

impl Seen {
    /// Whether it is a step of the lock protocol that a client asked for.
    pub fn is_step(&self) -> bool {
        !self.by_script && ["SET", "EVALSHA", "EVAL"].contains(&self.words[0].as_str())
    }

    /// Whether a script granted a lock to a waiter.
    pub fn is_grant(&self) -> bool {
        self.is_wakeup() && !self.names_front()
    }

    /// Whether a script told a waiter that it is at the front of the queue.
    pub fn names_front(&self) -> bool {
        self.is_wakeup() && self.words[2].contains(" first ")
    }

    fn is_wakeup(&self) -> bool {
        self.by_script && self.words[0].eq_ignore_ascii_case("PUBLISH")
    }
}

fn connect(address: SocketAddr, password: Option<&str>) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("the server takes a connection");
    stream
        .set_read_timeout(Some(PATIENCE))
        .expect("a timeout above zero");
    let mut input = BufReader::new(stream);
    if let Some(password) = password {
        say(&mut input, &format!("AUTH {password}"));
    }
    input
}

fn say(input: &mut BufReader<TcpStream>, command: &str) {
    writeln!(input.get_ref(), "{command}\r").expect("an open socket");
    assert_eq!(read(input), "+OK\r\n", "{command}");
}

fn read(input: &mut BufReader<TcpStream>) -> String {
    let mut line = String::new();
    let length = input.read_line(&mut line).expect("the server goes on");
    assert!(length > 0, "the server closed the connection");
    line
}

/// `+1700000000.000000 [0 127.0.0.1:1234] "SET" "a b" "c"`, or `[0 lua]` from a script.
fn parse(line: &str) -> Seen {
    let by_script = line.contains(" lua] ");
    let mut words = Vec::new();
    let mut letters = line.split_once("] ").map_or("", |(_, rest)| rest).chars();
    while letters.by_ref().any(|letter| letter == '"') {
        let mut word = String::new();
        while let Some(letter) = letters.next() {
            match letter {
                '"' => break,
                '\\' => word.extend(letters.next()),
                other => word.push(other),
            }
        }
        words.push(word);
    }
    Seen { by_script, words }
}
