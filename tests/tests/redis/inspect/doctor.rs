//! What is found on servers that harms locks.

use lockattr::Client;
use lockattr::store::inspect::{Finding, Severity};
use tests::cluster::Cluster;
use tests::sentinel::Sentinels;
use tests::server::Server;
use tests::wait;

use crate::support::pair;

async fn diagnosed(client: &Client) -> Vec<Finding> {
    let inspector = client.inspect().expect("a store that can be looked into");
    inspector.diagnose().await.expect("an answer")
}

/// The worst of a topic, and what was found.
fn worst<'a>(findings: &'a [Finding], topic: &str) -> &'a Finding {
    let of_topic = findings.iter().filter(|finding| finding.topic == topic);
    let worst = of_topic.max_by_key(|finding| finding.severity);
    worst.unwrap_or_else(|| panic!("nothing of {topic}: {findings:?}"))
}

#[tokio::test]
async fn a_server_in_order_is_told_so_and_nothing_is_left_there() {
    let (server, locks) = pair().await;
    let findings = diagnosed(&locks).await;
    let bad: Vec<_> = findings
        .iter()
        .filter(|finding| finding.severity > Severity::Advice || finding.part.is_empty())
        .collect();
    assert!(bad.is_empty(), "{bad:?}");
    for topic in [
        "server",
        "role",
        "eviction",
        "memory",
        "persistence",
        "replicas",
        "clients",
        "timeout",
        "latency",
        "clock",
        "slow commands",
        "encryption",
        "rights",
    ] {
        let finding = worst(&findings, topic);
        assert_eq!(finding.part, server.address().to_string());
        // There is advice for what could be better, and no other.
        let is_good = finding.severity == Severity::Good;
        assert_eq!(is_good, finding.advice.is_empty(), "{finding:?}");
    }
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[tokio::test]
async fn what_harms_locks_is_told_with_its_advice() {
    let (server, locks) = pair().await;
    for setting in [
        "maxmemory 100mb",
        "maxmemory-policy volatile-lru",
        "timeout 5",
    ] {
        let _: () = server.ask(&format!("CONFIG SET {setting}"));
    }
    let _: () = server.ask("CONFIG SET slowlog-log-slower-than 1000");
    let busy = "local n = 0 for i = 1, 150000000 do n = n + 1 end return n";
    let _: i64 = server.words(&["EVAL", busy, "0"]).unwrap();
    let findings = diagnosed(&locks).await;
    for (topic, severity, words) in [
        ("eviction", Severity::Warning, "volatile-lru"),
        ("timeout", Severity::Advice, "5 s"),
        ("slow commands", Severity::Advice, "EVAL"),
    ] {
        let finding = worst(&findings, topic);
        assert_eq!(finding.severity, severity, "{finding:?}");
        assert!(finding.found.contains(words), "{finding:?}");
        assert!(!finding.advice.is_empty());
    }

    let replica = server.replica();
    let locks = Client::builder().connect_lazily(replica.url()).unwrap();
    let findings = diagnosed(&locks).await;
    assert_eq!(worst(&findings, "role").severity, Severity::Fault);
    assert_eq!(worst(&findings, "rights").severity, Severity::Fault);
}

#[tokio::test]
async fn each_right_that_is_missing_is_named() {
    let server = Server::start();
    let rights = "on >secret resetchannels ~lock:* &lock:* +set +get +mget +del +pexpire +pttl +type +time +eval +evalsha +zadd +zrem \
                  +zrank +zrange +zrangebyscore +zscore +zcard +pexpireat +subscribe +pubsub|numsub";
    server.set_user("jobs", rights);
    let url = server.url_as("jobs", "secret");
    let locks = Client::builder().connect_lazily(url).unwrap();
    let findings = diagnosed(&locks).await;
    let faults: Vec<_> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Fault)
        .collect();
    let [missing] = faults.as_slice() else {
        panic!("{faults:?}")
    };
    assert!(missing.found.contains("zpopmin"), "{missing:?}");
    let publish = findings
        .iter()
        .find(|finding| finding.found.contains("publish"));
    assert_eq!(publish.expect("told").severity, Severity::Advice);
    let unknown = |words: &str| {
        let mut unknown = findings
            .iter()
            .filter(|finding| finding.severity == Severity::Unknown);
        assert!(
            unknown.any(|finding| finding.advice.contains(words)),
            "{words}: {findings:?}"
        );
    };
    for right in ["+info", "+config|get", "+slowlog|get"] {
        unknown(right);
    }
    // A list names the right that it lacks.
    let inspector = locks.inspect().unwrap();
    let refused = inspector.list("").next().await.unwrap_err().to_string();
    assert!(
        refused.contains("'scan'") && refused.contains("+scan"),
        "{refused}"
    );
    assert!(!refused.contains("secret"));
    inspector.show("sync:42").await.unwrap();
}

#[tokio::test]
async fn whoever_may_do_nothing_is_told_so_and_not_of_what_follows() {
    let server = Server::start();
    // As a reader has it: not even the time.
    server.set_user("reader", "on >secret ~lock:* +get +pttl +type +scan +zcard");
    let url = server.url_as("reader", "secret");
    let locks = Client::builder().connect_lazily(url).unwrap();
    let findings = diagnosed(&locks).await;
    let set = findings
        .iter()
        .find(|finding| finding.found.contains("'set'"));
    let set = set.unwrap_or_else(|| panic!("{findings:?}"));
    assert_eq!((set.topic, set.severity), ("rights", Severity::Fault));

    let _: () = server.ask("CONFIG SET maxmemory 1");
    let locks = Client::builder().connect_lazily(server.url()).unwrap();
    let findings = diagnosed(&locks).await;
    let faults = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Fault);
    let faults: Vec<_> = faults.collect();
    let [full] = faults.as_slice() else {
        panic!("{faults:?}")
    };
    assert!(full.found.starts_with("OOM"), "{full:?}");
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_an_error() {
    let (server, locks) = pair().await;
    server.kill();
    let told = locks.inspect().unwrap().diagnose().await;
    let told = told.unwrap_err().to_string();
    assert!(told.contains(&server.address().to_string()), "{told}");
}

#[tokio::test]
async fn a_node_of_several_that_is_down_is_told_by_its_address() {
    let servers: Vec<_> = (0..3).map(|_| Server::start()).collect();
    let urls = servers.iter().map(Server::url);
    let locks = Client::builder().quorum(urls).await.unwrap();
    assert_eq!(
        worst(&diagnosed(&locks).await, "quorum").severity,
        Severity::Good
    );
    servers[1].kill();
    let findings = diagnosed(&locks).await;
    assert_eq!(worst(&findings, "quorum").severity, Severity::Warning);
    let fault = worst(&findings, "server");
    assert_eq!(
        (fault.severity, &fault.part),
        (Severity::Fault, &servers[1].address().to_string())
    );

    let cluster = Cluster::with(3, 0, &["--cluster-require-full-coverage", "no"]);
    let locks = Client::connect(cluster.url()).await.unwrap();
    let findings = diagnosed(&locks).await;
    assert_eq!(worst(&findings, "cluster").severity, Severity::Good);
    assert_eq!(worst(&findings, "rights").severity, Severity::Good);
    assert_eq!(worst(&findings, "replicas").severity, Severity::Advice);
    cluster.kill(2);
    let findings = diagnosed(&locks).await;
    let fault = worst(&findings, "server");
    let address = cluster.primary(2).address().to_string();
    assert_eq!((fault.severity, &fault.part), (Severity::Fault, &address));
    assert_eq!(cluster.left(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_are_told_of_as_well() {
    let sentinels = Sentinels::start();
    let locks = Client::connect(sentinels.url()).await.unwrap();
    // A client is connected before the replica is in step, and before all sentinels have answered.
    becomes(&locks, "replicas", Severity::Advice).await;
    becomes(&locks, "sentinels", Severity::Good).await;
    sentinels.sentinels[2].kill();
    let away = sentinels.sentinels[2].address().to_string();
    let told = becomes(&locks, "sentinels", Severity::Warning).await;
    assert_eq!(told.part, away);
}

/// Waits until that is the worst that is found of a subject.
async fn becomes(locks: &Client, subject: &str, severity: Severity) -> Finding {
    let start = std::time::Instant::now();
    loop {
        let findings = diagnosed(locks).await;
        let told = worst(&findings, subject);
        if told.severity == severity {
            return told.clone();
        }
        assert!(start.elapsed() < wait::PATIENCE, "{told:?}");
    }
}
