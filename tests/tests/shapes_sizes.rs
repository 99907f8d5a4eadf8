//! The future: `Send` exactly when the body's is, and no larger than it by more than is stated.

#![allow(clippy::large_types_passed_by_value, clippy::unused_async)]

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use lockattr::{Client, Error, distributed_lock};

/// What the attribute may add to a body's future. The arguments are counted apart: an async fn
/// keeps them beside the block they are moved into.
const ADDED: usize = 2048;

fn size<F: Future>(_: &F) -> usize {
    size_of::<F>()
}

fn send<F: Send>(future: F) -> F {
    future
}

async fn large_plain(id: u64) -> Result<u8, Error> {
    let large = [1; 10_000];
    tokio::task::yield_now().await;
    Ok(large[usize::try_from(id).unwrap_or(0)])
}

#[distributed_lock(key = "large:<id>")]
async fn large(id: u64) -> Result<u8, Error> {
    let large = [1; 10_000];
    tokio::task::yield_now().await;
    Ok(large[usize::try_from(id).unwrap_or(0)])
}

#[distributed_lock(key = "small")]
async fn small() -> Result<u8, Error> {
    Ok(1)
}

#[distributed_lock(key = "twice")]
#[distributed_lock(key = "twice-inner")]
async fn twice() -> Result<u8, Error> {
    let large = [1; 10_000];
    tokio::task::yield_now().await;
    Ok(large[0])
}

#[distributed_lock(key = "argument")]
async fn large_argument(large: [u8; 10_000]) -> Result<u8, Error> {
    tokio::task::yield_now().await;
    Ok(large[0])
}

async fn large_argument_plain(large: [u8; 10_000]) -> Result<u8, Error> {
    tokio::task::yield_now().await;
    Ok(large[0])
}

#[test]
fn the_body_is_there_once() {
    let plain = size(&large_plain(0));
    let guarded = size(&large(0));
    assert!(guarded <= plain + ADDED, "{plain} became {guarded}");
    let guarded = size(&small());
    assert!(guarded <= ADDED, "{guarded}");
    let guarded = size(&twice());
    assert!(
        guarded <= plain + 2 * ADDED,
        "{plain} became {guarded} with two"
    );
}

#[test]
fn an_argument_is_there_once_more() {
    let plain = size(&large_argument_plain([0; 10_000]));
    let guarded = size(&large_argument([0; 10_000]));
    assert!(
        guarded <= plain + 10_000 + ADDED,
        "{plain} became {guarded}"
    );
}

/// `Send`, and not `Sync`.
type Local = Cell<u8>;

#[distributed_lock(key = "send:<id>")]
async fn sendable(id: u8, local: Local, text: &str) -> Result<u8, Error> {
    tokio::task::yield_now().await;
    local.set(id);
    Ok(local.get() + u8::try_from(text.len()).unwrap_or(0))
}

#[distributed_lock(key = "send:<local.get()>")]
async fn sendable_in_the_key(local: Local) -> Result<u8, Error> {
    tokio::task::yield_now().await;
    Ok(local.get())
}

#[distributed_lock(key = "generic:<id>")]
async fn generic<T: Clone + Send>(id: u8, value: T) -> Result<T, Error> {
    let value = value.clone();
    tokio::task::yield_now().await;
    let _ = id;
    Ok(value)
}

#[distributed_lock(key = "callback")]
async fn callback<F: AsyncFn(&str) -> usize>(call: F) -> Result<usize, Error> {
    Ok(call("text").await)
}

#[distributed_lock(key = "continue", on_lost = continue)]
async fn to_the_end(local: Local) -> Result<u8, Error> {
    tokio::task::yield_now().await;
    Ok(local.get())
}

struct Service {
    locks: Client,
    names: Vec<String>,
}

impl Service {
    #[distributed_lock(key = "each:<name>", client = self.locks)]
    async fn each(&self, name: &str) -> Result<usize, Error> {
        let mut total = 0;
        for other in self.names.iter().filter(|other| *other != name) {
            tokio::task::yield_now().await;
            total += other.len();
        }
        Ok(total)
    }

    #[distributed_lock(key = "spawned:<name>", client = &self.locks)]
    async fn mutable<'a>(&mut self, name: &'a str) -> Result<&'a str, Error> {
        tokio::task::yield_now().await;
        self.names.push(name.to_owned());
        Ok(name)
    }
}

#[distributed_lock(key = "not-send")]
async fn not_sendable(shared: Rc<u8>) -> Result<u8, Error> {
    tokio::task::yield_now().await;
    Ok(*shared)
}

#[tokio::test]
async fn send_when_the_body_is() {
    let locks = Client::connect("memory:").await.unwrap();
    assert_eq!(
        locks
            .scope(send(sendable(1, Cell::new(0), "a")))
            .await
            .unwrap(),
        2
    );
    assert_eq!(
        locks
            .scope(send(sendable_in_the_key(Cell::new(3))))
            .await
            .unwrap(),
        3
    );
    assert_eq!(
        locks.scope(send(generic(1, Cell::new(1)))).await.unwrap(),
        Cell::new(1)
    );
    assert_eq!(
        locks.scope(send(to_the_end(Cell::new(3)))).await.unwrap(),
        3
    );
    let length = callback(async |text: &str| text.len());
    assert_eq!(locks.scope(length).await.unwrap(), 4);
    let mut service = Service {
        locks,
        names: vec!["ab".into(), "c".into()],
    };
    assert_eq!(send(service.mutable("d")).await.unwrap(), "d");
    let spawned = tokio::spawn(async move { service.each("c").await });
    assert_eq!(spawned.await.unwrap().unwrap(), 3);
}

/// `true` for a future that is `Send`: an inherent method is found before a trait's.
macro_rules! is_send {
    ($future:expr) => {{
        #[allow(dead_code)]
        struct Is<T>(T);
        #[allow(dead_code)]
        trait Not {
            fn is_send(&self) -> bool {
                false
            }
        }
        impl<T> Not for Is<T> {}
        #[allow(dead_code)]
        impl<T: Send> Is<T> {
            fn is_send(&self) -> bool {
                true
            }
        }
        Is($future).is_send()
    }};
}

/// Its result is not `Send`, and is nowhere while it waits.
#[distributed_lock(key = "local-result:<id>")]
async fn local_result(id: u8) -> Result<Rc<u8>, Error> {
    tokio::task::yield_now().await;
    Ok(Rc::new(id))
}

#[distributed_lock(key = "local-result-continue:<id>", on_lost = continue)]
async fn local_result_to_the_end(id: u8) -> Result<Rc<u8>, Error> {
    tokio::task::yield_now().await;
    Ok(Rc::new(id))
}

/// Its result may be anything.
#[distributed_lock(key = "any-result")]
async fn any_result<T, F: Future<Output = T> + Send>(future: F) -> Result<T, Error> {
    Ok(future.await)
}

#[test]
fn not_send_when_the_body_is_not() {
    assert!(is_send!(small()));
    assert!(!is_send!(not_sendable(1.into())));
}

#[tokio::test]
async fn send_when_only_the_result_is_not() {
    let locks = Client::connect("memory:").await.unwrap();
    for _ in 0..2 {
        let result = locks.scope(send(local_result(1))).await.unwrap();
        assert_eq!(*result, 1);
        let result = locks.scope(send(local_result_to_the_end(1))).await.unwrap();
        assert_eq!(*result, 1);
        let result = locks
            .scope(send(any_result(async { Rc::new(1) })))
            .await
            .unwrap();
        assert_eq!(*result, 1);
        // Their leases are given back in the background.
        for key in ["local-result:1", "local-result-continue:1", "any-result"] {
            let wait = std::time::Duration::from_secs(5);
            locks
                .lock(key)
                .wait(wait)
                .acquire()
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
    }
}

/// Chains of guarded functions compile until the compiler's own limit for `Send`.
mod chain {
    use super::{Error, distributed_lock};

    macro_rules! chain {
        ($($name:ident => $next:ident;)*) => {
            $(
                #[distributed_lock(key = "chain:<n>")]
                pub(super) async fn $name(n: u64) -> Result<u64, Error> {
                    tokio::task::yield_now().await;
                    $next(n + 1).await
                }
            )*
        };
    }
    chain! {
        a => b; b => c; c => d; d => e; e => f; f => g; g => h; h => i; i => j; j => last;
    }

    async fn last(n: u64) -> Result<u64, Error> {
        Ok(n)
    }
}

#[tokio::test]
async fn ten_calls_deep() {
    let locks = Client::connect("memory:").await.unwrap();
    let deep = tokio::spawn(async move { locks.scope(Box::pin(chain::a(0))).await });
    assert_eq!(deep.await.unwrap().unwrap(), 10);
}
