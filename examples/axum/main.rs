//! Three handlers behind locks: of one, a second request for the same account is refused with 423 Locked; of the
//! second, it waits its turn; the third answers a request that is repeated as it has answered the first, by its
//! `Idempotency-Key`. On SIGTERM and Ctrl-C the requests that run are answered before the process ends.
//!
//! `cargo run -p with-axum`, and then in two terminals at once
//! `curl -i -X POST http://127.0.0.1:3000/accounts/7/import`, and twice
//! `curl -X POST -H 'Idempotency-Key: 1' http://127.0.0.1:3000/accounts/7/charge`. It uses the server of `REDIS_URL`, or else a private
//! `redis-server` from the PATH, or else locks in memory.

use std::env;
use std::error::Error;
use std::future::IntoFuture;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use examples::{Server, stop_signal};
use lockattr::{Client, distributed_lock};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::time::sleep;

/// How long requests may go on after a signal. Kubernetes kills a process 30 s after it.
const GRACE: Duration = Duration::from_secs(20);

#[derive(Clone)]
struct App {
    locks: Client,
}

/// Takes long, and must not run twice at a time for one account, on any machine. `lockattr::Error` is the answer
/// where it is refused: 423 with `Retry-After`.
///
/// A client that hangs up ends it where it waits, as it does every handler of axum, and the key is free again.
#[distributed_lock(key = "import:<account>", on_busy = error, client = app.locks)]
async fn import(
    State(app): State<App>,
    Path(account): Path<u64>,
) -> Result<String, lockattr::Error> {
    sleep(Duration::from_secs(1)).await;
    Ok(format!("account {account} is imported\n"))
}

/// Short, so that a request rather waits for the one before it.
#[distributed_lock(key = "close:<account>", wait = "5s", client = app.locks)]
async fn close(
    State(app): State<App>,
    Path(account): Path<u64>,
) -> Result<String, lockattr::Error> {
    sleep(Duration::from_millis(100)).await;
    Ok(format!("account {account} is closed\n"))
}

/// Charges once for each key that a client has made up, whatever it repeats, and answers all with the same receipt:
/// later requests, and those that come while the first one runs. What must agree is in the key.
#[distributed_lock(
    key = "charge:<account>:<key>",
    once = "24h",
    on_done = replay,
    wait = "10s",
    client = app.locks
)]
async fn charge_once(app: &App, account: u64, key: &str) -> Result<String, lockattr::Error> {
    // The bank takes its time.
    sleep(Duration::from_millis(300)).await;
    let receipt = SystemTime::now().duration_since(UNIX_EPOCH);
    let receipt = receipt.unwrap_or_default().as_micros();
    Ok(format!("account {account} is charged: receipt {receipt}\n"))
}

async fn charge(
    State(app): State<App>,
    Path(account): Path<u64>,
    headers: HeaderMap,
) -> Result<String, Response> {
    let key = headers.get("idempotency-key");
    let Some(key) = key.and_then(|key| key.to_str().ok()) else {
        let missing = "send an Idempotency-Key, the same for each repetition of a request\n";
        return Err((StatusCode::BAD_REQUEST, missing).into_response());
    };
    let charged = charge_once(&app, account, key).await;
    charged.map_err(IntoResponse::into_response)
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::find().await?;
    let locks = server.connect().await?;
    let routes = Router::new()
        .route("/accounts/{account}/import", post(import))
        .route("/accounts/{account}/close", post(close))
        .route("/accounts/{account}/charge", post(charge))
        .with_state(App {
            locks: locks.clone(),
        });
    let address = env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1:3000".to_owned());
    let listener = TcpListener::bind(address).await?;
    println!("http://{}, {server}", listener.local_addr()?);

    // After a signal no connection is taken any more, and requests that run are answered.
    let (stop, stopped) = oneshot::channel();
    let serve = axum::serve(listener, routes).with_graceful_shutdown(async {
        let _ = stop_signal().await;
        let _ = stop.send(());
    });
    tokio::select! {
        ended = serve.into_future() => ended?,
        () = async {
            let _ = stopped.await;
            sleep(GRACE).await;
        } => eprintln!("requests that still run after {GRACE:?} are ended"),
    }
    // Only then: it ends what still runs under a lock. The keys are given back before the process
    // goes, so that the next replica does not wait for a ttl.
    locks.shutdown().await;
    let stats = locks.stats();
    println!(
        "{} answered, {} refused, {} lost",
        stats.granted, stats.busy, stats.lost
    );
    Ok(())
}
