//! Which function a lease is for: as an event of one that is held for long tells it.

use std::time::Duration;

use lockattr::{Client, Error, distributed_lock};
use tests::log;

use crate::support::pair;

/// Ten times their ttl, when it is told, and time to tell it.
const LONG: Duration = Duration::from_millis(1_500);

#[distributed_lock(key = "cs-free:<<<id>", ttl = "100ms", client = locks)]
async fn r#loop(locks: &Client, id: u64) -> Result<(), Error> {
    tokio::time::sleep(LONG).await;
    Ok(())
}

#[distributed_lock(key = "cs-outer:<id>", ttl = "100ms", client = locks)]
#[distributed_lock(key = ["cs-a:<id>", "cs-b:<id>"], ttl = "100ms", client = locks)]
async fn twice(locks: &Client, id: u64) -> Result<(), Error> {
    #[distributed_lock(key = "cs-inner:<id>", ttl = "100ms", client = locks)]
    async fn twice(locks: &Client, id: u64) -> Result<(), Error> {
        tokio::time::sleep(LONG).await;
        Ok(())
    }
    twice(locks, id).await
}

struct Jobs<T>(T);

impl<T: AsRef<Client>> Jobs<T> {
    #[distributed_lock(key = "cs-method:<id>", ttl = "100ms", client = self.0)]
    fn run(&self, id: u64) -> impl Future<Output = Result<(), Error>> + use<'_, T> {
        async move {
            tokio::time::sleep(LONG).await;
            Ok(())
        }
    }
}

async fn by_hand(locks: &Client) {
    let ttl = Duration::from_millis(100);
    let request = locks.lock("cs-hand:1").ttl(ttl).template("cs-hand:<id>");
    let named = request.acquire().await.unwrap();
    let unnamed = locks.lock("cs-unnamed:1").ttl(ttl).acquire().await.unwrap();
    tokio::time::sleep(LONG).await;
    named.release().await.unwrap();
    unnamed.release().await.unwrap();
}

#[tokio::test]
async fn a_lease_knows_the_function_and_the_template_that_it_is_for() {
    log::listen();
    let (_server, locks) = pair().await;
    let jobs = Jobs(&locks);
    let ended = tokio::join!(
        r#loop(&locks, 1),
        twice(&locks, 1),
        jobs.run(1),
        by_hand(&locks)
    );
    ended.0.unwrap();
    ended.1.unwrap();
    ended.2.unwrap();
    locks.shutdown().await;
    let here = module_path!();
    for (key, function, template) in [
        ("cs-free:<1", "loop", "cs-free:<<<id>"),
        ("cs-outer:1", "twice", "cs-outer:<id>"),
        ("cs-a:1 + cs-b:1", "twice", "cs-a:<id>, cs-b:<id>"),
        ("cs-inner:1", "twice", "cs-inner:<id>"),
        ("cs-method:1", "run", "cs-method:<id>"),
        ("cs-hand:1", "", "cs-hand:<id>"),
        ("cs-unnamed:1", "", ""),
    ] {
        let function = match function {
            "" => String::new(),
            name => format!("{here}::{name}"),
        };
        let told = log::about(&format!("{key:?}"));
        let named = format!("function={function:?} template={template:?} ");
        assert!(
            told.iter().any(|told| told.text.contains(&named)),
            "{key}: {told:#?}"
        );
    }
}
