//! One PostgreSQL server: it stands still, crashes, ends sessions, and is reached over a proxy that loses what it is sent.

use std::thread;
use std::time::Duration;

use super::topology::{Scene, Servers};
use crate::postgres::{self, Postgres};
use crate::proxy::{Proxy, Treatment, Way};
use crate::server::Server;

const FROZEN: &str = "server frozen";
const KILLED: &str = "server killed";
const STOPPED: &str = "server stopped";
const SESSIONS: &str = "sessions ended";
const DELAYED: &str = "replies delayed";
const SWALLOWED: &str = "replies swallowed";
const REQUESTS_SWALLOWED: &str = "requests swallowed";
const CUT: &str = "connections cut";

pub(super) struct Database {
    proxies: [Proxy; 2],
    server: Postgres,
}

impl Database {
    pub(super) fn start() -> Self {
        let server = Postgres::start();
        Self {
            proxies: [(); 2].map(|()| Proxy::before(server.address())),
            server,
        }
    }

    fn treat(&self, way: Way, treatment: Treatment, time: Duration) {
        for proxy in &self.proxies {
            proxy.treat(way, treatment);
        }
        thread::sleep(time);
        for proxy in &self.proxies {
            proxy.heal();
        }
    }

    fn pairs(&self, statement: &str) -> Vec<(String, String)> {
        let rows = self.server.rows(statement).into_iter();
        rows.filter_map(|row| <[String; 2]>::try_from(row).ok())
            .map(|[key, owner]| (key, owner))
            .collect()
    }
}

impl Servers for Database {
    fn url(&self, worker: usize) -> String {
        postgres::url(self.proxies[worker % 2].address())
    }

    fn faults(&self) -> Vec<&'static str> {
        vec![
            FROZEN,
            KILLED,
            STOPPED,
            SESSIONS,
            DELAYED,
            SWALLOWED,
            REQUESTS_SWALLOWED,
            CUT,
        ]
    }

    fn make(&mut self, fault: usize, scene: &mut Scene<'_>) {
        let brief = scene.random.millis(50, 700);
        let long = scene.random.millis(100, 3_000);
        match self.faults()[fault] {
            FROZEN => {
                self.server.freeze();
                thread::sleep(long);
                self.server.thaw();
            }
            KILLED => {
                self.server.kill();
                thread::sleep(brief);
                self.server.restart();
            }
            STOPPED => {
                self.server.stop();
                thread::sleep(brief);
                self.server.restart();
            }
            SESSIONS => {
                self.server.end_sessions("random() < 0.7");
            }
            DELAYED => self.treat(Way::Replies, Treatment::Delay(brief), long),
            SWALLOWED => self.treat(Way::Replies, Treatment::Swallow, brief),
            REQUESTS_SWALLOWED => self.treat(Way::Requests, Treatment::Swallow, brief),
            _ => self.proxies.iter().for_each(Proxy::cut),
        }
    }

    fn all(&self) -> Vec<&Server> {
        Vec::new()
    }

    fn locks(&self) -> Vec<(String, String)> {
        self.pairs(
            "SELECT name, CASE state WHEN 'done' THEN 'done@' ELSE owner END FROM lockattr.locks \
             WHERE owner <> '*' AND until > clock_timestamp() \
             UNION ALL SELECT lock, owner FROM lockattr.holders WHERE until > clock_timestamp()",
        )
    }

    fn queued(&self) -> Vec<(String, String)> {
        let prefix = super::PREFIX;
        self.pairs(&format!(
            "SELECT regexp_replace(lock, '^{prefix}', ''), owner FROM lockattr.waiters"
        ))
    }

    fn left(&self) -> Vec<String> {
        let mut left = self.server.locks();
        left.extend(self.queued().into_iter().map(|(key, _)| key));
        left
    }
}
