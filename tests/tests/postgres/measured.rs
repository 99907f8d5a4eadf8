//! What a lock costs beside the statements that people write themselves; run by hand, in a release build:
//! `cargo test --release -p tests --features postgres --test postgres -- --ignored --nocapture measured`.

use std::time::{Duration, Instant};

use tests::postgres::Postgres;
use tests::wait;
use tokio_postgres::{Client, NoTls, Statement};

use crate::support::{client, taken};

const LOCKS: u32 = 400;
const HANDOVERS: u32 = 60;
const ROUNDS: usize = 5;

/// A row with an owner and a time, taken by an upsert and given back by a delete.
struct Recipe {
    db: Client,
    take: Statement,
    give: Statement,
}

impl Recipe {
    async fn on(server: &Postgres) -> Self {
        let url = format!("{}?application_name=lockattr", server.url());
        let (db, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let take = "INSERT INTO recipe VALUES ($1, $2, now() + interval '30 seconds') \
                    ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until \
                    WHERE recipe.until < now()";
        let give = "DELETE FROM recipe WHERE name = $1 AND owner = $2";
        let (take, give) = (
            db.prepare(take).await.unwrap(),
            db.prepare(give).await.unwrap(),
        );
        Self { db, take, give }
    }

    async fn lock(&self, name: &str) {
        assert_eq!(
            self.db.execute(&self.take, &[&name, &"me"]).await.unwrap(),
            1
        );
        assert_eq!(
            self.db.execute(&self.give, &[&name, &"me"]).await.unwrap(),
            1
        );
    }
}

fn told(what: &str, mut times: Vec<Duration>) {
    times.sort();
    let (least, most) = (times[0], times[times.len() - 1]);
    println!(
        "{what}: {:.0?} ({least:.0?}–{most:.0?})",
        times[times.len() / 2]
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measured_locks_and_handovers_beside_a_recipe() {
    for synchronous in ["fsync=on", "fsync=off"] {
        let server = Postgres::with(&[synchronous]);
        server.rows("CREATE TABLE recipe (name text PRIMARY KEY, owner text, until timestamptz)");
        let (one, two) = (client(&server).await, client(&server).await);
        let recipe = Recipe::on(&server).await;
        let (mut ours, mut theirs, mut handed) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let begun = Instant::now();
            for lock in 0..LOCKS {
                taken(&one, &format!("k{lock}"))
                    .await
                    .release()
                    .await
                    .unwrap();
            }
            ours.push(begun.elapsed() / LOCKS);
            let begun = Instant::now();
            for lock in 0..LOCKS {
                recipe.lock(&format!("k{lock}")).await;
            }
            theirs.push(begun.elapsed() / LOCKS);
            let mut sum = Duration::ZERO;
            for _ in 0..HANDOVERS {
                let lease = taken(&one, "a").await;
                let waiter = tokio::spawn(two.lock("a").wait(Duration::from_secs(9)).acquire());
                wait::until("it waits", || server.waiters() == 1).await;
                let begun = Instant::now();
                lease.release().await.unwrap();
                let next = waiter.await.unwrap().unwrap();
                sum += begun.elapsed();
                next.release().await.unwrap();
            }
            handed.push(sum / HANDOVERS);
        }
        println!("{synchronous}");
        told("a lock, taken and given back", ours);
        told("the recipe, prepared", theirs);
        told("a hand-over to another client", handed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn measured_messages_beside_a_recipe() {
    let server = Postgres::with(&["log_statement=all"]);
    server.rows("CREATE TABLE recipe (name text PRIMARY KEY, owner text, until timestamptz)");
    let (one, two) = (client(&server).await, client(&server).await);
    let recipe = Recipe::on(&server).await;
    let messages = || {
        let log = server.log();
        let ours = log.lines().filter(|line| line.contains("app=lockattr"));
        ours.filter(|line| line.contains("statement: ") || line.contains("execute "))
            .count()
    };
    let before = messages();
    for lock in 0..LOCKS {
        taken(&one, &format!("k{lock}"))
            .await
            .release()
            .await
            .unwrap();
    }
    let ours = messages() - before;
    for lock in 0..LOCKS {
        recipe.lock(&format!("k{lock}")).await;
    }
    let theirs = messages() - before - ours;
    println!("messages a lock: {ours} and {theirs} for {LOCKS}");
    let lease = taken(&one, "a").await;
    let mut before = messages();
    let mut waiter = tokio::spawn(two.lock("a").wait(Duration::from_secs(9)).acquire());
    wait::until("it waits", || server.waiters() == 1).await;
    before = messages() - before;
    println!("messages to wait: {before}");
    let mut lease = lease;
    let (mut holder, mut other) = (&one, &two);
    let before = messages();
    for _ in 0..HANDOVERS {
        lease.release().await.unwrap();
        lease = waiter.await.unwrap().unwrap();
        std::mem::swap(&mut holder, &mut other);
        waiter = tokio::spawn(other.lock("a").wait(Duration::from_secs(9)).acquire());
        wait::until("it waits", || server.waiters() == 1).await;
    }
    println!(
        "messages a hand-over: {} for {HANDOVERS}",
        messages() - before
    );
    waiter.abort();
}
