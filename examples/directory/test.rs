//! The store in a directory keeps the promises of a store.

mod store;

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use lockattr::store::conformance;
use lockattr::{Client, Error, distributed_lock};
use rustix::fs::{FlockOperation, flock};

use store::Directory;

/// A directory that is removed when this value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("lockattr-directory-test-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a directory");
        Self(path)
    }

    fn store(&self) -> Directory {
        Directory(self.0.clone())
    }

    fn client(&self) -> Client {
        Client::builder().store(self.store()).expect("a client")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_keeps_the_promises_of_a_store() {
    let scratch = Scratch::new();
    conformance::check(async || scratch.store()).await;
}

#[tokio::test]
async fn since_when_a_lock_is_held_is_read_from_its_owner() {
    let scratch = Scratch::new();
    let (locks, other) = (scratch.client(), scratch.client());
    let _lease = locks.lock("a").acquire().await.expect("it is free");
    let busy = other.lock("a").acquire().await;
    let since = match busy {
        Err(Error::Busy { since, .. }) => since.expect("the id says it"),
        other => panic!("{other:?}"),
    };
    let age = since.elapsed().unwrap_or_default();
    assert!(age < Duration::from_secs(10), "{age:?}");
}

#[tokio::test]
async fn a_directory_that_is_gone_is_an_outage() {
    let scratch = Scratch::new();
    let store = scratch.store();
    drop(scratch);
    conformance::outage(&store).await;
}

#[tokio::test]
async fn a_process_that_stands_still_in_a_step_is_an_outage() {
    let scratch = Scratch::new();
    let guard = fs::File::create(scratch.0.join(".guard")).expect("a file");
    flock(&guard, FlockOperation::LockExclusive).expect("nobody else has it");
    conformance::outage(&scratch.store()).await;
}

#[distributed_lock(key = "shared", ttl = "600ms", wait = "60s", client = locks)]
async fn alone(locks: &Client, is_taken: &AtomicBool) -> Result<(), Error> {
    assert!(!is_taken.swap(true, Ordering::SeqCst), "two at a time");
    tokio::time::sleep(Duration::from_millis(5)).await;
    is_taken.store(false, Ordering::SeqCst);
    Ok(())
}

#[tokio::test]
async fn calls_of_two_clients_run_one_at_a_time() {
    let scratch = Scratch::new();
    let clients = [scratch.client(), scratch.client()];
    let is_taken = Arc::new(AtomicBool::new(false));
    let calls: Vec<_> = (0..20)
        .map(|call| {
            let (locks, is_taken) = (clients[call % 2].clone(), Arc::clone(&is_taken));
            tokio::spawn(async move { alone(&locks, &is_taken).await })
        })
        .collect();
    for call in calls {
        call.await.expect("no panic").expect("its turn");
    }
}

#[tokio::test]
async fn a_file_of_another_form_is_left_as_it_is() {
    let scratch = Scratch::new();
    let file = scratch.0.join("lock:notes");
    for text in ["", "my notes", "99999999999", "x y", "-1 y"] {
        fs::write(&file, text).expect("a file");
        let answer = scratch.client().lock("notes").acquire().await;
        let told = answer.map(drop).expect_err("it is no lock").to_string();
        assert!(told.contains("lock:notes is no lock"), "{text}: {told}");
        assert_eq!(fs::read_to_string(&file).expect("a file"), text);
    }
}

#[tokio::test]
async fn a_key_that_is_too_long_for_a_file_is_refused() {
    let scratch = Scratch::new();
    let answer = scratch.client().lock("k".repeat(300)).acquire().await;
    assert!(
        matches!(answer, Err(Error::Unavailable { .. })),
        "{answer:?}"
    );
}

#[tokio::test]
async fn what_it_cannot_do_is_refused() {
    let scratch = Scratch::new();
    let locks = scratch.client();
    let slots = locks.lock("a").permits(3).acquire().await;
    let several = locks.lock_all(["a", "b"]).acquire().await;
    for answer in [slots, several] {
        assert!(matches!(answer, Err(Error::Invalid { .. })), "{answer:?}");
    }
    let lease = locks.lock("a").acquire().await.expect("it is free");
    lease.release().await.expect("it is held");
}
