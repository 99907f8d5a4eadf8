//! Every receiver a method can have.

#![allow(clippy::needless_arbitrary_self_type)]

use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;

use lockattr::{Error, distributed_lock};

mod shapes_support;
use shapes_support::check;

#[derive(Clone)]
struct Job {
    tenant: String,
    runs: u32,
}

fn job() -> Job {
    Job {
        tenant: "acme".into(),
        runs: 1,
    }
}

impl Job {
    fn tenant(&self) -> &str {
        &self.tenant
    }

    #[distributed_lock(key = "value:<self.tenant>")]
    async fn value(self) -> Result<String, Error> {
        Ok(self.tenant)
    }

    #[distributed_lock(key = "mut-value:<self.tenant>")]
    async fn mut_value(mut self) -> Result<u32, Error> {
        self.runs += 1;
        Ok(self.runs)
    }

    #[distributed_lock(key = "ref:<self.tenant()>")]
    async fn by_ref(&self) -> Result<&str, Error> {
        Ok(&self.tenant)
    }

    #[distributed_lock(key = "mut-ref:<self.tenant>")]
    async fn by_mut_ref(&mut self) -> Result<&mut u32, Error> {
        self.runs += 1;
        Ok(&mut self.runs)
    }

    #[distributed_lock(key = "lifetime:<self.tenant>")]
    async fn by_named_lifetime<'a>(&'a self, _other: &str) -> Result<&'a str, Error> {
        Ok(&self.tenant)
    }

    #[distributed_lock(key = "arc:<self.tenant>")]
    async fn arc(self: Arc<Self>) -> Result<u32, Error> {
        Ok(self.runs)
    }

    #[distributed_lock(key = "box:<self.tenant>")]
    async fn boxed(self: Box<Self>) -> Result<Job, Error> {
        Ok(*self)
    }

    #[distributed_lock(key = "mut-box:<self.tenant>")]
    async fn mut_boxed(mut self: Box<Self>) -> Result<u32, Error> {
        self.runs += 1;
        Ok(self.runs)
    }

    #[distributed_lock(key = "rc:<self.tenant>")]
    async fn rc(self: Rc<Self>) -> Result<u32, Error> {
        Ok(self.runs)
    }

    #[distributed_lock(key = "pin:<self.tenant>")]
    async fn pinned(mut self: Pin<&mut Self>) -> Result<u32, Error> {
        self.runs += 1;
        Ok(self.runs)
    }

    #[distributed_lock(key = "ref-arc:<self.tenant>")]
    async fn ref_arc(self: &Arc<Self>) -> Result<Arc<Self>, Error> {
        Ok(Self::clone_of(self))
    }

    fn clone_of(this: &Arc<Self>) -> Arc<Self> {
        Arc::clone(this)
    }

    #[distributed_lock(key = "typed:<self.tenant>")]
    async fn typed(self: &Self) -> Result<u32, Error> {
        Ok(self.runs)
    }

    #[distributed_lock(key = "associated:<tenant>")]
    async fn associated(tenant: &str) -> Result<Self, Error> {
        Ok(Self {
            tenant: tenant.to_owned(),
            ..job()
        })
    }

    #[distributed_lock(key = "self-in-body:<self.tenant>")]
    async fn self_in_closures(&self) -> Result<usize, Error> {
        let count = || self.tenant.len();
        Ok(async { count() + self.tenant.len() }.await)
    }
}

#[tokio::test]
async fn by_value() {
    check("value:acme", "acme".to_owned(), async || {
        job().value().await
    })
    .await;
    check("mut-value:acme", 2, async || job().mut_value().await).await;
}

#[tokio::test]
async fn by_reference() {
    check("ref:acme", "acme".to_owned(), async || {
        job().by_ref().await.map(ToOwned::to_owned)
    })
    .await;
    check("mut-ref:acme", 2, async || {
        let mut job = job();
        *job.by_mut_ref().await? += 0;
        Ok(job.runs)
    })
    .await;
    check("lifetime:acme", "acme".to_owned(), async || {
        let job = job();
        let tenant = {
            let other = String::from("short");
            job.by_named_lifetime(&other).await?
        };
        Ok(tenant.to_owned())
    })
    .await;
    check("typed:acme", 1, async || job().typed().await).await;
}

#[tokio::test]
async fn by_smart_pointer() {
    check("arc:acme", 1, async || Arc::new(job()).arc().await).await;
    check("box:acme", 1, async || {
        Ok(Box::new(job()).boxed().await?.runs)
    })
    .await;
    check("mut-box:acme", 2, async || {
        Box::new(job()).mut_boxed().await
    })
    .await;
    check("rc:acme", 1, async || Rc::new(job()).rc().await).await;
    check("pin:acme", 2, async || Pin::new(&mut job()).pinned().await).await;
    check("ref-arc:acme", 1, async || {
        Ok(Arc::new(job()).ref_arc().await?.runs)
    })
    .await;
}

#[tokio::test]
async fn without() {
    check("associated:other", "other".to_owned(), async || {
        Ok(Job::associated("other").await?.tenant)
    })
    .await;
    check("self-in-body:acme", 8, async || {
        job().self_in_closures().await
    })
    .await;
}
