//! A custom store: two processes that share nothing but a directory exclude each other.
//!
//! `cargo run --example directory`

mod store;

use std::env;
use std::error::Error;
use std::path::PathBuf;
use std::process::{self, Command};
use std::time::Duration;

use lockattr::{Client, distributed_lock};

use store::Directory;

#[distributed_lock(key = "report", ttl = "5s", wait = "30s", client = locks)]
async fn report(locks: &Client, number: u32) -> Result<(), lockattr::Error> {
    println!("{} begins report {number}", process::id());
    tokio::time::sleep(Duration::from_millis(50)).await;
    println!("{} ends report {number}", process::id());
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if let Some(directory) = env::args_os().nth(1) {
        let locks = Client::builder().store(Directory(directory.into()))?;
        for number in 1..=3 {
            report(&locks, number).await?;
        }
        locks.shutdown().await;
        return Ok(());
    }
    let directory: PathBuf = env::temp_dir().join(format!("lockattr-directory-{}", process::id()));
    std::fs::create_dir(&directory)?;
    let start = || {
        let mut program = Command::new(env::current_exe()?);
        program.arg(&directory).spawn()
    };
    let processes = [start()?, start()?];
    for mut process in processes {
        let status = process.wait()?;
        assert!(status.success(), "{status}");
    }
    std::fs::remove_dir_all(directory)?;
    Ok(())
}
