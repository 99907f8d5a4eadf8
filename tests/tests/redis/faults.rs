//! A store that answers and refuses, moves away, forgets, or comes back.

use std::fs;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use lockattr::{Client, Error};
use tests::proxy::Proxy;
use tests::server::Server;
use tests::wait;

use crate::support::{SLACK, behind_a_proxy, client, job, nap, pair, timed};

const SECOND: Duration = Duration::from_secs(1);

/// Until a call works again, within seconds and without anybody's help.
async fn works_again(locks: &Client) {
    let start = Instant::now();
    loop {
        let result = job(locks, 4242, async {}).await;
        match result {
            Ok(Some(())) => return,
            Ok(None) => panic!("busy"),
            Err(problem) => assert!(start.elapsed() < 5 * SECOND, "{problem}"),
        }
        nap(50).await;
    }
}

/// Refused with the server's words: unavailable, not busy, and nothing runs.
async fn refused(locks: &Client, word: &str) {
    let error = job(locks, 77, async { panic!("the body ran") })
        .await
        .map(drop)
        .unwrap_err();
    assert!(
        matches!(&error, Error::Unavailable { key, .. } if key == "sync:77"),
        "{error:?}"
    );
    assert!(error.to_string().contains(word), "{error}");
}

#[tokio::test]
async fn field_19_calls_follow_an_address_that_leads_to_a_new_master() {
    let old = Server::start();
    let new = old.replica();
    let proxy = Proxy::before(old.address());
    let locks = Client::connect(proxy.url()).await.unwrap();
    let body = async {
        wait::until("the key is replicated", || {
            new.get("lock:sync:42").is_some()
        })
        .await;
        let _: () = new.ask("REPLICAOF NO ONE");
        let _: () = old.ask(&format!("REPLICAOF 127.0.0.1 {}", new.address().port()));
        // The connections that exist stay with the demoted one; the address leads to the new one.
        proxy.retarget(new.address());
        let promoted = Instant::now();
        works_again(&locks).await;
        // The running body is renewed there.
        wait::until("it outlived its ttl", || promoted.elapsed() > 4 * SECOND).await;
        assert!(new.get("lock:sync:42").is_some());
    };
    timed(&locks, 42, 3 * SECOND, body).await.unwrap();
    assert_eq!(new.size(), 0);
    assert_eq!(locks.stats().lost, 0);
}

#[tokio::test]
async fn field_19_a_body_whose_key_did_not_move_along_is_lost() {
    let (old, new) = (Server::start(), Server::start());
    let proxy = Proxy::before(old.address());
    let locks = Client::connect(proxy.url()).await.unwrap();
    let ttl = 3 * SECOND;
    let body = async {
        let _: () = old.ask(&format!("REPLICAOF 127.0.0.1 {}", new.address().port()));
        proxy.retarget(new.address());
        nap(60_000).await;
    };
    let start = Instant::now();
    let lost = timed(&locks, 42, ttl, body).await.unwrap_err();
    assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
    assert!(start.elapsed() < ttl + SLACK, "{:?}", start.elapsed());
    works_again(&locks).await;
    assert_eq!(new.size(), 0);
}

#[tokio::test]
async fn a_demoted_master_without_a_successor_is_unavailable_until_it_is_back() {
    let (server, locks) = pair().await;
    let other = Server::start();
    let _: () = server.ask(&format!("REPLICAOF 127.0.0.1 {}", other.address().port()));
    refused(&locks, "READONLY").await;
    let _: () = server.ask("REPLICAOF NO ONE");
    works_again(&locks).await;
}

#[tokio::test]
async fn field_20_a_full_memory_is_unavailable_and_holders_keep_renewing() {
    let (server, locks) = pair().await;
    let body = async {
        let _: () = server.ask("CONFIG SET maxmemory-policy noeviction");
        let _: () = server.ask("CONFIG SET maxmemory 1");
        let full = Instant::now();
        refused(&locks, "OOM").await;
        wait::until("it outlived its ttl", || full.elapsed() > 2 * SECOND).await;
        assert!(server.pttl("lock:sync:42") > 500);
    };
    timed(&locks, 42, Duration::from_millis(1_500), body)
        .await
        .unwrap();
    // Given back as well.
    assert_eq!(server.size(), 0);
    let _: () = server.ask("CONFIG SET maxmemory 0");
    works_again(&locks).await;
}

#[tokio::test]
async fn a_failed_snapshot_is_unavailable_with_the_servers_word() {
    let server = Server::start();
    let _: () = server.words(&["CONFIG", "SET", "save", "3600 1"]).unwrap();
    let locks = client(&server).await;
    let lease = locks
        .lock("sync:42")
        .ttl(60 * SECOND)
        .acquire()
        .await
        .unwrap();
    // The snapshot cannot take the place of a directory.
    fs::create_dir(server.directory().join("dump.rdb")).unwrap();
    let _: () = server.ask("BGSAVE");
    wait::until("the snapshot fails", || {
        server.info("persistence")["rdb_last_bgsave_status"] == "err"
    })
    .await;
    refused(&locks, "MISCONF").await;
    // Not given back, and not pretended; later it is.
    lease.release().await.unwrap();
    assert_eq!(locks.stats().release_failed, 1);
    fs::remove_dir(server.directory().join("dump.rdb")).unwrap();
    let _: () = server.ask("BGSAVE");
    wait::until("the snapshot succeeds", || {
        server.info("persistence")["rdb_last_bgsave_status"] == "ok"
    })
    .await;
    works_again(&locks).await;
    wait::within("the key is given back", 30 * SECOND, || server.size() == 0).await;
}

#[tokio::test]
async fn too_few_replicas_are_unavailable_with_the_servers_word() {
    let (server, locks) = pair().await;
    server.refuse_writes();
    refused(&locks, "NOREPLICAS").await;
    server.accept_writes();
    works_again(&locks).await;
}

#[tokio::test]
async fn a_replica_that_lost_its_master_is_unavailable() {
    let server = Server::with(&["--replica-serve-stale-data", "no"]);
    let locks = client(&server).await;
    // Nobody listens there.
    let _: () = server.ask("REPLICAOF 127.0.0.1 1");
    refused(&locks, "MASTERDOWN").await;
    let _: () = server.ask("REPLICAOF NO ONE");
    works_again(&locks).await;
}

#[tokio::test]
async fn an_endless_script_of_others_is_unavailable_with_the_servers_word() {
    let server = Arc::new(Server::with(&["--lua-time-limit", "50"]));
    let locks = client(&server).await;
    let url = server.url();
    let script = thread::spawn(move || {
        let mut other = redis::Client::open(url).unwrap().get_connection().unwrap();
        redis::cmd("EVAL")
            .arg("while true do end")
            .arg(0)
            .query::<()>(&mut other)
            .unwrap_err();
    });
    wait::until("it runs", || server.try_ask::<()>("GET k").is_err()).await;
    refused(&locks, "BUSY").await;
    let _: () = server.ask("SCRIPT KILL");
    script.join().unwrap();
    works_again(&locks).await;
}

#[tokio::test]
async fn rights_taken_away_in_mid_run_are_unavailable_with_the_servers_word() {
    let server = Server::start();
    let _: () = server.ask("ACL SETUSER worker on >pw ~* +@all");
    let locks = Client::connect(server.url_as("worker", "pw"))
        .await
        .unwrap();
    let _: () = server.ask("ACL SETUSER worker -set");
    refused(&locks, "NOPERM").await;
    let _: () = server.ask("ACL SETUSER worker +set");
    works_again(&locks).await;
    // Log-ins change while connections stand: the next connection needs the new password.
    let _: () = server.ask("ACL DELUSER worker");
    let error = job(&locks, 77, async { panic!("the body ran") })
        .await
        .map(drop)
        .unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test]
async fn field_21_flushed_scripts_are_loaded_again_unnoticed() {
    let (server, locks) = pair().await;
    let flush = || server.ask::<()>("SCRIPT FLUSH");
    flush();
    let lease = locks.lock("sync:42").ttl(SECOND).acquire().await.unwrap();
    flush();
    let renewed = locks.stats().renewed;
    wait::until("a renewal", || locks.stats().renewed > renewed).await;
    flush();
    lease.token().await.unwrap();
    flush();
    let other = client(&server).await;
    flush();
    assert!(matches!(
        other.lock("sync:42").acquire().await,
        Err(Error::Busy { .. })
    ));
    flush();
    lease.release().await.unwrap();
    assert!(server.get("lock:sync:42").is_none());
    let stats = locks.stats();
    assert_eq!(
        (stats.lost, stats.release_failed, stats.renewal_failed),
        (0, 0, 0),
        "{stats:?}"
    );
}

#[tokio::test]
async fn field_22_the_first_call_after_killed_idle_connections_works() {
    let (server, locks) = pair().await;
    for _ in 0..3 {
        assert!(server.drop_clients() > 0);
        assert_eq!(job(&locks, 42, async {}).await.unwrap(), Some(()));
        assert_eq!(server.size(), 0);
    }
}

#[tokio::test]
async fn field_22_the_first_call_after_a_restart_works() {
    let (server, locks) = pair().await;
    for _ in 0..2 {
        server.restart();
        assert_eq!(job(&locks, 42, async {}).await.unwrap(), Some(()));
    }
}

#[tokio::test]
async fn a_server_that_forgot_everything_is_noticed_within_one_renewal() {
    let (server, locks) = pair().await;
    for forget in [true, false] {
        let body = async {
            if forget {
                let _: () = server.ask("FLUSHALL");
            } else {
                server.restart();
            }
            nap(60_000).await;
        };
        let start = Instant::now();
        let lost = timed(&locks, 42, 3 * SECOND, body).await.unwrap_err();
        assert!(matches!(lost, Error::Lost { .. }), "{lost:?}");
        assert!(start.elapsed() < SECOND + SLACK, "{:?}", start.elapsed());
        assert_eq!(server.size(), 0);
    }
}

#[tokio::test]
async fn a_server_that_persists_keeps_the_lease_across_a_restart() {
    let server = Server::with(&["--appendonly", "yes", "--appendfsync", "always"]);
    let locks = client(&server).await;
    timed(&locks, 42, 2 * SECOND, async {
        server.restart();
        nap(2_500).await;
        assert!(server.get("lock:sync:42").is_some());
    })
    .await
    .unwrap();
    assert_eq!(server.size(), 0);
}

#[tokio::test]
async fn idle_connections_that_the_server_closes_go_unnoticed() {
    let (server, locks) = pair().await;
    let _: () = server.ask("CONFIG SET timeout 1");
    for _ in 0..2 {
        // The connection of the harness is closed as well, and made again by the next question.
        nap(2_500).await;
        assert_eq!(job(&locks, 42, async {}).await.unwrap(), Some(()));
    }
}

#[tokio::test]
async fn a_server_without_room_for_more_connections_is_unavailable() {
    let server = Server::start();
    let locks = Client::builder().connect_lazily(server.url()).unwrap();
    // The harness has one.
    let _: () = server.ask("CONFIG SET maxclients 1");
    // It says why before it closes, which may or may not be read in time.
    refused(&locks, "").await;
    let _: () = server.ask("CONFIG SET maxclients 100");
    works_again(&locks).await;
}

#[tokio::test]
async fn a_server_without_scripts_is_refused_when_connecting() {
    let server = Server::with(&["--rename-command", "EVALSHA", ""]);
    let error = Client::connect(server.url()).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
    assert!(error.to_string().contains("EVALSHA"), "{error}");
    assert_eq!(server.size(), 0);
}

#[tokio::test]
async fn a_hundred_callers_in_an_outage_share_their_attempts_to_connect() {
    let (_server, proxy, locks) = behind_a_proxy().await;
    proxy.refuse();
    let before = proxy.accepted();
    let calls: Vec<_> = (0..100)
        .map(|user| {
            let locks = locks.clone();
            tokio::spawn(async move { job(&locks, user, async {}).await.map(drop) })
        })
        .collect();
    for call in calls {
        let result = call.await.unwrap();
        assert!(
            matches!(result, Err(Error::Unavailable { .. })),
            "{result:?}"
        );
    }
    let tried = proxy.accepted() - before;
    // One each would be a hundred.
    assert!(tried <= 60, "{tried} connections");
    proxy.heal();
    works_again(&locks).await;
}
