//! The program as people run it, spoken to over HTTP.

use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::thread::{self, JoinHandle};

use rustix::process::{Pid, Signal, kill_process};
use tests::server::Server;
use tests::wait;

struct Program {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    address: String,
}

impl Program {
    fn start(server: &Server) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_with-axum"))
            .env("REDIS_URL", server.url())
            .env("ADDRESS", "127.0.0.1:0")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        let (address, _) = first["http://".len()..].split_once(',').unwrap();
        Self {
            address: address.to_owned(),
            process,
            lines,
        }
    }

    /// Posts in the background, and answers the whole response.
    fn post(&self, path: &str) -> JoinHandle<String> {
        self.post_with(path, "")
    }

    fn post_with(&self, path: &str, header: &str) -> JoinHandle<String> {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{header}\r\n");
        thread::spawn(move || {
            stream.write_all(request.as_bytes()).unwrap();
            let mut response = String::new();
            stream.read_to_string(&mut response).unwrap();
            response
        })
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn a_second_request_is_refused_or_waits_and_a_signal_ends_none() {
    let server = Server::start();
    let mut program = Program::start(&server);
    let is_held = || server.owner("lock:import:7").is_some();

    let first = program.post("/accounts/7/import");
    wait::block_until("the first request has the lock", is_held);
    let second = program.post("/accounts/7/import").join().unwrap();
    assert!(second.starts_with("HTTP/1.1 423 Locked\r\n"), "{second}");
    assert!(
        second.contains("content-type: application/problem+json\r\n"),
        "{second}"
    );
    let after = second
        .lines()
        .find_map(|line| line.strip_prefix("retry-after: "));
    assert!(
        (1..=30).contains(&after.unwrap().parse::<u32>().unwrap()),
        "{second}"
    );
    let other = program.post("/accounts/8/import").join().unwrap();
    assert!(other.ends_with("account 8 is imported\n"), "{other}");
    let first = first.join().unwrap();
    assert!(first.ends_with("account 7 is imported\n"), "{first}");

    let closes: Vec<_> = (0..3).map(|_| program.post("/accounts/7/close")).collect();
    for close in closes {
        let close = close.join().unwrap();
        assert!(close.ends_with("account 7 is closed\n"), "{close}");
    }

    let last = program.post("/accounts/7/import");
    wait::block_until("the last request has the lock", is_held);
    kill_process(Pid::from_child(&program.process), Signal::TERM).unwrap();
    let last = last.join().unwrap();
    assert!(last.ends_with("account 7 is imported\n"), "{last}");
    assert!(program.process.wait().unwrap().success());
    assert_eq!(server.keys(), [""; 0]);
    let summary = program.lines.next().unwrap().unwrap();
    assert_eq!(summary, "6 answered, 1 refused, 0 lost");
}

#[test]
fn a_repeated_request_is_answered_as_the_first_one() {
    let server = Server::start();
    // Two replicas.
    let programs = [Program::start(&server), Program::start(&server)];
    let charge = |program: &Program, key: &str| {
        let header = format!("Idempotency-Key: {key}\r\n");
        program.post_with("/accounts/7/charge", &header)
    };
    let at_once: Vec<_> = (0..6).map(|n| charge(&programs[n % 2], "a")).collect();
    let mut answers: Vec<_> = at_once.into_iter().map(body).collect();
    answers.push(body(charge(&programs[0], "a")));
    assert!(
        answers[0].starts_with("account 7 is charged: receipt "),
        "{answers:?}"
    );
    answers.dedup();
    assert_eq!(answers.len(), 1, "{answers:?}");
    let other = body(charge(&programs[1], "b"));
    assert_ne!(answers[0], other);
    let without = programs[0].post("/accounts/7/charge").join().unwrap();
    assert!(without.starts_with("HTTP/1.1 400 "), "{without}");
}

/// The body of a response that says 200.
fn body(response: JoinHandle<String>) -> String {
    let response = response.join().unwrap();
    assert!(response.starts_with("HTTP/1.1 200 OK\r\n"), "{response}");
    let (_, body) = response.split_once("\r\n\r\n").unwrap();
    body.to_owned()
}
