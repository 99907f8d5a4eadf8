//! The locks of a store as they look from outside, whichever store it is.

use std::collections::BTreeMap;

use lockattr::store::inspect::{Ended, Entry, EntryKind, Listed, Missing, Shown};
use lockattr::{Client, Inspector, Lease};

fn inspector(client: &Client) -> Inspector<'_> {
    client.inspect().expect("a store that can be looked into")
}

/// Everything that is listed by a pattern, by key; no key twice, and nothing missing.
pub async fn list(client: &Client, pattern: &str) -> BTreeMap<String, Listed> {
    let (locks, missing) = list_parts(client, pattern).await;
    assert!(missing.is_empty(), "{missing:?}");
    locks
}

/// The same with what is missing.
pub async fn list_parts(
    client: &Client,
    pattern: &str,
) -> (BTreeMap<String, Listed>, Vec<Missing>) {
    let inspector = inspector(client);
    let mut listing = inspector.list(pattern);
    let (mut locks, mut missing) = (BTreeMap::new(), Vec::new());
    while let Some(page) = listing.next().await.expect("a page") {
        for listed in page.locks {
            let twice = locks.insert(listed.lock.clone(), listed);
            assert!(twice.is_none(), "listed twice: {twice:?}");
        }
        missing.extend(page.missing);
    }
    (locks, missing)
}

/// What there is of a key.
pub async fn show(client: &Client, key: &str) -> Shown {
    let shown = inspector(client).show(key).await.expect("an answer");
    assert_eq!(shown.listed.lock, key);
    shown
}

/// The only entry of a key.
pub async fn entry(client: &Client, key: &str) -> Entry {
    let shown = show(client, key).await;
    let [entry] = shown.listed.entries.as_slice() else {
        panic!("{shown:?}")
    };
    entry.clone()
}

/// Ends what stands under a key.
pub async fn end(client: &Client, key: &str, entry: &Entry) -> Ended {
    let ended = inspector(client).end(key, entry).await;
    ended.expect("an answer")
}

/// Whether an entry is that of a lease.
pub fn is_held_by(entry: &Entry, lease: &Lease) -> bool {
    matches!(&entry.kind, EntryKind::Held { owner, .. } if *owner == lease.owner())
}
