//! Replies that are kept beside marks.

use lockattr::Client;
use tests::replayed;

use crate::support::{connected, seconds, shared};

#[tokio::test]
async fn replies_are_given_back() {
    // A server takes half of that, whatever the client would keep.
    let builder = || Client::builder().reply_limit(1024 * 1024);
    let client = async || connected(builder(), &shared().url(), seconds(20)).await;
    replayed::are_given_back(&client().await, &client().await, 512 * 1024).await;
}
