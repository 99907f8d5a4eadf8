//! Asks one sentinel, for as long as the client lives.
//!
//! It is asked every second, so that a failover that it does not tell of is noticed as well; whenever
//! somebody connects; and when it tells of a failover. An answer that does not come in time is none.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_core::Stream;
use redis::aio::PubSubStream;
use redis::{Cmd, ErrorKind, RedisError, RedisResult, Value};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use super::known::{Report, Trouble};
use super::{Address, SentinelTarget, Sentinels};
use crate::runtime::jitter::jittered;
use crate::store::redis::fault::without_name;
use crate::store::redis::server::Server;
use crate::store::redis::wire::Wire;

/// How often a sentinel is asked.
const EVERY: Duration = Duration::from_secs(1);

/// What a sentinel tells of a failover on.
const CHANNEL: &str = "+switch-master";

/// An open connection to a sentinel.
struct SentinelConnection {
    wire: Wire,
    is_introduced: bool,
    telling: Telling,
}

/// Whether the sentinel tells of failovers.
enum Telling {
    Untried,
    Yes(PubSubStream),
    /// It does not let this client listen.
    No,
}

/// Asks the sentinel whenever it is to be asked.
pub(super) async fn run(server: Weak<Server>, address: Address, mut rounds: watch::Receiver<u64>) {
    let mut link = None;
    loop {
        let round = *rounds.borrow_and_update();
        let Some(server) = server.upgrade() else {
            return;
        };
        let Some(sentinels) = server.sentinels() else {
            return;
        };
        let asking = ask(&server, sentinels, &address, &mut link);
        let word = match timeout(server.connect_timeout, asking).await {
            Ok(word) => word,
            Err(_) => Err(Trouble::Other(format!(
                "does not answer within {:?}",
                server.connect_timeout
            ))),
        };
        if word.is_err() {
            link = None;
        }
        sentinels
            .known
            .send_modify(|known| known.hear(&address, round, word));
        if let Some(link) = &mut link
            && matches!(link.telling, Telling::Untried)
        {
            let listening = listen(sentinels, &address);
            link.telling = match timeout(server.connect_timeout, listening).await {
                Ok(Ok(stream)) => Telling::Yes(stream),
                Ok(Err(_)) | Err(_) => Telling::No,
            };
        }
        drop(server);
        if !is_due(&mut rounds, &mut link).await {
            return;
        }
    }
}

/// Waits until the sentinel is to be asked again; false at the end of the client.
async fn is_due(rounds: &mut watch::Receiver<u64>, link: &mut Option<SentinelConnection>) -> bool {
    let mut tick = pin!(sleep(jittered(EVERY)));
    let mut asked = pin!(rounds.changed());
    poll_fn(|cx| {
        if let Poll::Ready(round) = asked.as_mut().poll(cx) {
            return Poll::Ready(round.is_ok());
        }
        if let Some(open) = link
            && let Poll::Ready(told) = open.poll_telling(cx)
        {
            if told.is_none() {
                *link = None;
            }
            return Poll::Ready(true);
        }
        tick.as_mut().poll(cx).map(|()| true)
    })
    .await
}

impl SentinelConnection {
    /// Waits for word of a failover; `None` where the connection has ended.
    fn poll_telling(&mut self, cx: &mut Context<'_>) -> Poll<Option<()>> {
        match &mut self.telling {
            Telling::Yes(stream) => Pin::new(stream).poll_next(cx).map(|told| told.map(drop)),
            Telling::Untried | Telling::No => Poll::Pending,
        }
    }
}

async fn listen(sentinels: &Sentinels, address: &Address) -> RedisResult<PubSubStream> {
    let target = sentinels.target.sentinel(address)?;
    let pubsub = target.pubsub(&sentinels.greeting).await?;
    let (mut sink, stream) = pubsub.split();
    sink.subscribe(CHANNEL).await?;
    Ok(stream)
}

async fn ask(
    server: &Arc<Server>,
    sentinels: &Sentinels,
    address: &Address,
    link: &mut Option<SentinelConnection>,
) -> Result<Report, Trouble> {
    let target = &sentinels.target;
    let link = match link {
        Some(link) => link,
        None => link.insert(SentinelConnection {
            wire: target.sentinel(address)?.connection().await?,
            is_introduced: false,
            telling: Telling::Untried,
        }),
    };
    let mut questions = if link.is_introduced {
        redis::pipe()
    } else {
        sentinels.greeting.commands()
    };
    let introduces = questions.len();
    // Two questions, since each knows one half first: while a failover goes on, the one tells the new
    // address, and the other the new epoch.
    questions.add_command(question("GET-MASTER-ADDR-BY-NAME", target));
    questions.add_command(question("MASTER", target));
    let mut answers = link.wire.ask(questions.cmd_iter()).await?;
    let (master, named) = (answers.pop(), answers.pop());
    if introduces > 0 {
        link.is_introduced = true;
        // The name may be refused here: it is of no use beside the right to ask.
        let _ = sentinels.greeting.answered(answers);
    }
    let named = named.unwrap_or(Value::Nil).extract_error()?;
    if named == Value::Nil {
        let services = question("MASTERS", target);
        let services = link.wire.ask([&services]).await;
        return Err(Trouble::NoSuchService(
            services.map_or(Vec::new(), |all| names(&all[0])),
        ));
    }
    let primary = announced(&named).ok_or_else(|| {
        Trouble::Other("announces no address of the primary that could be used".to_owned())
    })?;
    let master = master.unwrap_or(Value::Nil).extract_error()?;
    let number = |field| field_of(&master, field).and_then(|number| number.parse().ok());
    let report = Report {
        primary: target.reached_at(primary),
        epoch: number("config-epoch").unwrap_or(0),
        others: number("num-other-sentinels")
            .map_or(0, |others| usize::try_from(others).unwrap_or(0)),
    };
    if sentinels.known.borrow().lacks(&report) {
        let others = question("SENTINELS", target);
        let others = link.wire.ask([&others]).await?;
        learn(server, sentinels, &others[0]);
    }
    Ok(report)
}

/// Adds the sentinels that this one knows.
fn learn(server: &Arc<Server>, sentinels: &Sentinels, others: &Value) {
    let Value::Array(others) = others else {
        // The right to ask for them may be missing: the given ones are enough.
        return;
    };
    let addresses = others.iter().filter_map(|other| {
        let host = field_of(other, "ip")?;
        let port = field_of(other, "port")?;
        Some(sentinels.target.reached_at(usable(&host, &port)?))
    });
    let addresses: Vec<_> = addresses.collect();
    let mut new = Vec::new();
    sentinels
        .known
        .send_modify(|known| new = known.add(&addresses, false));
    sentinels.watch(server, new);
}

fn question(what: &str, target: &SentinelTarget) -> Cmd {
    let mut question = redis::cmd("SENTINEL");
    question.arg(what);
    if what != "MASTERS" {
        question.arg(&target.service);
    }
    question
}

/// Host and port.
fn announced(answer: &Value) -> Option<Address> {
    let Value::Array(parts) = answer else {
        return None;
    };
    let [host, port] = parts.as_slice() else {
        return None;
    };
    usable(&text(host)?, &text(port)?)
}

fn usable(host: &str, port: &str) -> Option<Address> {
    let port = port.parse().ok().filter(|port| *port > 0)?;
    let is_host = !host.is_empty() && host != "?" && !host.contains(char::is_whitespace);
    is_host.then(|| Address {
        host: host.to_owned(),
        port,
    })
}

/// The names of services.
fn names(services: &Value) -> Vec<String> {
    let Value::Array(services) = services else {
        return Vec::new();
    };
    services
        .iter()
        .filter_map(|service| field_of(service, "name"))
        .collect()
}

/// One field of a list of names and values, or of a map.
fn field_of(fields: &Value, name: &str) -> Option<String> {
    let is_named = |field: &Value| text(field).is_some_and(|text| text == name);
    match fields {
        Value::Array(parts) => {
            let mut pairs = parts.chunks_exact(2);
            text(&pairs.find(|pair| is_named(&pair[0]))?[1])
        }
        Value::Map(pairs) => text(&pairs.iter().find(|(field, _)| is_named(field))?.1),
        _ => None,
    }
}

fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        Value::Int(number) => Some(number.to_string()),
        _ => None,
    }
}

impl From<RedisError> for Trouble {
    fn from(error: RedisError) -> Self {
        const LOGIN: &str = "; its login is given as `?sentinel_user=…&sentinel_password=…`";
        let Some(code) = error.code() else {
            if error.kind() == ErrorKind::AuthenticationFailed {
                return Self::Other(format!("refuses this client's login: {error}{LOGIN}"));
            }
            return Self::Other(format!("cannot be asked: {error}"));
        };
        let words = without_name(error.detail().unwrap_or_default());
        let advice = match code {
            "NOAUTH" => "; its password is given as `?sentinel_password=…`, not before the `@`",
            "WRONGPASS" => LOGIN,
            "NOPERM" => {
                "; a lock client needs +sentinel|get-master-addr-by-name and +sentinel|master there"
            }
            _ if words.contains("unknown command") => {
                "; it is no sentinel: the URL has to name the sentinels, not the servers with the locks"
            }
            _ => "",
        };
        let words: String = words.chars().take(200).collect();
        Self::Other(format!("refuses this client: {code} {words}{advice}"))
    }
}
