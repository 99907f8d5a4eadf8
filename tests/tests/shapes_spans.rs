//! A body is inside the span of an `#[instrument]` below the attribute.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Mutex;

use lockattr::{Client, Error, distributed_lock};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber, instrument};

type BoxFuture = Pin<Box<dyn Future<Output = Result<String, Error>> + Send>>;

thread_local! {
    /// The spans that the thread is in, the innermost last.
    static ENTERED: RefCell<Vec<&'static str>> = const { RefCell::new(Vec::new()) };
}

/// The name of the span that its caller is in.
async fn innermost(_: u8) -> Result<String, Error> {
    tokio::task::yield_now().await;
    let name = ENTERED.with_borrow(|entered| entered.last().copied());
    Ok(name.unwrap_or("none").to_owned())
}

#[async_trait::async_trait]
trait Jobs: Sync {
    async fn quiet(&self, id: u8) -> Result<String, Error>;
    async fn told(&self, id: u8) -> Result<String, Error>;
}

#[async_trait::async_trait]
impl Jobs for () {
    #[distributed_lock(key = "quiet:<id>")]
    #[instrument(skip(self))]
    async fn quiet(&self, id: u8) -> Result<String, Error> {
        innermost(id).await
    }

    #[distributed_lock(key = "told:<id>")]
    #[instrument(skip(self), ret, err)]
    async fn told(&self, id: u8) -> Result<String, Error> {
        innermost(id).await
    }
}

#[distributed_lock(key = "function:<id>")]
#[instrument(ret, err)]
async fn function(id: u8) -> Result<String, Error> {
    innermost(id).await
}

#[distributed_lock(key = "boxed:<id>")]
#[instrument(ret, err)]
fn boxed(id: u8) -> BoxFuture {
    const MORE: u8 = 1;
    let more = id + MORE;
    Box::pin(async move { innermost(more).await })
}

#[distributed_lock(key = "opaque:<id>")]
#[distributed_lock(key = "opaque-inner:<id>")]
#[instrument]
fn opaque(id: u8) -> impl Future<Output = Result<String, Error>> {
    let more = id + 1;
    async move { innermost(more).await }
}

#[distributed_lock(key = "made:<id>")]
#[instrument]
fn made(id: u8) -> BoxFuture {
    if id == 0 {
        return Box::pin(async { Ok("early".to_owned()) });
    }
    Box::pin(innermost(id))
}

/// Tells a thread which spans it is in.
#[derive(Default)]
struct Spans(Mutex<Vec<&'static str>>);

impl Subscriber for Spans {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        // That of the locked call stands around or inside the others, as they are expanded.
        metadata.is_span() && metadata.target() != "lockattr"
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut names = self.0.lock().unwrap();
        names.push(span.metadata().name());
        Id::from_u64(u64::try_from(names.len()).unwrap())
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, _: &Event<'_>) {}

    fn enter(&self, span: &Id) {
        let index = usize::try_from(span.into_u64()).unwrap() - 1;
        let name = self.0.lock().unwrap()[index];
        ENTERED.with_borrow_mut(|entered| entered.push(name));
    }

    fn exit(&self, _: &Id) {
        ENTERED.with_borrow_mut(Vec::pop);
    }
}

#[tokio::test]
async fn a_body_is_inside_its_span() {
    let _subscriber = tracing::subscriber::set_default(Spans::default());
    let locks = Client::connect("memory:").await.unwrap();
    let all = async {
        assert_eq!(().quiet(1).await.unwrap(), "quiet");
        assert_eq!(().told(1).await.unwrap(), "told");
        assert_eq!(function(1).await.unwrap(), "function");
        assert_eq!(boxed(1).await.unwrap(), "boxed");
        assert_eq!(opaque(1).await.unwrap(), "opaque");
        assert_eq!(made(1).await.unwrap(), "made");
    };
    locks.scope(Box::pin(all)).await;
}
