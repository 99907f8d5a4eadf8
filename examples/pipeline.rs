//! A pipeline that renders documents page by page. During a deployment, the old process is told to stop and the new one
//! waits for it, document by document: no page is lost, and none is rendered twice.
//!
//! `cargo run --bin pipeline` starts both processes on the server of `REDIS_URL`, or else on a private `redis-server`
//! from the PATH, or else renders in one process.

use std::env;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::process::{self, Stdio};
use std::thread;
use std::time::Duration;

use examples::{Server, stop_signal};
use lockattr::distributed_lock;
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

type Failure = Box<dyn Error + Send + Sync>;

const PAGES: u32 = 12;

/// Goes on where the process before has stopped, and stops between two pages.
#[distributed_lock(key = "document:<name>", ttl = "5s", wait = "1m", bind = lease)]
async fn render(name: &str, folder: &Path, stop: &watch::Receiver<bool>) -> Result<(), Failure> {
    let progress = folder.join(name);
    loop {
        let done = fs::read_to_string(&progress).unwrap_or_default();
        let page = done.parse().unwrap_or(0) + 1;
        if page > PAGES || *stop.borrow() {
            return Ok(());
        }
        // Blocking work goes on when this future is dropped. Its handle keeps the document locked until the page and its
        // progress are written.
        let (held, progress) = (lease.share(), progress.clone());
        spawn_blocking(move || {
            thread::sleep(Duration::from_millis(100));
            let draft = progress.with_extension("draft");
            fs::write(&draft, page.to_string())?;
            fs::rename(draft, progress)?;
            drop(held);
            Ok::<_, std::io::Error>(())
        })
        .await??;
        println!(
            "{name}: page {page} of {PAGES} by process {}",
            process::id()
        );
    }
}

/// Renders all documents. After a signal, each page that was begun is ended, and nothing else.
async fn worker(server: &Server, folder: &Path) -> Result<(), Failure> {
    let locks = server.connect().await?;
    let (stopping, stop) = watch::channel(false);
    let document = |name| locks.scope(render(name, folder, &stop));
    let work = async { tokio::try_join!(document("letter"), document("report")) };
    tokio::pin!(work);
    tokio::select! {
        done = &mut work => { done?; }
        signal = stop_signal() => {
            signal?;
            stopping.send_replace(true);
            work.await?;
        }
    }
    locks.shutdown().await;
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let server = Server::find().await?;
    if let Some(folder) = env::args_os().nth(1) {
        return worker(&server, folder.as_ref()).await;
    }
    println!("two documents, {server}");
    let folder = env::temp_dir().join(format!("lockattr-pipeline-{}", process::id()));
    fs::create_dir_all(&folder)?;
    let Some(url) = server.url() else {
        worker(&server, &folder).await?;
        return Ok(fs::remove_dir_all(folder)?);
    };
    let start = || {
        let mut program = Command::new(env::current_exe()?);
        program
            .arg(&folder)
            .env("REDIS_URL", url)
            .kill_on_drop(true);
        program.stdout(Stdio::piped()).spawn()
    };

    let mut old = start()?;
    let mut lines = BufReader::new(old.stdout.take().ok_or("no output")?).lines();
    let mut pages = 0;
    let mut new = None;
    while let Some(line) = lines.next_line().await? {
        println!("{line}");
        pages += 1;
        if pages == 6 {
            println!("the old process is told to stop, and a new one is started");
            let pid = old.id().and_then(|id| Pid::from_raw(id.cast_signed()));
            kill_process(pid.ok_or("it has ended")?, Signal::TERM)?;
            new = Some(start()?);
        }
    }
    println!("the old process has ended with {}", old.wait().await?);
    let output = new
        .ok_or("there was nothing left to do")?
        .wait_with_output()
        .await?;
    print!("{}", String::from_utf8(output.stdout)?);
    fs::remove_dir_all(folder)?;
    Ok(())
}
