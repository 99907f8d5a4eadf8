//! What most of these tests begin with.

use std::time::Duration;

use lockattr::{Client, ClientBuilder, Lease};
use tests::postgres::Postgres;

/// Room on top of a bound for a machine with other work.
pub(crate) const SLACK: Duration = Duration::from_millis(1500);

/// What an answer may take with the defaults: twice connecting and a reply, and one reply more.
pub(crate) const BOUND: Duration = Duration::from_secs(5);

pub(crate) async fn client(server: &Postgres) -> Client {
    connected(Client::builder(), server, &server.url()).await
}

pub(crate) async fn connected(builder: ClientBuilder, server: &Postgres, url: &str) -> Client {
    // A busy machine may take longer than the default for what is made with the first connection.
    match builder
        .connect_timeout(Duration::from_secs(5))
        .connect(url)
        .await
    {
        Ok(client) => client,
        Err(problem) => panic!("no client: {problem}\n{}", server.log()),
    }
}

/// A server, and a client for it.
pub(crate) async fn pair() -> (Postgres, Client) {
    let server = Postgres::start();
    let client = client(&server).await;
    (server, client)
}

pub(crate) async fn taken(client: &Client, key: &str) -> Lease {
    match client.lock(key).acquire().await {
        Ok(lease) => lease,
        Err(problem) => panic!("`{key}` was not taken: {problem}"),
    }
}

/// Sleeps in real time.
pub(crate) async fn nap(millis: u64) {
    tokio::time::sleep(Duration::from_millis(millis)).await;
}
