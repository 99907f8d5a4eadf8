//! Leader election by one long wait: three candidates, of which one leads. The first leader is killed, and the next
//! leads after its ttl; the second is told to stop, and the next leads at once.
//!
//! `cargo run --bin leader` starts the candidates as processes on the server of `REDIS_URL`, or else on a private
//! `redis-server` from the PATH.

use std::convert::Infallible;
use std::env;
use std::error::Error;
use std::process::Stdio;
use std::time::{Duration, Instant};

use examples::{Server, stop_signal};
use lockattr::distributed_lock;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::mpsc;
use tokio::time::sleep;

/// Candidates wait in the order in which they came, and ask nobody meanwhile. The body is dropped when the lease is
/// lost, before anybody else can lead.
#[distributed_lock(key = "leader", ttl = "2s", wait = "365days")]
async fn lead(candidate: &str) -> Result<Infallible, lockattr::Error> {
    println!("candidate {candidate} leads");
    loop {
        // What only the leader does.
        sleep(Duration::from_millis(100)).await;
    }
}

async fn candidate(name: &str) -> Result<(), Box<dyn Error>> {
    let locks = Server::find().await?.connect().await?;
    locks.install()?;
    let campaign = async {
        loop {
            let Err(error) = lead(name).await;
            eprintln!("candidate {name} does not lead: {error}");
            sleep(Duration::from_secs(1)).await;
        }
    };
    tokio::select! {
        () = campaign => {}
        signal = stop_signal() => signal?,
    }
    // Steps down, or leaves the queue, before the process ends.
    locks.shutdown().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(name) = env::args().nth(1) {
        return candidate(&name).await;
    }
    let server = Server::find().await?;
    let Some(url) = server.url() else {
        println!("no REDIS_URL and no redis-server in the PATH: processes have no lock to share");
        return Ok(());
    };
    println!("three candidates, {server}");
    let (told, mut lines) = mpsc::unbounded_channel();
    let mut candidates = Vec::new();
    for name in 0..3 {
        let mut process = Command::new(env::current_exe()?)
            .arg(name.to_string())
            .env("REDIS_URL", url)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let output = process.stdout.take().ok_or("a candidate has no output")?;
        let (told, mut output) = (told.clone(), BufReader::new(output).lines());
        tokio::spawn(async move {
            while let Ok(Some(line)) = output.next_line().await {
                println!("{line}");
                let _ = told.send(name);
            }
        });
        candidates.push(process);
    }
    let mut leader: usize = lines.recv().await.ok_or("nobody leads")?;
    for (signal, what) in [
        (Signal::KILL, "is killed"),
        (Signal::TERM, "is told to stop"),
    ] {
        println!("candidate {leader} {what}");
        let since = Instant::now();
        tell(&candidates[leader], signal)?;
        leader = lines.recv().await.ok_or("nobody leads")?;
        println!(
            "the next leads after {:.1} s",
            since.elapsed().as_secs_f32()
        );
    }
    tell(&candidates[leader], Signal::TERM)?;
    candidates[leader].wait().await?;
    Ok(())
}

fn tell(candidate: &Child, signal: Signal) -> Result<(), Box<dyn Error>> {
    let pid = candidate
        .id()
        .and_then(|id| Pid::from_raw(id.cast_signed()));
    Ok(kill_process(pid.ok_or("a candidate has ended")?, signal)?)
}
