//! A process that has a client and holds a lease, and forks: `fork STORY URL`. The story `history` takes a
//! record, which it does not write, and its steps.
//!
//! The child plays the story and ends. Then the parent shows that its lease was renewed all the time,
//! and gives it back. Either panics where something is not as it should be.

use std::collections::HashSet;
use std::env;
use std::future::Future;
use std::mem;
use std::panic;
use std::pin::{Pin, pin};
use std::process::{self, exit};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use lockattr::{Client, Error, Lease, Memory, distributed_lock};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
use tokio::runtime::{Builder, Runtime};

#[cfg(feature = "metrics")]
mod gauges;
mod history;

const TTL: Duration = Duration::from_secs(1);

/// What comes at once on a machine with other work.
const AT_ONCE: Duration = Duration::from_secs(1);

/// A child that has not ended by then never will.
const HANGS: Duration = Duration::from_secs(15);

fn main() {
    let words: Vec<String> = env::args().skip(1).collect();
    let [story, url, words @ ..] = &words[..] else {
        panic!("usage: fork STORY URL");
    };
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime");
    #[cfg(feature = "metrics")]
    if story == "gauges" {
        return gauges::play(&runtime, url);
    }
    let client = runtime.block_on(connect(url));
    if let ("history", [_, steps @ ..]) = (&story[..], words) {
        let other = runtime.block_on(connect(url));
        return history::play(runtime, [client, other], steps);
    }
    client.install().expect("the first of this process");
    let lease = runtime
        .block_on(take(&client, "sync:1"))
        .expect("it is free");
    let parent = Parent {
        runtime,
        client,
        lease,
        url,
    };
    match &story[..] {
        "refused" => parent.fork(refused),
        "refused-unused" => refused_unused(parent),
        "refused-attribute" => parent.fork(refused_attribute),
        "refused-fallback" => parent.fork(refused_fallback),
        "refused-lease" => parent.fork(refused_lease),
        "ended-lease" => parent.fork(ended_lease),
        "dropped" => parent.fork(Parent::end),
        "forgotten" => parent.fork(|_| exit(0)),
        "shut-down" => parent.fork(shut_down),
        "within-runtime" => within_runtime(parent),
        "within-body" => within_body(parent),
        "anew" => parent.fork(anew),
        "installed-anew" => parent.fork(installed_anew),
        "while-others-call" => history::while_others_call(&parent.runtime, &parent.client),
        "ids" => ids(&parent),
        other => panic!("no such story: {other}"),
    }
}

/// A call on its way.
type Call = Pin<Box<dyn Future<Output = Result<Lease, Error>> + Send>>;

/// What a process has when it forks.
struct Parent<'a> {
    runtime: Runtime,
    client: Client,
    lease: Lease,
    url: &'a str,
}

impl<'a> Parent<'a> {
    /// Has a child play a story, and goes on.
    fn fork(self, story: impl FnOnce(Parent<'a>)) {
        match fork() {
            None => story(self),
            Some(child) => {
                wait_for(child);
                self.go_on();
            }
        }
    }

    /// The lease is still this process's, and the client works.
    fn go_on(self) {
        self.runtime.block_on(async {
            let before = self.client.stats().renewed;
            let since = Instant::now();
            while self.client.stats().renewed < before + 4 {
                assert!(since.elapsed() < HANGS, "the parent's lease is not renewed");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert!(
                !self.lease.remaining().is_zero(),
                "the parent has lost its lease"
            );
            let other = take(&self.client, "sync:2").await.expect("nobody has it");
            other.release().await.expect("nobody has taken it");
            self.lease
                .release()
                .await
                .expect("it is the parent's still");
        });
    }

    /// Everything but the runtime is dropped, as at the end of a program.
    fn end(self) {
        drop(self.lease);
        drop(self.client);
        // It would wait for its threads, which have stayed with the parent.
        mem::forget(self.runtime);
    }
}

/// Forks: the answer is the child, and nothing in the child.
fn fork() -> Option<Pid> {
    // SAFETY: the child has this thread alone, and the locks of the others as they were. It allocates,
    // which the C library allows, prints, which only this thread does, and calls lockattr, whose conduct
    // is the subject.
    match unsafe { libc::fork() } {
        0 => {
            // To unwind would be to wait for threads that have stayed with the parent.
            panic::set_hook(Box::new(|problem| {
                eprintln!("in the child: {problem}");
                process::abort();
            }));
            None
        }
        child => Some(Pid::from_raw(child).expect("a process, or there was no fork")),
    }
}

fn wait_for(child: Pid) {
    let since = Instant::now();
    loop {
        if let Some((_, status)) = waitpid(Some(child), WaitOptions::NOHANG).expect("a child") {
            assert_eq!(status.exit_status(), Some(0), "the child has failed");
            return;
        }
        if since.elapsed() > HANGS {
            kill_process(child, Signal::KILL).expect("the child runs");
            waitpid(Some(child), WaitOptions::empty()).expect("a child");
            panic!("the child hangs");
        }
        thread::sleep(Duration::from_millis(10));
    }
}

async fn connect(url: &str) -> Client {
    Client::connect(url).await.expect("a server answers")
}

async fn take(client: &Client, key: &str) -> Result<Lease, Error> {
    client.lock(key).ttl(TTL).acquire().await
}

#[distributed_lock(key = "sync:<id>", ttl = "1s")]
async fn job(id: u64) -> Result<u64, Error> {
    Ok(id)
}

/// Polls without a runtime until there is an answer, which has to come at once.
fn at_once<F: Future>(what: &str, future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    let mut future = pin!(future);
    let since = Instant::now();
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
        assert!(since.elapsed() < AT_ONCE, "no answer: {what}");
        thread::park_timeout(AT_ONCE / 10);
    }
}

/// The answer says whose the client is, and what to do.
fn is_refused<T>(what: &str, answer: Result<T, Error>) {
    let Err(error) = answer else {
        panic!("not refused: {what}");
    };
    let text = error.to_string();
    for part in ["process", "new"] {
        assert!(text.contains(part), "{what}: {text}");
    }
    assert!(!matches!(error, Error::Busy { .. }), "{what}: {text}");
}

/// The parent's client is of no use in its child.
fn refused(parent: Parent<'_>) {
    for wait in [0, 30] {
        let request = || parent.client.lock("sync:2").wait(Duration::from_secs(wait));
        is_refused("by hand", at_once("by hand", request().acquire()));
        // On a runtime of the child's own as well.
        let runtime = small_runtime();
        let answer = runtime.block_on(async { at_once("on a runtime", request().acquire()) });
        is_refused("on a runtime", answer);
    }
    parent.end();
}

/// Nor are those that the parent has made and not used.
fn refused_unused(parent: Parent<'_>) {
    let lazy = Client::builder().connect_lazily(parent.url);
    let lazy = lazy.expect("a URL that can be used");
    let memory = Client::builder().store(Memory::new()).expect("a client");
    parent.fork(move |parent| {
        for client in [lazy, memory] {
            let request = client.lock("sync:2").wait(Duration::from_secs(30));
            is_refused(
                "an unused client",
                at_once("an unused client", request.acquire()),
            );
        }
        parent.end();
    });
}

fn refused_attribute(parent: Parent<'_>) {
    is_refused("a locked function", at_once("a locked function", job(2)));
    parent.end();
}

/// A client of another process is no outage: nothing runs in place of what it would have guarded.
fn refused_fallback(parent: Parent<'_>) {
    #[distributed_lock(key = "sync:2", on_unavailable = local)]
    async fn local() -> Result<(), Error> {
        panic!("it ran")
    }
    #[distributed_lock(key = "sync:2", on_unavailable = run)]
    async fn unguarded() -> Result<(), Error> {
        panic!("it ran")
    }
    is_refused("a local lock", at_once("a local lock", local()));
    is_refused("no lock", at_once("no lock", unguarded()));
    parent.end();
}

/// What the child does to its parent's lease is refused, and changes nothing.
fn refused_lease(parent: Parent<'_>) {
    let lease = parent.lease.share();
    is_refused("a token", at_once("a token", lease.token()));
    is_refused(
        "an extension",
        at_once("an extension", lease.extend(2 * TTL)),
    );
    drop(lease);
    let Parent {
        runtime,
        client,
        lease,
        ..
    } = parent;
    is_refused("a release", at_once("a release", lease.release()));
    drop(client);
    mem::forget(runtime);
}

/// A lease that belongs to another process is none.
fn ended_lease(parent: Parent<'_>) {
    assert!(parent.lease.remaining().is_zero(), "{:?}", parent.lease);
    at_once("the loss", parent.lease.lost());
    parent.end();
}

fn shut_down(parent: Parent<'_>) {
    at_once("shutting down", parent.client.shutdown());
    parent.end();
}

/// The same in the middle of a runtime, whose connection to the server both processes have.
fn within_runtime(parent: Parent<'_>) {
    let runtime = small_runtime();
    let (client, lease) = runtime.block_on(async {
        let client = connect(parent.url).await;
        let lease = take(&client, "sync:3").await.expect("it is free");
        match fork() {
            None => {
                drop(lease);
                is_refused("a call", at_once("a call", take(&client, "sync:4")));
                drop(client);
                exit(0);
            }
            Some(child) => wait_for(child),
        }
        (client, lease)
    });
    Parent {
        runtime,
        client,
        lease,
        url: parent.url,
    }
    .go_on();
    parent.go_on();
}

/// A body that forks, and whose child comes back from it.
fn within_body(parent: Parent<'_>) {
    #[distributed_lock(key = "sync:5", ttl = "1s")]
    async fn forks() -> Result<Option<Pid>, Error> {
        Ok(fork())
    }
    let answer = parent
        .runtime
        .block_on(async { at_once("the end of the call", forks()) });
    if let Ok(Some(child)) = answer {
        wait_for(child);
        parent.go_on();
    } else {
        // Whatever the call in the child answers, it has answered at once.
        parent.end();
    }
}

/// A client of the child's own works, beside that of its parent.
fn anew(parent: Parent<'_>) {
    let runtime = small_runtime();
    runtime.block_on(async {
        let own = connect(parent.url).await;
        let lease = take(&own, "sync:2").await.expect("it is free");
        let pid = format!(":{}", process::id());
        assert!(lease.owner().ends_with(&pid), "{}", lease.owner());
        assert_ne!(lease.owner(), parent.lease.owner());
        match take(&own, "sync:1").await {
            Err(Error::Busy { holder, .. }) => assert!(!holder.ends_with(&pid), "{holder}"),
            other => panic!("the parent has it: {other:?}"),
        }
        // It is renewed here.
        tokio::time::sleep(3 * TTL).await;
        lease
            .extend(2 * TTL)
            .await
            .expect("it is the child's still");
        lease.release().await.expect("it is the child's still");
        own.shutdown().await;
    });
    parent.end();
}

/// It may also take the place of the one that the parent has installed.
fn installed_anew(parent: Parent<'_>) {
    let runtime = small_runtime();
    runtime.block_on(async {
        let own = connect(parent.url).await;
        own.install().expect("the first of this process");
        assert!(matches!(own.install(), Err(Error::AlreadyInstalled)));
        assert_eq!(job(2).await.expect("nobody has it"), 2);
        own.shutdown().await;
    });
    parent.end();
}

/// Owners of a process and of its children never meet, whoever has drawn random numbers ahead.
fn ids(parent: &Parent<'_>) {
    let owners = async |client: Client| {
        let mut owners = HashSet::new();
        for number in 0..100 {
            let lease = take(&client, &format!("{}:{number}", process::id())).await;
            let lease = lease.expect("a key of this process's own");
            owners.insert(
                lease
                    .owner()
                    .split_once('@')
                    .expect("an owner")
                    .0
                    .to_owned(),
            );
        }
        owners
    };
    for _ in 0..2 {
        match fork() {
            None => {
                let own = async { owners(connect(parent.url).await).await };
                for owner in small_runtime().block_on(own) {
                    println!("{owner}");
                }
                exit(0);
            }
            Some(child) => wait_for(child),
        }
    }
    for owner in parent.runtime.block_on(owners(parent.client.clone())) {
        println!("{owner}");
    }
}

fn small_runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}
