//! What a release has left, and who removes it.

use lockattr::{Client, Error};
use tests::proxy::{Proxy, Treatment, Way};
use tests::zookeeper::{Ensemble, url};

use crate::support::{client, millis, seconds};

/// Two find that a mark is over. One of them has done the work again before the other comes to remove it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_removes_a_mark_late_removes_none_that_was_left_since() {
    let server = Ensemble::single();
    let proxies = [(); 2].map(|()| Proxy::before(server.address(0)));
    let at = |proxy: &Proxy| url([proxy.address()].into_iter());
    let late = |proxy: &Proxy, by| proxy.treat(Way::Requests, Treatment::Delay(by));
    let first = client(&server.url(), seconds(20)).await;
    let [one, two] = [
        client(&at(&proxies[0]), seconds(20)).await,
        client(&at(&proxies[1]), seconds(20)).await,
    ];
    let work = |locks: &Client, once| {
        let request = locks.lock("k").once(once).wait(seconds(20));
        async move {
            let lease = request.acquire().await?;
            lease.mark_done();
            lease.release().await
        }
    };
    work(&first, millis(400)).await.unwrap();
    drop(first);
    tokio::time::sleep(millis(500)).await;
    late(&proxies[0], millis(300));
    late(&proxies[1], millis(100));
    let working = tokio::spawn(work(&one, seconds(300)));
    // It stands behind the first, reads the mark, and is held up then.
    tokio::time::sleep(millis(350)).await;
    let asking = tokio::spawn(work(&two, seconds(300)));
    tokio::time::sleep(millis(150)).await;
    late(&proxies[1], millis(2_500));
    working.await.unwrap().unwrap();
    let told = asking.await.unwrap();
    assert!(matches!(told, Err(Error::Done { .. })), "{told:?}");
}
