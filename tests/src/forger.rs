//! A user with the right to every channel and to no key, as servers give it to each new user: hears
//! everything, and says what it likes.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

use redis::Connection;

use crate::server::Server;

/// Hears everything, and says what it likes.
pub struct Forger {
    ears: Receiver<(String, String)>,
    mouth: Connection,
    heard: Vec<(String, String)>,
}

impl fmt::Debug for Forger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Forger")
            .field("heard", &self.heard)
            .finish_non_exhaustive()
    }
}

impl Forger {
    /// Listens from now on.
    pub fn on(server: &Server) -> Self {
        let rights = "resetkeys allchannels -@all +publish +psubscribe";
        let _: () = server.ask(&format!("ACL SETUSER forger on >pw {rights}"));
        let url = server.url_as("forger", "pw");
        let client = redis::Client::open(url).expect("a URL");
        let mut mouth = client.get_connection().expect("the server answers");
        let mut get = redis::cmd("GET");
        get.arg("lock:sync:42")
            .exec(&mut mouth)
            .expect_err("a key is none of its channels");
        let (telling, ears) = mpsc::channel();
        let (subscribed, ready) = mpsc::channel();
        thread::spawn(move || {
            let mut connection = client.get_connection().expect("the server answers");
            let mut all = connection.as_pubsub();
            all.psubscribe("*").expect("its right");
            subscribed.send(()).expect("it is waited for");
            // Until the server or the forger is gone.
            while let Ok(message) = all.get_message() {
                let text = String::from_utf8_lossy(message.get_payload_bytes()).into_owned();
                let heard = (message.get_channel_name().to_owned(), text);
                if telling.send(heard).is_err() {
                    return;
                }
            }
        });
        ready.recv().expect("it can subscribe");
        Self {
            ears,
            mouth,
            heard: Vec::new(),
        }
    }

    /// What was published to clients, by channel, as far as it has listened.
    pub fn heard(&self) -> &[(String, String)] {
        &self.heard
    }

    /// Hears what was published up to now, but for what it has said itself.
    pub fn listen(&mut self) {
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
            .expect("its right");
    }

    /// What it has said itself is no news.
    pub fn forget(&mut self) {
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

    /// Grants of a lock to all who were heard of, made at this moment.
    pub fn forge_grants(&mut self, lock: &str) {
        let names = self.names();
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
    pub fn flood(&mut self) {
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

    /// Leaves only what was heard last, of which there is always enough.
    pub fn keep_last(&mut self, count: usize) {
        let old = self.heard.len().saturating_sub(count);
        self.heard.drain(..old);
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
    now.expect("a clock after 1970").as_micros()
}
