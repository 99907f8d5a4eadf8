//! Signals to `lockattr run`, from whoever may send them.

use std::time::Duration;

use rustix::process::{Signal, kill_process};
use tests::server::Server;
use tests::wait;

use crate::support::{Running, all_end, content, file, hold, ids, run, run_script, state, written};

#[test]
fn field_store_29_each_signal_goes_to_the_command() {
    let server = Server::start();
    let signals = [
        ("TERM", Signal::TERM),
        ("INT", Signal::INT),
        ("HUP", Signal::HUP),
        ("QUIT", Signal::QUIT),
        ("USR1", Signal::USR1),
        ("USR2", Signal::USR2),
        ("WINCH", Signal::WINCH),
    ];
    let start = |(name, signal)| {
        let script = format!(
            "trap 'echo {name} >> {name}.got; : > {name}.go' {name}; echo $$ > {name}.id; \
             until [ -e {name}.go ]; do sleep 0.02; done; exit 9"
        );
        let run = Running::start(&mut run_script(&server, &[name], &script));
        (name, signal, run)
    };
    let mut runs = signals.map(start);
    for (name, signal, run) in &runs {
        written(&server, &format!("{name}.id"));
        run.signal(*signal);
    }
    for (name, _, run) in &mut runs {
        assert_eq!(run.code(), 9, "{name}: {}", run.told());
        assert_eq!(
            content(&server, &format!("{name}.got")),
            format!("{name}\n")
        );
    }
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn field_store_29_a_command_that_dies_of_a_signal() {
    let server = Server::start();
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        // All of the group get it, and the shell's child dies as well.
        let script = "sleep 600 & echo $! > id; echo $$ >> id; wait";
        let mut run = Running::start(&mut run_script(&server, &["k"], script));
        let started = ids(&server, "id", 2);
        run.signal(signal);
        assert_eq!(run.code(), code);
        // A shell has its background children ignore what comes from the keyboard.
        if signal == Signal::INT {
            kill_process(started[0], Signal::KILL).expect("it lives");
        }
        all_end(&started);
        assert_eq!(run.told(), "");
        assert_eq!(server.keys(), Vec::<String>::new());
        std::fs::remove_file(file(&server, "id")).expect("it was written");
    }
}

#[test]
fn field_store_29_stopped_and_continued_without_a_terminal() {
    let server = Server::start();
    // A shell that is stopped while it starts a child is so when that is done: this one has none.
    let script =
        "mkfifo f; exec 9<> f; echo $$ > id; until [ -e go ]; do read -rt 0.02 -u 9; done; exit 0";
    let options = ["k", "--ttl", "900ms"];
    let mut run = Running::start(&mut run(&server, &options, &["bash", "-c", script]));
    let command = ids(&server, "id", 1)[0];
    run.signal(Signal::TSTP);
    wait::block_until("the command is stopped", || state(command) == Some('T'));
    // The lease of a command that is stopped is renewed: its work is not done yet.
    std::thread::sleep(Duration::from_millis(1200));
    assert!(server.pttl("lock:k") > 0);
    std::fs::write(file(&server, "go"), "").expect("a file of our own");
    run.signal(Signal::CONT);
    assert_eq!(run.code(), 0, "{}", run.told());
}

#[test]
fn field_store_29_a_signal_ends_the_wait() {
    let server = Server::start();
    hold(&server, "k", Duration::from_secs(60));
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130)] {
        let mut run = Running::start(&mut run(&server, &["k", "--wait", "1h"], &["true"]));
        wait::block_until("it waits", || server.waiters("lock:k") == 1);
        run.signal(signal);
        assert_eq!((run.code(), run.told().as_str()), (code, ""));
        assert_eq!(server.waiters("lock:k"), 0);
    }
}
