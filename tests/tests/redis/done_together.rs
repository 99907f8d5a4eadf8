//! Many callers of one client, and a mark that says that the work is done.

use std::time::{Duration, Instant};

use lockattr::{Client, Error, distributed_lock};
use tests::proxy::{Treatment, Way};

use crate::support::behind_a_proxy;

const SECOND: Duration = Duration::from_secs(1);

/// One answer is enough for all who do not wait, as it is where the key is busy.
#[tokio::test]
async fn many_callers_of_what_is_done_are_answered_together() {
    #[distributed_lock(key = "sync:42", once = "24h", client = locks)]
    async fn job(locks: &Client) -> Result<Option<()>, Error> {
        Ok(Some(()))
    }
    let (server, proxy, locks) = behind_a_proxy().await;
    assert_eq!(job(&locks).await.unwrap(), Some(()));
    proxy.treat(Way::Replies, Treatment::Delay(SECOND / 50));
    let before = server.commands();
    let start = Instant::now();
    let calls: Vec<_> = (0..50)
        .map(|_| {
            let locks = locks.clone();
            tokio::spawn(async move { job(&locks).await })
        })
        .collect();
    for call in calls {
        assert_eq!(call.await.unwrap().unwrap(), None);
    }
    let asked = server.commands().since(&before);
    let took = start.elapsed();
    println!("{took:?}, {asked:?}");
    assert!(took < SECOND, "one after the other: {took:?}");
}
