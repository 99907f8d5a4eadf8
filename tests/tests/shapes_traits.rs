//! Functions in traits, with the language's own async and with `#[async_trait]`.

use std::sync::Arc;

use async_trait::async_trait;
use lockattr::{Client, Error, distributed_lock};

mod shapes_support;
use shapes_support::check;

struct Worker {
    name: String,
    locks: Option<Client>,
}

fn worker() -> Worker {
    Worker {
        name: "w".into(),
        locks: None,
    }
}

#[allow(async_fn_in_trait)]
trait Native {
    fn name(&self) -> &str;

    #[distributed_lock(key = "default:<self.name()>:<id>")]
    async fn default_body(&self, mut id: u8) -> Result<u8, Error> {
        id += 1;
        Ok(id)
    }

    async fn implemented(&mut self, id: u8) -> Result<&mut String, Error>;

    #[distributed_lock(key = "no-receiver:<id>")]
    async fn without_receiver(id: u8) -> Result<u8, Error>
    where
        Self: Sized,
    {
        Ok(id)
    }
}

impl Native for Worker {
    fn name(&self) -> &str {
        &self.name
    }

    #[distributed_lock(key = "implemented:<self.name>:<id>")]
    async fn implemented(&mut self, id: u8) -> Result<&mut String, Error> {
        self.name.push_str(&id.to_string());
        Ok(&mut self.name)
    }
}

#[async_trait]
trait Boxed: Sync {
    async fn by_ref(&self, id: u8) -> Result<u8, Error>;

    async fn by_mut_ref(&mut self, text: &str) -> Result<String, Error>;

    async fn by_value(self, id: u8) -> Result<String, Error>
    where
        Self: Sized;

    async fn by_arc(self: Arc<Self>, mut id: u8) -> Result<u8, Error>;

    async fn borrows<'a>(&'a self, other: &'a str) -> Result<&'a str, Error>;

    async fn generic<T: std::fmt::Display + Send>(&self, id: T) -> Result<T, Error>
    where
        Self: Sized;

    #[distributed_lock(key = "boxed-default:<id>")]
    async fn default_body(&self, id: u8) -> Result<u8, Error> {
        Ok(id + 1)
    }

    #[distributed_lock(key = "boxed-static:<id>")]
    async fn without_receiver(id: u8) -> Result<u8, Error>
    where
        Self: Sized,
    {
        if id > 9 {
            return Ok(0);
        }
        Ok(id)
    }

    async fn unit(&self, id: u8);
}

#[async_trait]
impl Boxed for Worker {
    #[distributed_lock(key = "boxed-ref:<self.name>:<id>")]
    async fn by_ref(&self, id: u8) -> Result<u8, Error> {
        tokio::task::yield_now().await;
        Ok(id + u8::try_from(self.name.len()).unwrap())
    }

    #[distributed_lock(key = "boxed-mut:<self.name>:<text>")]
    async fn by_mut_ref(&mut self, text: &str) -> Result<String, Error> {
        self.name.push_str(text);
        tokio::task::yield_now().await;
        Ok(self.name.clone())
    }

    #[distributed_lock(key = "boxed-value:<self.name>", on_busy = return Err(busy(id)))]
    async fn by_value(self, id: u8) -> Result<String, Error> {
        Ok(format!("{}{id}", self.name))
    }

    #[distributed_lock(key = "boxed-arc:<self.name>:<id>")]
    async fn by_arc(self: Arc<Self>, mut id: u8) -> Result<u8, Error> {
        id += 1;
        Ok(id)
    }

    #[distributed_lock(key = "boxed-borrow:<other>")]
    async fn borrows<'a>(&'a self, other: &'a str) -> Result<&'a str, Error> {
        Ok(if other.is_empty() { &self.name } else { other })
    }

    #[distributed_lock(key = "boxed-generic:<id>")]
    async fn generic<T: std::fmt::Display + Send>(&self, id: T) -> Result<T, Error> {
        Ok(id)
    }

    #[distributed_lock(
        key = "boxed-unit:<self.name>:<id>",
        on_busy = skip,
        client = self.locks.as_ref().unwrap(),
        bind = lease
    )]
    async fn unit(&self, id: u8) {
        assert_eq!(lease.key(), format!("boxed-unit:w:{id}"));
    }
}

fn busy(_: u8) -> Error {
    Error::Busy {
        key: String::new(),
        holder: String::new(),
        remaining: std::time::Duration::ZERO,
        since: None,
    }
}

#[async_trait(?Send)]
trait Local {
    async fn local(&self, id: std::rc::Rc<u8>) -> Result<u8, Error>;
}

#[async_trait(?Send)]
impl Local for Worker {
    #[distributed_lock(key = "local:<id>")]
    async fn local(&self, id: std::rc::Rc<u8>) -> Result<u8, Error> {
        tokio::task::yield_now().await;
        Ok(*id)
    }
}

#[tokio::test]
async fn native() {
    check("default:w:1", 2, async || {
        Native::default_body(&worker(), 1).await
    })
    .await;
    check("implemented:w:1", "w1".to_owned(), async || {
        Ok(worker().implemented(1).await?.clone())
    })
    .await;
    check("no-receiver:1", 1, async || {
        <Worker as Native>::without_receiver(1).await
    })
    .await;
}

#[tokio::test]
async fn boxed() {
    check("boxed-ref:w:1", 2, async || worker().by_ref(1).await).await;
    check("boxed-mut:w:x", "wx".to_owned(), async || {
        worker().by_mut_ref("x").await
    })
    .await;
    check("boxed-value:w", "w1".to_owned(), async || {
        worker().by_value(1).await
    })
    .await;
    check("boxed-arc:w:1", 2, async || {
        Arc::new(worker()).by_arc(1).await
    })
    .await;
    check("boxed-borrow:x", "x".to_owned(), async || {
        Ok(worker().borrows("x").await?.to_owned())
    })
    .await;
    check("boxed-generic:x", "x", async || worker().generic("x").await).await;
    check("boxed-default:1", 2, async || {
        Boxed::default_body(&worker(), 1).await
    })
    .await;
    check("boxed-static:1", 1, async || {
        <Worker as Boxed>::without_receiver(1).await
    })
    .await;
    check("local:1", 1, async || worker().local(1.into()).await).await;
}

#[tokio::test]
async fn with_a_client_of_its_own() {
    let worker = Worker {
        name: "w".into(),
        locks: Some(Client::connect("memory:").await.unwrap()),
    };
    worker.unit(1).await;
    let object: &dyn Send = &worker.unit(2);
    let _ = object;
}
