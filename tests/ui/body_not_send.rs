//! A future that is not `Send` names the user's value, as that of a plain async fn does.
use std::rc::Rc;

use lockattr::distributed_lock;

#[distributed_lock(key = "a", on_busy = skip)]
async fn guarded() {
    let shared = Rc::new(1);
    tokio::task::yield_now().await;
    drop(shared);
}

async fn plain() {
    let shared = Rc::new(1);
    tokio::task::yield_now().await;
    drop(shared);
}

fn send(_: impl Send) {}

fn main() {
    send(guarded());
    send(plain());
}
