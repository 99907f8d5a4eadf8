//! The program as people run it, frozen at the worst moment.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use lockattr::Client;
use rustix::process::{Pid, Signal, kill_process};
use tests::postgres::Postgres;

struct Program {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Program {
    fn start(url: &str, library: &str) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_postgres-fence"))
            .args([url, library])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self { process, lines }
    }

    fn says(&mut self, beginning: &str) -> String {
        let line = self.lines.next().unwrap().unwrap();
        let rest = line.strip_prefix(beginning);
        rest.unwrap_or_else(|| panic!("`{line}` and not `{beginning}`"))
            .to_owned()
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.process), signal).unwrap();
    }

    fn go_on(&mut self) {
        writeln!(self.process.stdin.as_mut().unwrap()).unwrap();
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[tokio::test]
async fn a_holder_that_stood_still_for_longer_than_its_ttl_pays_nothing_in() {
    let server = Postgres::start();
    let url = server.url();
    server.rows("CREATE TABLE account (cents bigint); INSERT INTO account VALUES (0)");
    let locks = Client::builder()
        .connect_timeout(Duration::from_secs(5))
        .connect(&url);
    let locks = locks.await.unwrap();
    for library in ["tokio-postgres", "sqlx"] {
        server.rows("UPDATE account SET cents = 0");
        let mut on_time = Program::start(&url, library);
        on_time.says("working on account:1");
        on_time.go_on();
        assert_eq!(on_time.says("outcome "), "paid");
        assert_eq!(server.ask("SELECT cents FROM account"), "100", "{library}");

        let mut late = Program::start(&url, library);
        late.says("working on account:1");
        late.signal(Signal::STOP);
        let next = locks
            .lock("account:1")
            .wait(Duration::from_secs(20))
            .acquire()
            .await
            .unwrap();
        late.signal(Signal::CONT);
        late.go_on();
        let outcome = late.says("outcome ");
        let gone = "the lease of \"lock:account:1\" that has drawn token";
        assert!(outcome.contains(gone), "{library}: {outcome}");
        assert_eq!(
            server.ask("SELECT cents FROM account"),
            "100",
            "{library}: {outcome}"
        );
        next.release().await.unwrap();
    }
}
