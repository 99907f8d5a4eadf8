//! A process that forks: parent and child never hold a lock under one owner.

use lockattr::{Client, Error, Memory};
use std::io::{Read, Write, pipe};

extern "C" {
    fn fork() -> i32;
    fn waitpid(process: i32, status: *mut i32, options: i32) -> i32;
    fn _exit(status: i32) -> !;
}

/// The owner of one more lease, or why there is none.
fn next_owner(locks: &Client) -> Result<String, Error> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let lease = locks.lock("sync:42").acquire().await?;
        let owner = lease.owner().to_owned();
        lease.release().await?;
        Ok(owner)
    })
}

#[test]
fn parent_and_child_draw_different_owners() {
    let locks = Client::builder().store(Memory::new()).unwrap();
    // Some are drawn ahead now.
    next_owner(&locks).unwrap();
    let (mut told, mut tells) = pipe().unwrap();
    // SAFETY: the child uses nothing that another thread could hold but the allocator, which takes care
    // of that itself.
    let child = unsafe { fork() };
    assert!(child >= 0);
    if child == 0 {
        let text = match next_owner(&locks) {
            Ok(owner) => owner,
            Err(error) => error.to_string(),
        };
        let told = tells.write_all(text.as_bytes());
        // SAFETY: it ends here, without the parent's destructors.
        unsafe { _exit(i32::from(told.is_err())) }
    }
    drop(tells);
    let parent = next_owner(&locks).unwrap();
    let mut theirs = String::new();
    told.read_to_string(&mut theirs).unwrap();
    // SAFETY: the process is our own child.
    let ended = unsafe { waitpid(child, std::ptr::null_mut(), 0) };
    assert_eq!(ended, child);
    println!("{parent}, {theirs}");
    assert!(
        parent.ends_with(&format!(":{}", std::process::id())),
        "{parent}"
    );
    if let Some((id, place)) = theirs.split_once('@') {
        assert_ne!(id, &parent[..32]);
        // All but the time is drawn anew.
        assert_ne!(id[12..], parent[12..32]);
        assert!(place.ends_with(&format!(":{child}")), "{place}");
    } else {
        assert!(theirs.contains("process"), "{theirs}");
    }
}
