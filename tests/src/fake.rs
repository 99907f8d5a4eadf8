//! A server that answers what it likes: for replies that no Redis would give.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

/// What to answer to a command, given its words; `None` closes the connection.
type Answer = dyn Fn(&[String]) -> Option<Vec<u8>> + Send + Sync;

/// A fake server; takes no more when dropped.
#[derive(Debug)]
pub struct Fake {
    address: SocketAddr,
    over: Arc<AtomicBool>,
    asked: Arc<AtomicUsize>,
}

impl Fake {
    /// Starts a server that answers each command as `answer` says.
    pub fn start(answer: impl Fn(&[String]) -> Option<Vec<u8>> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port for the fake");
        let address = listener.local_addr().expect("a bound port");
        let over = Arc::new(AtomicBool::new(false));
        let asked = Arc::new(AtomicUsize::new(0));
        let answer: Arc<Answer> = Arc::new(answer);
        let (closing, count) = (Arc::clone(&over), Arc::clone(&asked));
        thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if closing.load(Ordering::SeqCst) {
                    return;
                }
                let (answer, count) = (Arc::clone(&answer), Arc::clone(&count));
                thread::spawn(move || serve(&stream, &*answer, &count));
            }
        });
        Self {
            address,
            over,
            asked,
        }
    }

    /// The URL to give to the client.
    pub fn url(&self) -> String {
        format!("redis://{}/", self.address)
    }

    /// Where the fake listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many commands came in.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.over.store(true, Ordering::SeqCst);
        drop(TcpStream::connect(self.address));
    }
}

fn serve(stream: &TcpStream, answer: &Answer, asked: &AtomicUsize) {
    let mut input = BufReader::new(stream);
    let mut output = stream;
    while let Some(words) = command(&mut input) {
        asked.fetch_add(1, Ordering::SeqCst);
        let Some(bytes) = answer(&words) else { return };
        if output.write_all(&bytes).is_err() {
            return;
        }
    }
}

/// Reads one command: an array of bulk strings.
fn command(input: &mut impl BufRead) -> Option<Vec<String>> {
    let count = length(input, '*')?;
    let mut words = Vec::new();
    for _ in 0..count {
        let mut bytes = vec![0; length(input, '$')? + 2];
        input.read_exact(&mut bytes).ok()?;
        bytes.truncate(bytes.len() - 2);
        words.push(String::from_utf8_lossy(&bytes).into_owned());
    }
    Some(words)
}

fn length(input: &mut impl BufRead, kind: char) -> Option<usize> {
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    line.trim_end().strip_prefix(kind)?.parse().ok()
}
