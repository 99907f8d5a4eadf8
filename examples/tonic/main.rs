//! A gRPC method that runs once at a time for each account: a second call is answered ABORTED while the first one runs.
//!
//! `cargo run -p with-tonic` serves on a free port and calls itself. It uses the server of `REDIS_URL`, or else a private
//! `redis-server` from the PATH, or else locks in memory.

use std::error::Error;
use std::time::Duration;

use examples::Server as Redis;
use lockattr::{Client, distributed_lock};
use tokio::net::TcpListener;
use tokio::time::sleep;
use tonic::transport::server::TcpIncoming;
use tonic::transport::{Endpoint, Server};
use tonic::{Request, Response, Status};

use crate::generated::accounts_client::AccountsClient;
use crate::generated::accounts_server::{Accounts, AccountsServer};

#[allow(
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    reason = "it is generated"
)]
mod generated {
    include!(concat!(env!("OUT_DIR"), "/accounts.Accounts.rs"));
}

#[derive(Clone, PartialEq, prost::Message)]
struct Account {
    #[prost(uint64, tag = "1")]
    id: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Imported {
    #[prost(uint32, tag = "1")]
    rows: u32,
}

/// What a call is answered that has no result. Neither keys nor holders are told to strangers.
struct Failure(Status);

impl From<lockattr::Error> for Failure {
    fn from(error: lockattr::Error) -> Self {
        use lockattr::Error::{Busy, Done, Key, Lost, Unavailable};
        Self(match error {
            Busy { .. } => Status::aborted("another call holds the lock that this one needs"),
            Lost { .. } => Status::aborted("stopped half way: its lock had ended"),
            Done { .. } => Status::already_exists("this was done already"),
            Unavailable { .. } => Status::unavailable("the lock cannot be asked for at the moment"),
            Key(_) => Status::invalid_argument("a value is blank, or too long"),
            error => {
                eprintln!("{error}");
                Status::internal("the lock cannot be taken")
            }
        })
    }
}

impl From<Failure> for Status {
    fn from(Failure(status): Failure) -> Self {
        status
    }
}

struct Service {
    locks: Client,
}

impl Service {
    #[distributed_lock(key = "import:<account>", on_busy = error, client = self.locks)]
    async fn import_account(&self, account: u64) -> Result<Imported, Failure> {
        sleep(Duration::from_secs(1)).await;
        Ok(Imported { rows: 7 })
    }
}

#[tonic::async_trait]
impl Accounts for Service {
    async fn import(&self, request: Request<Account>) -> Result<Response<Imported>, Status> {
        let Account { id } = request.into_inner();
        Ok(Response::new(self.import_account(id).await?))
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let redis = Redis::find().await?;
    let locks = redis.connect().await?;
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}", listener.local_addr()?);
    println!("{address}, {redis}");
    let service = AccountsServer::new(Service { locks });
    let server = Server::builder().add_service(service);
    tokio::spawn(server.serve_with_incoming(TcpIncoming::from(listener)));

    let client = AccountsClient::new(Endpoint::from_shared(address)?.connect().await?);
    let import = |id| {
        let mut client = client.clone();
        async move { client.import(Account { id }).await }
    };
    let (a, b, c) = tokio::join!(import(7), import(7), import(8));
    for (account, answer) in [(7, a), (7, b), (8, c)] {
        match answer {
            Ok(imported) => println!("account {account}: {} rows", imported.into_inner().rows),
            Err(status) => println!(
                "account {account}: {:?}, {}",
                status.code(),
                status.message()
            ),
        }
    }
    Ok(())
}
