//! Replies that are kept beside marks.

use lockattr::Client;
use tests::etcd::Etcd;
use tests::replayed;

#[tokio::test]
async fn replies_are_given_back() {
    let cluster = Etcd::start(1);
    let longest = 1024 * 1024;
    let client = async || {
        let builder = Client::builder().reply_limit(longest);
        builder.connect(cluster.url()).await.unwrap()
    };
    replayed::are_given_back(&client().await, &client().await, longest).await;
}
