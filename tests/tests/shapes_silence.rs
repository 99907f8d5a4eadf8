//! The expansion says nothing of its own, and does not silence what is the user's.
#![deny(
    warnings,
    missing_docs,
    unused_qualifications,
    unreachable_pub,
    elided_lifetimes_in_paths
)]
#![deny(clippy::pedantic, clippy::nursery)]
#![deny(unused, future_incompatible, let_underscore_drop, single_use_lifetimes)]
#![deny(clippy::absolute_paths, clippy::shadow_reuse, clippy::shadow_unrelated)]
#![deny(
    clippy::implicit_return,
    clippy::pattern_type_mismatch,
    clippy::as_conversions
)]
#![deny(
    clippy::unwrap_used,
    clippy::panic,
    clippy::let_underscore_must_use,
    clippy::unreachable
)]
#![deny(
    clippy::min_ident_chars,
    clippy::single_call_fn,
    clippy::std_instead_of_core
)]
#![deny(clippy::allow_attributes, clippy::exhaustive_structs)]
// What the code below does as its author, and not the expansion.
#![allow(
    clippy::implicit_return,
    unreachable_pub,
    clippy::single_call_fn,
    clippy::unused_async,
    clippy::std_instead_of_core,
    clippy::future_not_send,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    clippy::absolute_paths,
    clippy::tests_outside_test_module
)]

use std::fmt::Display;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use lockattr::{Client, Error, distributed_lock};

/// Documented, as the lint asks.
#[derive(Debug)]
pub struct Service {
    name: String,
    locks: Client,
}

impl Service {
    /// With every argument there is.
    #[distributed_lock(
        key = "every:<self.name>:<id>:<pair.0>",
        ttl = "1m 30s",
        wait = wait,
        on_busy = return Ok(id),
        on_unavailable = error,
        on_lost = return Err(Error::NotInstalled),
        renew = true,
        bind = lease,
        client = self.locks
    )]
    pub async fn every(&self, mut id: u64, pair: (u8, u8), wait: Duration) -> Result<u64, Error> {
        id += lease.token().await?;
        tokio::task::yield_now().await;
        if id == 0 {
            return Ok(u64::from(pair.1));
        }
        Ok(id)
    }
}

/// One line.
#[rustfmt::skip]
#[distributed_lock(key = "line:<id>")]
pub async fn one_line(id: u8) -> Result<u8, Error> { Ok(id) }

/// Nothing.
#[distributed_lock(key = "unit", on_busy = skip)]
pub async fn unit() {}

/// Nothing, said.
#[distributed_lock(key = "unit", on_busy = skip, on_lost = continue)]
pub async fn unit_said() -> () {
    tokio::task::yield_now().await;
}

/// Opaque in and out.
#[distributed_lock(key = "opaque:<id>", renew = false, ttl = "1.5s")]
pub async fn opaque(id: impl Display) -> Result<impl Display, Error> {
    Ok(format!("{id}"))
}

/// Kept for later calls.
#[distributed_lock(key = "kept:<id>", once = "1h", once_from = begin, on_done = replay)]
pub async fn kept(id: u8) -> Result<u8, Error> {
    Ok(id)
}

/// The same of nothing.
#[distributed_lock(key = "kept-unit", once = "1h", on_busy = skip, on_done = replay)]
pub async fn kept_unit() {}

/// Always returns.
#[distributed_lock(key = "return", on_busy = skip)]
pub async fn always_returns(id: u8) -> Option<u8> {
    if id > 1 {
        return None;
    } else if id > 2 {
        return Some(2);
    }
    return Some(1);
}

/// Borrows.
#[distributed_lock(key = "borrow:<text>", on_busy = skip)]
pub async fn borrows(text: &str) -> Option<&str> {
    text.get(1..)
}

/// Generic.
#[distributed_lock(key = "generic:<id>")]
pub async fn generic<T: Display + Send + Sync>(id: T) -> Result<T, Error> {
    tokio::task::yield_now().await;
    Ok(id)
}

/// On a thread.
#[distributed_lock(key = "thread:<id>", on_busy = return Ok(0), bind = lease, blocking)]
pub fn on_a_thread(mut id: usize, text: &str) -> Result<usize, Error> {
    id += lease.key().len();
    if text.is_empty() {
        return Ok(id);
    }
    Ok(text.len())
}

/// Nothing, on a thread.
#[distributed_lock(key = "thread", on_busy = skip, blocking)]
pub fn unit_on_a_thread() {}

/// Opaque, on a thread.
#[distributed_lock(key = "thread:<id>", on_lost = return Err(Error::NotInstalled), blocking)]
#[distributed_lock(key = "thread-inner", on_lost = continue, blocking)]
pub fn opaque_on_a_thread(id: impl Display) -> Result<impl Display, Error> {
    Ok(format!("{id}"))
}

/// A stream.
#[distributed_lock(key = "stream:<id>", on_lost = continue)]
#[distributed_lock(key = "stream-inner:<id>", on_busy = skip)]
pub fn stream(id: u8) -> impl Stream<Item = Result<u8, Error>> + Send {
    items_of(Ok(id))
}

/// A boxed one.
#[distributed_lock(key = "stream:<text>", on_busy = return text, on_lost = return text)]
pub fn boxed_stream(text: &str) -> Pin<Box<dyn Stream<Item = &str> + Send + '_>> {
    if text.is_empty() {
        return Box::pin(items_of(text));
    }
    Box::pin(items_of(text))
}

fn items_of<T: Send>(item: T) -> impl Stream<Item = T> + Send {
    Made(Some(item))
}

struct Made<T>(Option<T>);

impl<T> Unpin for Made<T> {}

impl<T> Stream for Made<T> {
    type Item = T;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<T>> {
        Poll::Ready(self.0.take())
    }
}

/// Two keys.
#[distributed_lock(key = "two:<id>")]
#[distributed_lock(key = "two-inner:<id>")]
pub async fn two(id: u8) -> Result<u8, Error> {
    Ok(id)
}

/// A future at the end.
#[distributed_lock(key = "future:<id>")]
pub fn future(id: u8) -> impl Future<Output = Result<u8, Error>> + Send {
    async move { Ok(id) }
}

/// A boxed one.
#[distributed_lock(key = "boxed:<id>")]
pub fn boxed(id: u8) -> Pin<Box<dyn Future<Output = Result<u8, Error>> + Send>> {
    Box::pin(async move { Ok(id) })
}

/// A boxed one, made.
#[distributed_lock(key = "made:<id>")]
pub fn made(id: u8) -> Pin<Box<dyn Future<Output = Result<u8, Error>> + Send>> {
    let inner = one_line(id);
    Box::pin(inner)
}

/// A boxed one, returned.
#[distributed_lock(key = "returned:<id>")]
pub fn returned(id: u8) -> Pin<Box<dyn Future<Output = Result<u8, Error>> + Send>> {
    if id > 1 {
        return Box::pin(one_line(id));
    }
    return Box::pin(future(id));
}

/// With a trait.
#[async_trait::async_trait]
pub trait Jobs {
    /// With a body.
    #[distributed_lock(key = "job:<id>", on_busy = skip)]
    async fn run(&self, id: u8) -> Option<u8> {
        Some(id)
    }
}

mod forbidden {
    //! What no `allow` of an expansion could lift.
    #![forbid(warnings, clippy::pedantic, clippy::nursery)]

    use lockattr::{Error, distributed_lock};

    #[distributed_lock(key = "forbidden:<id>", bind = lease, on_busy = return Ok(1))]
    pub async fn forbidden(mut id: u8) -> Result<u8, Error> {
        id += u8::from(lease.key().is_empty());
        tokio::task::yield_now().await;
        Ok(id)
    }
}

mod not_silenced {
    //! What the user's own lints still see.

    use lockattr::{Error, distributed_lock};

    #[distributed_lock(key = "unused:<id>")]
    #[expect(unused_variables)]
    pub async fn unused_argument(id: u8, unused: u8) -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "unused-mut:<id>")]
    #[expect(unused_variables, unused_mut)]
    pub async fn unused_mut(id: u8, mut unused: u8) -> Result<u8, Error> {
        Ok(id)
    }

    #[distributed_lock(key = "needless-mut:<id>")]
    #[expect(unused_mut)]
    pub async fn needless_mut(id: u8, mut used: u8) -> Result<u8, Error> {
        Ok(id + used)
    }

    #[distributed_lock(key = "unused-lease", bind = lease)]
    #[expect(unused_variables)]
    pub async fn unused_lease() -> Result<(), Error> {
        Ok(())
    }

    #[distributed_lock(key = "unreachable")]
    #[expect(unused_must_use)]
    pub async fn in_the_body(id: u8) -> Result<u8, Error> {
        id.checked_add(1);
        return Ok(id);
    }

    #[distributed_lock(key = "dead")]
    #[expect(dead_code)]
    async fn dead() -> Result<(), Error> {
        Ok(())
    }
}

#[tokio::test]
async fn all_of_it_runs() -> Result<(), Error> {
    let locks = Client::connect("memory:").await?;
    let service = Service {
        name: "s".to_owned(),
        locks: locks.clone(),
    };
    assert!(service.every(1, (1, 2), Duration::ZERO).await? > 1);
    let all = async {
        unit().await;
        unit_said().await;
        assert_eq!(always_returns(1).await, Some(1));
        assert_eq!(kept(1).await?, kept(1).await?);
        kept_unit().await;
        assert_eq!(borrows("ab").await, Some("b"));
        assert_eq!(format!("{}", opaque(1).await?), "1");
        let sum = one_line(1).await?
            + generic(1).await?
            + two(1).await?
            + future(1).await?
            + boxed(1).await?
            + made(1).await?
            + returned(1).await?;
        assert_eq!(sum, 7);
        assert_eq!(forbidden::forbidden(1).await?, 1);
        not_silenced::unused_argument(1, 1).await?;
        not_silenced::unused_lease().await?;
        not_silenced::unused_mut(1, 1).await?;
        not_silenced::needless_mut(1, 1).await?;
        not_silenced::in_the_body(1).await
    };
    assert_eq!(locks.scope(Box::pin(all)).await?, 1);
    Ok(())
}
