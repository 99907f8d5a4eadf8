//! A user with the right to every channel and to no key, as servers give it to each new user, cannot
//! make a waiter believe that it holds a lock, nor keep it busy.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lockattr::{Client, Lease};
use redis::Connection;
use tests::server::Server;
use tests::wait;

use crate::support::{LOOK, SLACK, client, nap, pair};

const PATIENT: Duration = Duration::from_secs(60);

/// Hears everything, and says what it likes.
struct Forger {
    ears: Receiver<(String, String)>,
    mouth: Connection,
    heard: Vec<(String, String)>,
}

impl Forger {
    fn on(server: &Server) -> Self {
        let rights = "resetkeys allchannels -@all +publish +psubscribe";
        let _: () = server.ask(&format!("ACL SETUSER forger on >pw {rights}"));
        let client = redis::Client::open(server.url_as("forger", "pw")).unwrap();
        let mut mouth = client.get_connection().unwrap();
        let mut get = redis::cmd("GET");
        get.arg("lock:sync:42").exec(&mut mouth).unwrap_err();
        let (telling, ears) = mpsc::channel();
        let (subscribed, ready) = mpsc::channel();
        thread::spawn(move || {
            let mut connection = client.get_connection().unwrap();
            let mut all = connection.as_pubsub();
            all.psubscribe("*").unwrap();
            subscribed.send(()).unwrap();
            // Until the server is gone.
            while let Ok(message) = all.get_message() {
                let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
                let _ = telling.send((message.get_channel_name().to_owned(), text));
            }
        });
        ready.recv().unwrap();
        Self {
            ears,
            mouth,
            heard: Vec::new(),
        }
    }

    /// What was published up to now, but for what it has said itself.
    fn listen(&mut self) {
        self.say("end", "");
        let others = self.ears.iter().take_while(|(channel, _)| channel != "end");
        self.heard
            .extend(others.filter(|(channel, _)| channel.starts_with("lock:wake:")));
    }

    fn say(&mut self, channel: &str, text: &str) {
        let mut publish = redis::cmd("PUBLISH");
        publish
            .arg(channel)
            .arg(text)
            .exec(&mut self.mouth)
            .unwrap();
    }

    /// What it has said itself is no news.
    fn forget(&mut self) {
        let heard = self.heard.len();
        self.listen();
        self.heard.truncate(heard);
    }

    /// What names a waiter or proves something in what was heard, perhaps.
    fn names(&self) -> BTreeSet<String> {
        (self.heard.iter())
            .flat_map(|(_, text)| text.split(' '))
            .filter(|word| word.len() >= 32)
            .map(str::to_owned)
            .collect()
    }

    /// Grants to all who were heard of, made at this moment.
    fn forge_grants(&mut self) {
        let (lock, names) = ("lock:sync:42", self.names());
        let what = format!("{} {lock}lock:wait:{{{lock}}}", lock.len());
        for name in &names {
            let at = micros();
            self.say_to_all(&format!("{name} 0 {at} {what}"));
            for proof in &names {
                let at = micros();
                self.say_to_all(&format!("{name} {proof} grant {at} 0 {what}"));
            }
        }
    }

    /// All that was heard once more, and made-up words.
    fn flood(&mut self) {
        for (channel, text) in self.heard.clone() {
            self.say(&channel, &text);
        }
        let names = self.names();
        for name in &names {
            self.say_to_all(name);
            self.say_to_all(&format!("{name} first 0"));
            for proof in &names {
                let at = micros();
                self.say_to_all(&format!("{name} {proof} first {at} 0"));
                self.say_to_all(&format!("{name} {proof} look {at}"));
            }
        }
        for garbage in ["", " ", "a b c", "\u{0}\u{1}", &"x".repeat(10_000)] {
            self.say_to_all(garbage);
        }
    }

    fn say_to_all(&mut self, text: &str) {
        let channels: BTreeSet<_> = self.heard.iter().map(|(to, _)| to.clone()).collect();
        for channel in channels {
            self.say(&channel, text);
        }
    }
}

fn micros() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.unwrap().as_micros()
}

type Call = tokio::task::JoinHandle<Lease>;

async fn waits(server: &Server, locks: &Client) -> Call {
    let before = server.waiters("lock:sync:42");
    let request = locks
        .lock("sync:42")
        .ttl(Duration::from_secs(30))
        .wait(PATIENT);
    let call = tokio::spawn(async move { request.acquire().await.unwrap() });
    wait::until("it stands in line", || {
        server.waiters("lock:sync:42") > before
    })
    .await;
    call
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_forged_grant_is_not_believed() {
    let (server, locks) = pair().await;
    let mut forger = Forger::on(&server);
    let mut lease = locks.lock("sync:42").acquire().await.unwrap();
    let mut next = waits(&server, &client(&server).await).await;
    let mut last = waits(&server, &client(&server).await).await;
    // What each is told in its turn, the forger hears.
    for _ in 0..4 {
        lease.release().await.unwrap();
        lease = next.await.unwrap();
        next = last;
        last = waits(&server, &client(&server).await).await;
        forger.listen();
        assert!(forger.heard.len() > 1, "{:?}", forger.heard);
        forger.forge_grants();
        nap(50).await;
        forger.flood();
        forger.forge_grants();
        nap(100).await;
        forger.forget();
        assert!(
            !next.is_finished() && !last.is_finished(),
            "two hold the lock"
        );
        assert_eq!(server.get("lock:sync:42").as_deref(), Some(lease.owner()));
    }
    // Whoever waits still hears what is true.
    let started = Instant::now();
    lease.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    last.await.unwrap().release().await.unwrap();
    assert!(started.elapsed() < LOOK + SLACK, "{:?}", started.elapsed());
    assert_eq!(server.size(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_of_forged_wake_ups_costs_the_server_no_look() {
    let (server, locks) = pair().await;
    let mut forger = Forger::on(&server);
    let lease = locks.lock("sync:42").acquire().await.unwrap();
    let (second, third) = (client(&server).await, client(&server).await);
    let next = waits(&server, &second).await;
    let last = waits(&server, &third).await;
    lease.release().await.unwrap();
    let lease = next.await.unwrap();
    forger.listen();
    let before = server.commands();
    let started = Instant::now();
    while started.elapsed() < 2 * LOOK {
        forger.flood();
    }
    let took = started.elapsed();
    let used = server.commands().since(&before);
    assert!(used.of("publish") > 1_000, "{used:?}");
    // Its own, about one a second, and renewals of the lease.
    let bound = u64::from(u32::try_from(took.as_millis() / 750).unwrap()) + 2;
    assert!(
        used.of("evalsha") <= bound,
        "{} in {took:?}",
        used.of("evalsha")
    );
    lease.release().await.unwrap();
    last.await.unwrap().release().await.unwrap();
    assert_eq!(server.size(), 0);
}

/// Nothing that is published names an owner, which is what a lock is given back by.
#[tokio::test]
async fn no_owner_goes_over_a_channel() {
    let (server, locks) = pair().await;
    let mut forger = Forger::on(&server);
    let mut owners = Vec::new();
    let mut lease = locks.lock("sync:42").acquire().await.unwrap();
    for _ in 0..5 {
        let other = client(&server).await;
        let next = waits(&server, &other).await;
        owners.push(lease.owner().to_owned());
        lease.release().await.unwrap();
        lease = next.await.unwrap();
    }
    owners.push(lease.owner().to_owned());
    forger.listen();
    assert!(forger.heard.len() >= 5);
    let ids = owners.iter().map(|owner| &owner[..32]);
    for id in ids {
        let told = forger.heard.iter().find(|(_, text)| text.contains(id));
        assert_eq!(told, None);
    }
}
