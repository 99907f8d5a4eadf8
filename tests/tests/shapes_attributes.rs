//! Other attributes, kept and in either order.
#![warn(unused_must_use, deprecated)]
#![allow(clippy::non_minimal_cfg, clippy::double_must_use)]

use std::future::Future;

use lockattr::{Client, Error, distributed_lock};
use tracing::instrument;

mod shapes_support;
use shapes_support::check;

/// Documented.
#[distributed_lock(key = "docs:<id>")]
/// Twice.
#[must_use]
#[inline]
async fn documented(#[allow(unused_variables)] id: u8) -> Result<u8, Error> {
    Ok(1)
}

#[deprecated = "as a test"]
#[distributed_lock(key = "deprecated")]
async fn deprecated() -> Result<u8, Error> {
    Ok(1)
}

#[cfg(not(any()))]
#[distributed_lock(key = "cfg:<id>")]
#[cfg_attr(all(), must_use)]
async fn conditional(
    id: u8,
    #[cfg(any())] missing: Missing,
    #[cfg(all())] mut there: u8,
) -> Result<u8, Error> {
    there += id;
    Ok(there)
}

#[distributed_lock(key = "cfg-mut")]
async fn conditional_mut(#[cfg(any())] mut missing: Missing) -> Result<u8, Error> {
    Ok(1)
}

#[distributed_lock(key = "expect:<id>")]
#[expect(unused_variables)]
async fn expected(id: u8, unused: u8) -> Result<u8, Error> {
    Ok(id)
}

#[distributed_lock(key = "expect-mut:<id>")]
async fn expected_mut(#[expect(unused_mut)] mut id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[distributed_lock(key = "instrument-below:<id>")]
#[instrument(ret, err)]
async fn instrument_below(mut id: u8) -> Result<u8, Error> {
    id += 1;
    Ok(id)
}

#[instrument(skip(id), fields(id = %id))]
#[distributed_lock(key = "instrument-above:<id>")]
async fn instrument_above(id: u8, mut count: u8) -> Result<u8, Error> {
    count += id;
    Ok(count)
}

#[distributed_lock(key = "outer:<id>", bind = outer)]
#[instrument]
#[distributed_lock(key = "inner:<id>", ttl = "5s", bind = inner)]
async fn two_keys(mut id: u8) -> Result<String, Error> {
    id += 1;
    Ok(format!("{} {} {id}", outer.key(), inner.key()))
}

/// The attribute under another name.
mod renamed {
    use super::Error;
    use lockattr::distributed_lock as locked;

    #[locked(key = "outer-renamed:<id>")]
    #[locked(key = "inner-renamed:<id>")]
    pub(super) async fn two_keys(id: u8) -> Result<u8, Error> {
        Ok(id)
    }
}

#[distributed_lock(key = "made:<id>")]
#[distributed_lock(key = "made-inner:<id>")]
fn two_keys_of_a_future(id: u8) -> impl Future<Output = Result<u8, Error>> {
    let moved = id;
    async move { Ok(moved) }
}

#[async_trait::async_trait]
trait Jobs: Sync {
    async fn below(&self, id: u8) -> Result<u8, Error>;
    async fn above(&self, id: u8) -> Result<u8, Error>;
}

#[async_trait::async_trait]
impl Jobs for () {
    #[distributed_lock(key = "job-below:<id>")]
    #[instrument(skip(self))]
    async fn below(&self, id: u8) -> Result<u8, Error> {
        tokio::task::yield_now().await;
        Ok(id)
    }

    #[instrument(skip(self), ret)]
    #[distributed_lock(key = "job-above:<id>")]
    async fn above(&self, mut id: u8) -> Result<u8, Error> {
        id += 1;
        Ok(id)
    }
}

mod test_cases {
    //! What `test_case` and `rstest` make: a test for each case that calls the one function.

    use super::{Error, check, distributed_lock};

    #[distributed_lock(key = "case:<a>")]
    async fn case(a: u8, b: u8) -> Result<u8, Error> {
        Ok(a + b)
    }

    macro_rules! cases {
        ($($name:ident($a:expr, $b:expr) => $sum:expr;)*) => {
            $(
                #[tokio::test]
                async fn $name() {
                    let key = format!("case:{}", $a);
                    check(&key, $sum, async || case($a, $b).await).await;
                }
            )*
        };
    }
    cases! {
        one_and_two(1, 2) => 3;
        two_and_three(2, 3) => 5;
    }
}

#[distributed_lock(key = "above-test", on_unavailable = skip, on_busy = skip)]
#[tokio::test]
async fn above_tokio_test() {
    unreachable!("no client is installed");
}

#[distributed_lock(key = "above-test-result", on_unavailable = return Ok(()))]
#[tokio::test(flavor = "multi_thread")]
async fn above_tokio_test_with_a_result() -> Result<(), Error> {
    unreachable!("no client is installed");
}

#[tokio::test]
async fn kept() {
    check("docs:1", 1, async || documented(1).await).await;
    #[expect(deprecated)]
    check("deprecated", 1, async || deprecated().await).await;
    #[expect(unused_must_use)]
    {
        documented(1);
    }
}

#[tokio::test]
async fn conditions() {
    check("cfg:1", 3, async || conditional(1, 2).await).await;
    check("cfg-mut", 1, async || conditional_mut().await).await;
    check("expect:1", 1, async || expected(1, 2).await).await;
    check("expect-mut:1", 1, async || expected_mut(1).await).await;
}

#[tokio::test]
async fn instrumented() {
    check("instrument-below:1", 2, async || instrument_below(1).await).await;
    check("instrument-above:1", 3, async || {
        instrument_above(1, 2).await
    })
    .await;
    check("job-below:1", 1, async || ().below(1).await).await;
    check("job-above:1", 2, async || ().above(1).await).await;
}

#[tokio::test]
async fn two_of_ours() {
    for key in ["outer:1", "inner:1"] {
        check(key, "outer:1 inner:1 2".to_owned(), async || {
            two_keys(1).await
        })
        .await;
    }
    for key in ["made:1", "made-inner:1"] {
        check(key, 1, async || two_keys_of_a_future(1).await).await;
    }
}

#[tokio::test]
async fn two_keys_are_taken_in_the_order_written() {
    let locks = Client::connect("memory:").await.unwrap();
    let _outer = locks.lock("outer:1").acquire().await.unwrap();
    let _inner = locks.lock("inner:1").acquire().await.unwrap();
    match locks.scope(two_keys(1)).await {
        Err(Error::Busy { key, .. }) => assert_eq!(key, "outer:1"),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn two_keys_are_taken_in_the_order_written_under_another_name() {
    let locks = Client::connect("memory:").await.unwrap();
    let _outer = locks.lock("outer-renamed:1").acquire().await.unwrap();
    let _inner = locks.lock("inner-renamed:1").acquire().await.unwrap();
    match locks.scope(renamed::two_keys(1)).await {
        Err(Error::Busy { key, .. }) => assert_eq!(key, "outer-renamed:1"),
        other => panic!("{other:?}"),
    }
}
