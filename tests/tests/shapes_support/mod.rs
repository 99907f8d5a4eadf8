//! What every shape is put through.

use std::fmt::Debug;

use lockattr::{Client, Error};

/// Calls a guarded function while its key is free, while it is held, and once more: its value, then
/// busy, then its value. The key is the proof of what the template rendered to.
pub(crate) async fn check<T: PartialEq + Debug>(
    key: &str,
    value: T,
    call: impl AsyncFn() -> Result<T, Error>,
) {
    let locks = Client::connect("memory:").await.unwrap();
    assert_eq!(locks.scope(call()).await.unwrap(), value);
    let held = locks.lock(key).acquire().await.unwrap();
    match locks.scope(call()).await {
        Err(Error::Busy { .. }) => {}
        other => panic!("{key} is held, and the call answered {other:?}"),
    }
    held.release().await.unwrap();
    assert_eq!(locks.scope(call()).await.unwrap(), value);
}
