//! A command whose lease is lost, or whose wrapper is killed, ends before another can hold the key: with
//! its children, also those that ignore TERM, have a session of their own or were left by their parents.

use std::time::{Duration, Instant};
use std::{fs, thread};

use rustix::process::{Pid, Signal, kill_process};
use tests::server::Server;
use tests::wait;

use crate::support::{
    Running, all_end, children, content, file, hold, ids, live, run_script, state, written,
};

/// A shell that ignores TERM, with a child, one in a session of its own, and a daemon: four ids.
const FAMILY: &str = "\
trap '' TERM
echo $$ >> ids
sh -c 'echo $$ >> ids; sleep 600; sleep 600' &
setsid sh -c 'echo $$ >> ids; sleep 600; sleep 600' &
(setsid sh -c 'echo $$ >> ids; sleep 600; sleep 600' > /dev/null 2>&1 &)
while :; do sleep 600; done";

fn family(server: &Server, options: &[&str]) -> (Running, Vec<Pid>) {
    let run = Running::start(&mut run_script(server, options, FAMILY));
    let ids = ids(server, "ids", 4);
    (run, ids)
}

/// Waits for the key as another would, and writes whether one of these lives when it has it.
fn next_holder(server: &Server) -> Running {
    let script = "for id in $(cat ids); do grep -q '^State:.[^ZX]' /proc/$id/status 2> /dev/null && echo $id; \
                  done > living; echo all >> living";
    Running::start(&mut run_script(server, &["k", "--wait", "1h"], script))
}

fn none_lived(server: &Server, next: &mut Running) {
    assert_eq!(next.code(), 0, "{}", next.told());
    assert_eq!(content(server, "living"), "all\n");
}

#[test]
fn field_store_29_a_key_that_is_deleted() {
    let server = Server::start();
    let (mut run, ids) = family(&server, &["k", "--ttl", "1500ms"]);
    let _: u64 = server.ask("DEL lock:k");
    // Noticed a third of the ttl later at most, and killed within a second from then on: 1.5 s.
    let taken = all_end(&ids);
    assert!(taken < Duration::from_secs(3), "{taken:?}");
    assert_eq!(run.code(), 79);
    let told = run.told();
    assert!(
        told.contains("gone from the store: the command was ended"),
        "{told}"
    );
    assert_eq!(told.lines().count(), 1, "{told}");
}

#[test]
fn field_store_29_a_key_that_is_taken() {
    let server = Server::start();
    let script =
        "trap 'echo wound down >> told; exit 0' TERM; echo $$ > id; while :; do sleep 0.02; done";
    let mut run = Running::start(&mut run_script(&server, &["k", "--ttl", "1s"], script));
    written(&server, "id");
    hold(&server, "k", Duration::from_secs(60));
    assert_eq!(run.code(), 79);
    // It has time to wind down, and its own code does not hide the loss.
    assert_eq!(content(&server, "told"), "wound down\n");
    let told = run.told();
    assert!(
        told.contains("under another owner: the command was ended"),
        "{told}"
    );
    assert!(
        server
            .get("lock:k")
            .expect("it is another's")
            .ends_with("elsewhere:4242")
    );
}

#[test]
fn field_store_29_a_store_that_is_away() {
    thread::scope(|scope| {
        for grace in ["0s", "200ms", "1h"] {
            scope.spawn(move || ends_before_its_lease(grace));
        }
    });
}

fn ends_before_its_lease(grace: &str) {
    let server = Server::start();
    let ttl = Duration::from_secs(4);
    let (mut run, ids) = family(&server, &["k", "--ttl", "4s", "--grace", grace]);
    let start = Instant::now();
    server.freeze();
    all_end(&ids);
    // What is in the store runs for a ttl from the last renewal on, which was before.
    assert!(start.elapsed() < ttl, "{grace}: {:?}", start.elapsed());
    server.thaw();
    assert_eq!(run.code(), 79, "{grace}");
    let told = run.told();
    let last = told.lines().last().expect("it tells why");
    assert!(last.contains("the command was ended"), "{told}");
}

#[test]
fn field_store_29_a_command_winds_down_while_the_store_is_away() {
    let server = Server::start();
    let script =
        "trap 'echo wound down >> told; exit 0' TERM; echo $$ > id; while :; do sleep 0.02; done";
    let mut run = Running::start(&mut run_script(&server, &["k", "--ttl", "2s"], script));
    written(&server, "id");
    server.freeze();
    written(&server, "told");
    server.thaw();
    assert_eq!(run.code(), 79);
}

#[test]
fn field_store_29_a_short_outage_ends_nothing() {
    let server = Server::start();
    let script = "echo $$ > id; until [ -e go ]; do sleep 0.02; done";
    let mut run = Running::start(&mut run_script(&server, &["k", "--ttl", "6s"], script));
    written(&server, "id");
    server.freeze();
    // Longer than what is between two renewals, and shorter than what ends a command.
    thread::sleep(Duration::from_millis(2500));
    server.thaw();
    fs::write(file(&server, "go"), "").expect("a file of our own");
    assert_eq!(run.code(), 0, "{}", run.told());
}

#[test]
fn field_store_29_a_wrapper_that_is_killed() {
    let server = Server::start();
    let (run, ids) = family(&server, &["k", "--ttl", "4s", "--grace", "300ms"]);
    let mut next = next_holder(&server);
    wait::block_until("another waits", || server.waiters("lock:k") == 1);
    run.signal(Signal::KILL);
    let taken = all_end(&ids);
    assert!(taken < Duration::from_millis(300 + 1500), "{taken:?}");
    none_lived(&server, &mut next);
}

#[test]
fn field_store_29_a_wrapper_that_is_killed_with_all_its_group() {
    let server = Server::start();
    let script = "exec \"$0\" run k --ttl 2s --grace 0s -- sh -c \"$1\"";
    let mut shell = std::process::Command::new("setsid");
    shell.args(["sh", "-c", script, env!("CARGO_BIN_EXE_lockattr"), FAMILY]);
    shell
        .env("LOCKATTR_URL", server.url())
        .current_dir(server.directory());
    let group = Running::start(&mut shell);
    let ids = ids(&server, "ids", 4);
    // As `kill -9 %1` does in a shell.
    rustix::process::kill_process_group(group.id(), Signal::KILL).expect("it runs");
    all_end(&ids);
}

#[test]
fn field_store_29_a_wrapper_that_is_frozen() {
    let server = Server::start();
    let (mut run, ids) = family(&server, &["k", "--ttl", "2s"]);
    let mut next = next_holder(&server);
    wait::block_until("another waits", || server.waiters("lock:k") == 1);
    run.signal(Signal::STOP);
    none_lived(&server, &mut next);
    assert!(!live(&ids));
    run.signal(Signal::CONT);
    assert_eq!(run.code(), 79);
}

#[test]
fn field_store_29_a_guard_that_is_killed_or_frozen() {
    let server = Server::start();
    let (mut run, ids) = family(&server, &["k", "--ttl", "2s"]);
    let [guard] = children(run.id())[..] else {
        panic!("one child")
    };
    kill_process(guard, Signal::KILL).expect("it lives");
    assert_eq!(run.code(), 70);
    assert!(!live(&ids));
    assert_eq!(server.keys(), Vec::<String>::new());

    fs::remove_file(file(&server, "ids")).expect("it was written");
    let (mut run, ids) = family(&server, &["k", "--ttl", "2s"]);
    let [guard] = children(run.id())[..] else {
        panic!("one child")
    };
    kill_process(guard, Signal::STOP).expect("it lives");
    server.freeze();
    // The lease's deadline is two hundredths before the end of the key.
    all_end(&ids);
    server.thaw();
    assert_eq!(run.code(), 79);
    assert_eq!(state(guard), None);
}

#[test]
fn field_store_29_a_command_that_runs_too_long() {
    let server = Server::start();
    let script = "trap 'echo wound down >> told' TERM; echo $$ > id; while :; do sleep 0.02; done";
    let options = [
        "k",
        "--max-hold",
        "500ms",
        "--grace",
        "700ms",
        "--ttl",
        "1s",
    ];
    let start = Instant::now();
    let mut run = Running::start(&mut run_script(&server, &options, script));
    assert_eq!(run.code(), 79);
    assert_eq!(content(&server, "told"), "wound down\n");
    let taken = start.elapsed();
    assert!(taken >= Duration::from_millis(1200), "{taken:?}");
    assert!(taken < Duration::from_millis(1200 + 1500), "{taken:?}");
    let told = run.told();
    assert!(told.contains("as --max-hold allows"), "{told}");
    // It was held to the end, and is given back.
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_guard_that_was_frozen_for_a_while_ends_nobody_whose_lease_was_renewed() {
    let server = Server::start();
    let script = "echo $$ > id; until [ -e end ]; do sleep 0.05; done";
    let mut run = Running::start(&mut run_script(&server, &["k", "--ttl", "2s"], script));
    written(&server, "id");
    let [guard] = children(run.id())[..] else {
        panic!("a guard, and nothing else");
    };
    kill_process(guard, Signal::STOP).expect("it lives");
    thread::sleep(Duration::from_millis(2_500));
    kill_process(guard, Signal::CONT).expect("it lives");
    thread::sleep(Duration::from_millis(300));
    fs::write(file(&server, "end"), "").expect("a directory");
    assert_eq!(run.code(), 0, "{}", run.told());
}
