//! One key on ZooKeeper, beside the recipe of its documentation.

use std::thread;
use std::time::{Duration, Instant};

use lockattr::Client;
use tests::zookeeper::{Control, Ensemble};
use tokio::runtime::Builder;

use super::{Effort, at_most, cell, ratio};
use crate::number::{self, Spread};
use crate::report::{Section, Table};

/// Heartbeats of sessions that last for this long hardly count.
const SESSION: Duration = Duration::from_secs(60);

/// What one round has found: requests and seconds of each turn.
type Found = [f64; 2];

pub(super) fn measure(effort: Effort) -> Section {
    let mut section = Section::new(
        "One key on ZooKeeper",
        "nothing pinned",
        "Clients take turns at one key of one server that does not wait for its disk (`forceSync=no`). Requests \
         are those that the server has counted, heartbeats included. The recipe is that of ZooKeeper's \
         documentation, carried out over a blocking connection: create an ephemeral sequential node, list its \
         siblings, watch the one before it and list again when it has gone, delete.",
    );
    let server = Ensemble::single();
    let turns = effort.pick(400, 150);
    let columns = [
        "clients",
        "library",
        "requests a turn",
        "time a turn",
        "× the recipe's requests",
    ];
    let mut table = Table::new("", &columns);
    for clients in [1, 2, 8] {
        let mut ours: [Vec<f64>; 2] = Default::default();
        let mut recipes: [Vec<f64>; 2] = Default::default();
        for _ in 0..effort.rounds() {
            for (of, found) in [
                (&mut ours, lockattr(&server, clients, turns)),
                (&mut recipes, recipe(&server, clients, turns)),
            ] {
                of.iter_mut()
                    .zip(found)
                    .for_each(|(of, found)| of.push(found));
            }
        }
        let requests = ratio(&ours[0], &recipes[0]);
        let all = [
            ("lockattr, by hand", &ours, requests),
            ("the recipe", &recipes, Some(1.0)),
        ];
        for (name, [asked, took], requests) in all {
            table.row(vec![
                clients.to_string(),
                name.to_owned(),
                cell(Spread::of(asked), Spread::plain),
                cell(Spread::of(took), Spread::time),
                cell(requests, number::digits),
            ]);
        }
        let aim = format!("{clients} clients: at most 1.1 × the recipe's requests");
        section.aim(&aim, at_most(requests, 1.1, "×"));
    }
    section.remarks.push(
        "Of two clients of the recipe the one that goes is often back before the other has asked, and waits \
         for nobody: that spares it watching and listing again. Two of lockattr are both there in nearly every \
         turn."
            .to_owned(),
    );
    section.tables.push(table);
    section
}

/// What so many turns of each client have cost.
fn counted(server: &Ensemble, turns: u32, play: impl FnOnce()) -> Found {
    let before = server.requests(0);
    let begun = Instant::now();
    play();
    let took = begun.elapsed();
    let requests = server.requests(0) - before;
    [
        requests as f64 / f64::from(turns),
        took.as_secs_f64() / f64::from(turns),
    ]
}

fn lockattr(server: &Ensemble, clients: u32, turns: u32) -> Found {
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime = runtime.expect("a runtime");
    let connected: Vec<_> = (0..clients)
        .map(|_| {
            let connecting = Client::builder().ttl(SESSION).connect(server.url());
            runtime.block_on(connecting).expect("the server answers")
        })
        .collect();
    let turn = async |locks: &Client| {
        let lease = locks.lock("bench").wait(SESSION).acquire().await;
        lease.expect("its turn").release().await.expect("its own");
    };
    runtime.block_on(turn(&connected[0]));
    counted(server, turns / clients * clients, || {
        runtime.block_on(async {
            let tasks = connected.iter().cloned().map(|locks| {
                tokio::spawn(async move {
                    for _ in 0..turns / clients {
                        turn(&locks).await;
                    }
                })
            });
            for task in tasks.collect::<Vec<_>>() {
                task.await.expect("no panic");
            }
        });
    })
}

fn recipe(server: &Ensemble, clients: u32, turns: u32) -> Found {
    let mut controls: Vec<_> = (0..clients)
        .map(|_| Control::of(server.address(0)))
        .collect();
    // It may be there from the round before.
    let _ = controls[0].create("/recipe", 0, false);
    counted(server, turns / clients * clients, || {
        let threads = controls
            .into_iter()
            .enumerate()
            .map(|(client, mut control)| {
                thread::spawn(move || {
                    for _ in 0..turns / clients {
                        turn(&mut control, client);
                    }
                })
            });
        for thread in threads.collect::<Vec<_>>() {
            thread.join().expect("no panic");
        }
    })
}

fn turn(control: &mut Control, client: usize) {
    let name = format!("{client}-lock-");
    control
        .create(&format!("/recipe/{name}"), 3, false)
        .expect("a node");
    loop {
        let mut queue = control.children("/recipe");
        queue.sort_by_key(|node| node.rsplit('-').next().map(str::to_owned));
        let own = queue.iter().position(|node| node.starts_with(&name));
        match own.expect("its own node") {
            0 => {
                control
                    .delete(&format!("/recipe/{}", queue[0]))
                    .expect("its own node");
                return;
            }
            place => control.wait_for_change(&format!("/recipe/{}", queue[place - 1])),
        }
    }
}
