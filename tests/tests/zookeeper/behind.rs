//! A server that has not heard yet of what the one before it has begun.

use tests::proxy::Proxy;
use tests::zookeeper::{Control, Ensemble, url};

use crate::support::{client, millis, nothing_left, seconds};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_place_that_another_server_does_not_show_yet_is_found_all_the_same() {
    let servers = Ensemble::with(4, &["minSessionTimeout=1000", "maxSessionTimeout=600000"]);
    let leader = servers.leader().expect("one leads");
    let followers: Vec<_> = (0..4).filter(|server| *server != leader).collect();
    let proxy = Proxy::before(servers.address(leader));
    let locks = client(&url([proxy.address()].into_iter()), seconds(20)).await;
    let take = || locks.lock("k").acquire();
    take().await.unwrap().release().await.unwrap();
    // Two of four decide nothing, and go on with a session that moves from the one to the other.
    let frozen = &followers[..2];
    for server in frozen {
        servers.freeze(*server);
    }
    let asking = tokio::spawn(take());
    tokio::time::sleep(millis(150)).await;
    proxy.retarget(servers.address(followers[2]));
    proxy.cut();
    tokio::time::sleep(millis(400)).await;
    for server in frozen {
        servers.thaw(*server);
    }
    let lease = asking.await.unwrap().unwrap();
    lease.release().await.unwrap();
    let mut control = Control::of(servers.address(leader));
    nothing_left(&mut control, "k", seconds(2)).await;
}
