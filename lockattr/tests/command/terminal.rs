//! At a terminal, under a shell with job control: Ctrl-C, Ctrl-Z and whose terminal it is.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use tests::server::Server;
use tests::wait;

use crate::support::{content, hold, ids, state, written};

/// A shell at a terminal of its own.
struct Shell {
    process: Child,
    keyboard: File,
    screen: Arc<Mutex<String>>,
}

impl Shell {
    fn start(server: &Server) -> Self {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let master = master.expect("a terminal");
        grantpt(&master).expect("ours");
        unlockpt(&master).expect("ours");
        let name = ptsname(&master, Vec::new()).expect("it has a name");
        let open = || -> OwnedFd {
            let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
            rustix::fs::open(&name, flags, Mode::empty()).expect("the other side")
        };
        let process = Command::new("setsid")
            .args(["--ctty", "bash", "--norc", "--noprofile", "-i"])
            .env("LOCKATTR_URL", server.url())
            .env("L", env!("CARGO_BIN_EXE_lockattr"))
            .env("PS1", "prompt> ")
            .env("TERM", "dumb")
            .current_dir(server.directory())
            .stdin(open())
            .stdout(open())
            .stderr(open())
            .spawn()
            .expect("bash and util-linux");
        let keyboard = File::from(master);
        let mut reader = keyboard.try_clone().expect("another descriptor");
        let screen = Arc::new(Mutex::new(String::new()));
        let shown = Arc::clone(&screen);
        thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count @ 1..) = reader.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                shown.lock().expect("no panic").push_str(&text);
            }
        });
        let shell = Self {
            process,
            keyboard,
            screen,
        };
        shell.shows("prompt> ");
        shell
    }

    fn types(&mut self, keys: &str) {
        self.screen.lock().expect("no panic").clear();
        self.keyboard
            .write_all(keys.as_bytes())
            .expect("it is open");
    }

    fn seen(&self) -> String {
        self.screen.lock().expect("no panic").clone()
    }

    fn shows(&self, text: &str) {
        wait::block_until(&format!("{text:?} is on the screen"), || {
            self.seen().contains(text)
        });
    }
}

impl Drop for Shell {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("the screen:\n{}", self.seen());
        }
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Without a child: a shell that is stopped or interrupted while it starts one is so when that is done.
const TICKS: &str = "bash -c '[ -p f ] || mkfifo f; exec 9<> f; echo $$ > id; \
                     while :; do echo tick >> ticks; read -rt 0.02 -u 9; done'";

fn ticks(server: &Server) -> usize {
    content(server, "ticks").lines().count()
}

fn goes_on(server: &Server) {
    let before = ticks(server);
    wait::block_until("the command goes on", || ticks(server) > before + 2);
}

#[test]
fn field_store_29_ctrl_c_reaches_the_command_once() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.types(
        "$L run k -- bash -c 'trap \"echo INT >> got\" INT; mkfifo f; exec 9<> f; echo $$ > id; \
         until [ -e got ]; do read -rt 0.02 -u 9; done; read -rt 0.2 -u 9; exit 5'; echo code=$?\n",
    );
    written(&server, "id");
    shell.types("\x03");
    shell.shows("code=5");
    assert_eq!(content(&server, "got"), "INT\n");
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn field_store_29_ctrl_c_ends_the_command_and_gives_the_key_back() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.types(&format!("$L run k -- {TICKS}\n"));
    written(&server, "id");
    shell.types("\x03");
    shell.shows("prompt> ");
    shell.types("echo code=$?\n");
    shell.shows("code=130");
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn field_store_29_ctrl_c_ends_a_loop_around_the_command() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.types(&format!("for i in 1 2 3; do $L run k -- {TICKS}; done\n"));
    written(&server, "id");
    shell.types("\x03");
    shell.shows("prompt> ");
    assert_eq!(server.keys(), Vec::<String>::new());
    shell.types("echo code=$?\n");
    shell.shows("code=130");
}

#[test]
fn field_store_29_the_terminal_is_given_back_in_a_script() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    // The script has no job control: nobody else would take the terminal back for it. The command that is
    // killed leaves the terminal without echo.
    shell.types(
        "sh -c '$L run k -- sh -c \"read a; echo a=\\$a; stty -echo; kill -9 \\$\\$\"; read b; echo b=$b; stty -a | grep -o .echo\\ '\n",
    );
    thread::sleep(Duration::from_millis(100));
    shell.types("one\n");
    shell.shows("a=one");
    shell.types("two\n");
    shell.shows("b=two");
    shell.shows("prompt> ");
    assert!(shell.seen().contains(" echo "), "{}", shell.seen());
}

#[test]
fn field_store_29_ctrl_z_stops_both_and_fg_continues_both() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.types(&format!("$L run k -- {TICKS}; echo code=$?\n"));
    let command = ids(&server, "id", 1)[0];
    goes_on(&server);
    for _ in 0..2 {
        shell.types("\x1a");
        shell.shows("Stopped");
        wait::block_until("the command is stopped", || state(command) == Some('T'));
        let stopped = ticks(&server);
        shell.types("echo the shell is here\n");
        shell.shows("\nthe shell is here");
        assert_eq!(ticks(&server), stopped);
        shell.types("fg\n");
        goes_on(&server);
    }
    shell.types("\x1a");
    shell.shows("Stopped");
    shell.types("bg\n");
    goes_on(&server);
    shell.types("fg\n");
    shell.shows("run k");
    thread::sleep(Duration::from_millis(100));
    shell.types("\x03");
    shell.shows("prompt> ");
    shell.types("echo code=$?\n");
    shell.shows("code=130");
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn field_store_29_a_lease_that_expires_while_all_is_stopped() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.types(&format!("$L run k --ttl 1s -- {TICKS}; echo code=$?\n"));
    let command = ids(&server, "id", 1)[0];
    shell.types("\x1a");
    shell.shows("Stopped");
    let stopped = ticks(&server);
    wait::block_until("the command was killed", || state(command).is_none());
    assert_eq!(ticks(&server), stopped, "it was never continued");
    shell.types("fg; echo code=$?\n");
    shell.shows("code=79");
    assert_eq!(ticks(&server), stopped);
}

#[test]
fn field_store_29_a_background_job_that_wants_the_terminal() {
    let server = Server::start();
    let mut shell = Shell::start(&server);
    shell.types("$L run k -- sh -c 'echo $$ > id; read a; echo a=$a' &\n");
    written(&server, "id");
    shell.types("\n");
    wait::block_until("it is stopped", || {
        shell.types("jobs\n");
        thread::sleep(Duration::from_millis(50));
        shell.seen().contains("Stopped")
    });
    shell.types("fg\n");
    shell.shows("run k");
    shell.types("word\n");
    shell.shows("a=word");
    shell.shows("prompt> ");
}

#[test]
fn a_live_view_ends_at_once_and_leaves_the_terminal_as_it_was() {
    const LEFT: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";
    let server = Server::start();
    hold(&server, "k", Duration::from_secs(600));
    let mut shell = Shell::start(&server);
    let watch = "$L watch --connect-timeout 1m --reply-timeout 1m; echo code=$?\n";
    // In the first look, which a server that hangs does not answer.
    server.freeze();
    shell.types(watch);
    shell.shows("\x1b[?1049h");
    shell.types("\x03");
    shell.shows(LEFT);
    shell.shows("code=130");
    server.thaw();
    // In a later one.
    shell.types(watch);
    shell.shows("1 held");
    server.freeze();
    thread::sleep(Duration::from_millis(1_200));
    shell.types("\x03");
    shell.shows(LEFT);
    shell.shows("code=0");
    server.thaw();
    // By a signal.
    shell.types("$L watch & sleep 0.5; kill $!; wait $!; echo code=$?\n");
    shell.shows(LEFT);
    shell.shows("code=143");
}
