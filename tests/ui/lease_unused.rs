//! A lease that is dropped where it was taken protects nothing, nor one that nobody asks for.
#![deny(unused_must_use)]

use lockattr::{Client, Error};

async fn at_once(client: &Client) -> Result<(), Error> {
    client.lock("sync:42").acquire().await?;
    client.lock("sync:42").acquire();
    client.lock("sync:42");
    Ok(())
}

async fn again(lease: lockattr::Lease) -> Result<(), Error> {
    lease.share();
    lease.release().await
}

fn main() {}
