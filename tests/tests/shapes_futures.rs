//! Functions that are not `async`, and return their future.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;

use lockattr::{Client, Error, distributed_lock};

mod shapes_support;
use shapes_support::check;

type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

trait Boxes: Future + Sized {
    fn boxed<'a>(self) -> BoxFuture<'a, Self::Output>
    where
        Self: Send + 'a,
    {
        Box::pin(self)
    }
}

impl<F: Future> Boxes for F {}

#[derive(Clone)]
struct Service {
    name: String,
}

fn service() -> Service {
    Service { name: "s".into() }
}

#[distributed_lock(key = "opaque:<id>")]
fn opaque(id: u8) -> impl Future<Output = Result<Box<dyn std::fmt::Display + Send>, Error>> {
    async move {
        if id == 1 {
            return Ok(Box::new("one") as _);
        }
        Ok(Box::new(id))
    }
}

#[distributed_lock(key = "opaque-send:<id>")]
fn opaque_send(id: u8) -> impl Future<Output = Result<u8, Error>> + Send + 'static {
    async move { Ok(id) }
}

#[distributed_lock(key = "boxed:<id>")]
fn boxed(id: u8) -> Pin<Box<dyn Future<Output = Result<u8, Error>> + Send>> {
    Box::pin(async move { Ok(id) })
}

#[distributed_lock(key = "local:<id>")]
fn local(id: std::rc::Rc<u8>) -> Pin<Box<dyn Future<Output = Result<u8, Error>>>> {
    Box::pin(async move {
        tokio::task::yield_now().await;
        Ok(*id)
    })
}

#[distributed_lock(key = "alias:<text>")]
fn alias(text: &str) -> BoxFuture<'_, Result<&str, Error>> {
    async move { Ok(text) }.boxed()
}

#[distributed_lock(key = "used-up:<name>")]
fn uses_up_its_argument(name: String) -> impl Future<Output = Result<usize, Error>> {
    let bytes = name.into_bytes();
    async move { Ok(bytes.len()) }
}

#[distributed_lock(key = "returns:<id>")]
fn returns_early(id: u8) -> BoxFuture<'static, Result<u8, Error>> {
    if id == 0 {
        return Box::pin(async { Ok(0) });
    }
    Box::pin(async move { Ok(id) })
}

#[distributed_lock(key = "returns-opaque:<id>")]
fn returns_early_opaque(id: u8) -> impl Future<Output = Result<u8, Error>> {
    if id == 0 {
        return inner(10);
    }
    inner(id)
}

async fn inner(id: u8) -> Result<u8, Error> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[distributed_lock(key = "macro:<id>")]
fn after_a_macro(id: u8) -> impl Future<Output = Result<u8, Error>> + Send {
    assert!(id > 0);
    async move { Ok(id) }
}

#[distributed_lock(key = "ready:<id>")]
fn ready(id: u8) -> impl Future<Output = Result<u8, Error>> {
    std::future::ready(Ok(id))
}

impl Service {
    #[distributed_lock(key = "detached:<self.name>")]
    fn detached(&self) -> impl Future<Output = Result<String, Error>> + Send + use<> {
        let this = self.clone();
        async move { Ok(this.name) }
    }

    #[distributed_lock(key = "detached-made:<self.name>")]
    fn detached_made(&self) -> BoxFuture<'static, Result<String, Error>> {
        let this = self.clone();
        let future = async move { Ok(this.name) };
        Box::pin(future)
    }

    #[distributed_lock(key = "borrowed:<self.name>")]
    fn borrowed<'a>(
        &'a mut self,
    ) -> Pin<Box<dyn Future<Output = Result<&'a str, Error>> + Send + 'a>> {
        Box::pin(async move {
            self.name.push('!');
            Ok(&*self.name)
        })
    }

    #[distributed_lock(key = "borrowed-made:<self.name>")]
    fn borrowed_made(&mut self) -> BoxFuture<'_, Result<&mut String, Error>> {
        let name = &mut self.name;
        if name.is_empty() {
            return Box::pin(async move { Ok(name) });
        }
        name.push('!');
        Box::pin(async move { Ok(name) })
    }
}

trait InTrait {
    #[distributed_lock(key = "trait:<id>")]
    fn in_trait(&self, id: u8) -> impl Future<Output = Result<u8, Error>> + Send {
        async move { Ok(id) }
    }
}

impl InTrait for Service {}

#[tokio::test]
async fn a_future_at_the_end() {
    check("opaque:1", "one".to_owned(), async || {
        Ok(opaque(1).await?.to_string())
    })
    .await;
    check("opaque-send:1", 1, async || opaque_send(1).await).await;
    check("boxed:1", 1, async || boxed(1).await).await;
    check("local:1", 1, async || local(1.into()).await).await;
    check("alias:x", "x", async || alias("x").await).await;
    check("used-up:abc", 3, async || {
        uses_up_its_argument("abc".into()).await
    })
    .await;
    check("detached:s", "s".to_owned(), async || {
        service().detached().await
    })
    .await;
    check("borrowed:s", "s!".to_owned(), async || {
        Ok(service().borrowed().await?.to_owned())
    })
    .await;
    check("trait:1", 1, async || service().in_trait(1).await).await;
}

#[tokio::test]
async fn any_other_body() {
    check("returns:0", 0, async || returns_early(0).await).await;
    check("returns:1", 1, async || returns_early(1).await).await;
    check("returns-opaque:0", 10, async || {
        returns_early_opaque(0).await
    })
    .await;
    check("macro:1", 1, async || after_a_macro(1).await).await;
    check("ready:1", 1, async || ready(1).await).await;
    check("detached-made:s", "s".to_owned(), async || {
        service().detached_made().await
    })
    .await;
    check("borrowed-made:s", "s!".to_owned(), async || {
        Ok(service().borrowed_made().await?.clone())
    })
    .await;
}

#[distributed_lock(key = "at-once:<id>")]
fn at_once<'a>(
    id: u8,
    steps: &'a RefCell<Vec<&'static str>>,
) -> impl Future<Output = Result<u8, Error>> + use<'a> {
    steps.borrow_mut().push("made");
    async move {
        steps.borrow_mut().push("polled");
        Ok(id)
    }
}

#[tokio::test]
async fn statements_before_the_future_run_at_once() {
    let locks = Client::connect("memory:").await.unwrap();
    let steps = RefCell::default();
    let future = at_once(1, &steps);
    assert_eq!(*steps.borrow(), ["made"]);
    assert_eq!(locks.scope(future).await.unwrap(), 1);
    assert_eq!(*steps.borrow(), ["made", "polled"]);
}
