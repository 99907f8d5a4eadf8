//! A user with the right to every channel and to no key, as servers give it to each new user: it
//! receives every message, and publishes forged ones.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use redis::Connection;

use crate::server::Server;

/// Receives every message, and publishes forged ones.
pub struct Forger {
    subscription: Receiver<(String, String)>,
    publishing: Connection,
    messages: Vec<(String, String)>,
}

impl fmt::Debug for Forger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forger")
            .field("messages", &self.messages)
            .finish_non_exhaustive()
    }
}

impl Forger {
    /// Listens from now on.
    pub fn on(server: &Server) -> Self {
        server.set_user(
            "forger",
            "on >pw resetkeys allchannels -@all +publish +psubscribe",
        );
        let url = server.url_as("forger", "pw");
        let client = redis::Client::open(url).expect("a URL");
        let mut publishing = client.get_connection().expect("the server answers");
        let mut get = redis::cmd("GET");
        get.arg("lock:sync:42")
            .exec(&mut publishing)
            .expect_err("a key is none of its channels");
        let (telling, subscription) = mpsc::channel();
        let (subscribed, ready) = mpsc::channel();
        thread::spawn(move || {
            let mut connection = client.get_connection().expect("the server answers");
            let mut all = connection.as_pubsub();
            all.psubscribe("*").expect("its right");
            subscribed.send(()).expect("it is waited for");
            // Until the server or the forger is gone.
            while let Ok(message) = all.get_message() {
                let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
                let received = (message.get_channel_name().to_owned(), text);
                if telling.send(received).is_err() {
                    return;
                }
            }
        });
        ready.recv().expect("it can subscribe");
        Self {
            subscription,
            publishing,
            messages: Vec::new(),
        }
    }

    /// The messages to clients that it has received so far, each with its channel.
    pub fn messages(&self) -> &[(String, String)] {
        &self.messages
    }

    /// Receives what others have published up to now.
    pub fn receive(&mut self) {
        self.publish("end", "");
        let others = self
            .subscription
            .iter()
            .take_while(|(channel, _)| channel != "end");
        self.messages
            .extend(others.filter(|(channel, _)| channel.starts_with("lock:wake:")));
    }

    fn publish(&mut self, channel: &str, text: &str) {
        let mut command = redis::cmd("PUBLISH");
        command
            .arg(channel)
            .arg(text)
            .exec(&mut self.publishing)
            .expect("its right");
    }

    /// Receives its own messages without keeping them.
    pub fn discard_own(&mut self) {
        let kept = self.messages.len();
        self.receive();
        self.messages.truncate(kept);
    }

    /// Words of the messages that may be the id of a waiter or a proof.
    fn names(&self) -> BTreeSet<String> {
        (self.messages.iter())
            .flat_map(|(_, text)| text.split(' '))
            .filter(|word| word.len() >= 32)
            .map(str::to_owned)
            .collect()
    }

    /// Grants of a lock, made at this moment, to every waiter named in a message.
    pub fn forge_grants(&mut self, lock: &str) {
        let names = self.names();
        let what = format!("{} {lock}lock:wait:{{{lock}}}", lock.len());
        for name in &names {
            let at = micros();
            self.publish_to_all(&format!("{name} 0 {at} {what}"));
            for proof in &names {
                let at = micros();
                self.publish_to_all(&format!("{name} {proof} grant {at} 0 {what}"));
            }
        }
    }

    /// Publishes every message once more, and made-up ones.
    pub fn flood(&mut self) {
        for (channel, text) in self.messages.clone() {
            self.publish(&channel, &text);
        }
        let names = self.names();
        for name in &names {
            self.publish_to_all(name);
            self.publish_to_all(&format!("{name} first 0"));
            for proof in &names {
                let at = micros();
                self.publish_to_all(&format!("{name} {proof} first {at} 0"));
                self.publish_to_all(&format!("{name} {proof} look {at}"));
            }
        }
        for garbage in ["", " ", "a b c", "\u{0}\u{1}", &"x".repeat(10_000)] {
            self.publish_to_all(garbage);
        }
    }

    /// Keeps only the last messages, which are always enough.
    pub fn keep_last(&mut self, count: usize) {
        let old = self.messages.len().saturating_sub(count);
        self.messages.drain(..old);
    }

    fn publish_to_all(&mut self, text: &str) {
        let channels: BTreeSet<_> = self.messages.iter().map(|(to, _)| to.clone()).collect();
        for channel in channels {
            self.publish(&channel, text);
        }
    }
}

fn micros() -> u128 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("a clock after 1970").as_micros()
}
