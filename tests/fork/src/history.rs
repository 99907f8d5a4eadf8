//! Random steps of a process that holds leases, waits for others, and forks again and again. Each child
//! does something with what is its parent's; none of it changes anything.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::process::exit;
use std::task::Poll;
use std::time::Duration;
use std::{future, mem};

use lockattr::{Client, Error, Lease};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use crate::{Call, TTL, at_once, fork, is_refused, wait_for};

/// Longer than a history.
const PATIENT: Duration = Duration::from_secs(60);

/// While other threads of it call without a pause, a process forks again and again, and each child drops a
/// call that is on its way: whatever the others had locked in that moment stays locked there.
pub(crate) fn while_others_call(runtime: &Runtime, client: &Client) {
    for caller in 0..4 {
        let client = client.clone();
        runtime.spawn(async move {
            loop {
                let request = client.lock(format!("busy:{caller}")).ttl(TTL);
                drop(request.acquire().await);
            }
        });
    }
    for _ in 0..600 {
        let mut call: Call = Box::pin(client.lock("other").ttl(TTL).acquire());
        let polled = future::poll_fn(|cx| Poll::Ready(call.as_mut().poll(cx)));
        drop(runtime.block_on(polled));
        let Some(child) = fork() else {
            drop(call);
            exit(0);
        };
        wait_for(child);
    }
    // It does not wait for those who call.
    exit(0);
}

/// One process, with two clients that meet in the store only.
struct Process {
    runtime: Runtime,
    clients: [Client; 2],
    /// By client and key.
    leases: BTreeMap<(usize, String), Lease>,
    /// Calls that were begun, and are polled no more.
    begun: Vec<Call>,
    waiters: Vec<JoinHandle<Result<Lease, Error>>>,
}

/// Takes the steps, gives everything back, and says so; ends when its standard input does.
pub(crate) fn play(runtime: Runtime, clients: [Client; 2], steps: &[String]) {
    let mut process = Process {
        runtime,
        clients,
        leases: BTreeMap::new(),
        begun: Vec::new(),
        waiters: Vec::new(),
    };
    for step in steps {
        process = process.step(step);
    }
    for waiter in mem::take(&mut process.waiters) {
        waiter.abort();
    }
    drop((
        mem::take(&mut process.leases),
        mem::take(&mut process.begun),
    ));
    println!("rest");
    // It goes on listening meanwhile.
    io::stdin().read_to_end(&mut Vec::new()).expect("it ends");
}

impl Process {
    /// `DEED CLIENT KEY`, or `fork DEED`.
    fn step(mut self, step: &str) -> Self {
        let words: Vec<&str> = step.split(' ').collect();
        let (client, key) = match words[..] {
            ["fork", deed] => return self.fork(deed),
            [_, client, key] => (client.parse::<usize>().expect("a number"), key.to_owned()),
            _ => panic!("no such step: {step}"),
        };
        let locks = self.clients[client].clone();
        let request = locks.lock(&*key).ttl(TTL);
        match words[0] {
            "take" => {
                if let Ok(lease) = self.runtime.block_on(request.acquire()) {
                    self.leases.insert((client, key), lease);
                }
            }
            "give" => {
                if let Some(lease) = self.leases.remove(&(client, key)) {
                    self.runtime.block_on(lease.release()).expect("its own");
                }
            }
            "drop" => drop(self.leases.remove(&(client, key))),
            "begin" => {
                let mut call: Call = Box::pin(request.wait(PATIENT).acquire());
                let polled = future::poll_fn(|cx| {
                    // It is there at once where the key is handed over.
                    Poll::Ready(call.as_mut().poll(cx))
                });
                if self.runtime.block_on(polled).is_pending() {
                    self.begun.push(call);
                }
            }
            "wait" => {
                let waiter = request.wait(PATIENT).acquire();
                self.waiters.push(self.runtime.spawn(waiter));
                // On its way, or in the queue already.
                std::thread::sleep(Duration::from_millis(5));
            }
            other => panic!("no such step: {other}"),
        }
        self
    }

    fn fork(self, deed: &str) -> Self {
        let Some(child) = fork() else {
            self.play_child(deed);
            exit(0);
        };
        wait_for(child);
        // What it holds it holds still, here and at the store.
        for ((client, key), lease) in &self.leases {
            let token = self.runtime.block_on(lease.token());
            assert!(token.is_ok(), "{client} {key} after {deed}: {token:?}");
            let extended = self.runtime.block_on(lease.extend(TTL));
            assert!(
                extended.is_ok(),
                "{client} {key} after {deed}: {extended:?}"
            );
        }
        self
    }

    /// What a child does with what is its parent's.
    fn play_child(self, deed: &str) {
        let Self {
            runtime,
            clients,
            leases,
            begun,
            waiters,
        } = self;
        match deed {
            "exit" => {}
            "drop" => drop((leases, begun, waiters, clients)),
            "release" => {
                for (_, lease) in leases {
                    is_refused("a release", at_once("a release", lease.release()));
                }
            }
            "extend" => {
                for lease in leases.values() {
                    assert!(lease.remaining().is_zero());
                    is_refused("a token", at_once("a token", lease.token()));
                    is_refused("an extend", at_once("an extend", lease.extend(3 * TTL)));
                }
            }
            "call" => {
                for locks in &clients {
                    for key in ["0", "1", "2"] {
                        let request = || locks.lock(key).wait(PATIENT);
                        is_refused("a call", at_once("a call", request().acquire()));
                    }
                }
            }
            "shutdown" => {
                for locks in &clients {
                    at_once("shutting down", locks.shutdown());
                }
            }
            other => panic!("no such deed: {other}"),
        }
        // It would wait for its threads, which have stayed with the parent.
        mem::forget(runtime);
    }
}
