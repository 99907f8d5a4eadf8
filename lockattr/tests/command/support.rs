//! Running the command, and looking at the processes that it starts.

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tests::server::Server;
use tests::wait;

/// The command, which finds the server in its environment.
pub(crate) fn lockattr(server: &Server) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lockattr"));
    command
        .env("LOCKATTR_URL", server.url())
        .env_remove("LOCKATTR_PREFIX")
        .env_remove("LOCKATTR_DISABLED")
        .env_remove("NO_COLOR")
        .current_dir(server.directory())
        .stdin(Stdio::null());
    command
}

/// `lockattr run`, up to the command: options, and behind them a command.
pub(crate) fn run(server: &Server, options: &[&str], command: &[&str]) -> Command {
    let mut run = lockattr(server);
    run.arg("run").args(options).arg("--").args(command);
    run
}

/// The same with a script for a shell, which works in the server's directory.
pub(crate) fn run_script(server: &Server, options: &[&str], script: &str) -> Command {
    run(server, options, &["sh", "-c", script])
}

/// Runs to the end; the code, and what was told.
pub(crate) fn ends(command: &mut Command) -> (i32, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("the program is there");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    let code = status.code().expect("it ends by itself");
    (code, text(stdout), text(stderr))
}

/// The code alone.
pub(crate) fn code(command: &mut Command) -> i32 {
    ends(command).0
}

/// A command that runs, and is killed when dropped; what it has started is ended by that.
pub(crate) struct Running(Child);

impl Running {
    pub(crate) fn start(command: &mut Command) -> Self {
        let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Self(command.spawn().expect("the program is there"))
    }

    pub(crate) fn id(&self) -> Pid {
        Pid::from_child(&self.0)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.id(), signal).expect("it runs");
    }

    pub(crate) fn has_ended(&mut self) -> bool {
        self.0.try_wait().expect("our own child").is_some()
    }

    /// Waits for its end.
    pub(crate) fn status(&mut self) -> ExitStatus {
        wait::block_until("the command ends", || self.has_ended());
        self.0.wait().expect("it has ended")
    }

    pub(crate) fn code(&mut self) -> i32 {
        let code = self.status().code();
        code.unwrap_or_else(|| panic!("it was killed: {}", self.told()))
    }

    /// What it has told on stderr until its end.
    pub(crate) fn told(&mut self) -> String {
        let mut told = String::new();
        if let Some(stderr) = &mut self.0.stderr {
            drop(stderr.read_to_string(&mut told));
        }
        told
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// A file that a script writes in the server's directory.
pub(crate) fn file(server: &Server, name: &str) -> PathBuf {
    server.directory().join(name)
}

pub(crate) fn content(server: &Server, name: &str) -> String {
    fs::read_to_string(file(server, name)).unwrap_or_default()
}

/// Waits until a script has written a line.
pub(crate) fn written(server: &Server, name: &str) -> String {
    wait::block_until(&format!("`{name}` is written"), || {
        content(server, name).ends_with('\n')
    });
    content(server, name)
}

/// Waits until a script has written the ids of processes, one a line.
pub(crate) fn ids(server: &Server, name: &str, count: usize) -> Vec<Pid> {
    wait::block_until(&format!("{count} ids are in `{name}`"), || {
        content(server, name).lines().count() == count && content(server, name).ends_with('\n')
    });
    let id = |line: &str| Pid::from_raw(line.parse().expect("an id")).expect("not zero");
    content(server, name).lines().map(id).collect()
}

/// The letter that the kernel shows for a process, unless it has ended.
pub(crate) fn state(id: Pid) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let state = stat.rsplit_once(") ")?.1.chars().next()?;
    (!matches!(state, 'Z' | 'X')).then_some(state)
}

pub(crate) fn live(ids: &[Pid]) -> bool {
    ids.iter().any(|id| state(*id).is_some())
}

/// Waits until all have ended, and says how long that took.
pub(crate) fn all_end(ids: &[Pid]) -> Duration {
    let start = Instant::now();
    wait::block_until("all processes end", || !live(ids));
    start.elapsed()
}

/// The processes whose parent is this one.
pub(crate) fn children(id: Pid) -> Vec<Pid> {
    let entries = fs::read_dir("/proc").expect("Linux");
    let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    ids.filter_map(Pid::from_raw)
        .filter(|child| {
            let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            let parent = stat
                .rsplit_once(") ")
                .and_then(|(_, rest)| rest.split(' ').nth(1));
            parent == Some(&id.to_string())
        })
        .collect()
}

/// A lock that the test holds itself, for so long.
pub(crate) fn hold(server: &Server, key: &str, length: Duration) {
    let owner = "0123456789abcdef0123456789abcdef@elsewhere:4242";
    let millis = length.as_millis().to_string();
    let lock = format!("lock:{key}");
    let _: String = server
        .words(&["SET", &lock, owner, "PX", &millis])
        .expect("a free server");
}
