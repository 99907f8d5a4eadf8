//! Each error's status, headers and body, and what the log is told.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::SystemTime;

use ::tests::log::{self, Told};
use futures_core::Stream;
use http::HeaderMap;
use serde_json::Value;
use tracing::Level;

use super::*;
use crate::key::{Key, KeyError, KeyWriter};
use crate::{Client, LossCause, ReplyError, StoreError, distributed_lock};

struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    fn retry_after(&self) -> Option<u64> {
        let header = self.headers.get("retry-after")?;
        Some(header.to_str().unwrap().parse().unwrap())
    }

    fn of_json(&self, name: &str) -> Value {
        assert_eq!(self.headers["content-type"], "application/problem+json");
        let body: Value = serde_json::from_str(&self.text).unwrap();
        assert_eq!(body.as_object().unwrap().len(), 4, "{body}");
        assert_eq!(body["status"], self.status, "{body}");
        body[name].clone()
    }
}

async fn answer(response: impl IntoResponse) -> Answer {
    let (head, body) = response.into_response().into_parts();
    let mut body = body.into_data_stream();
    let mut bytes = Vec::new();
    while let Some(part) = poll_fn(|cx| Pin::new(&mut body).poll_next(cx)).await {
        bytes.extend_from_slice(&part.unwrap());
    }
    Answer {
        status: head.status.as_u16(),
        headers: head.headers,
        text: String::from_utf8(bytes).unwrap(),
    }
}

fn busy(key: &str, remaining: Duration) -> Error {
    Error::Busy {
        key: key.to_owned(),
        holder: "db-7.internal:4711".to_owned(),
        remaining,
        since: None,
    }
}

fn unavailable(key: &str) -> Error {
    StoreError::unreachable("no route to db-7.internal:6379").told_of(key)
}

/// One of each variant, with what is to come of it.
fn all(key: &str) -> Vec<(Error, u16, &'static str, Level)> {
    let owned = || key.to_owned();
    let lost = Error::Lost {
        key: owned(),
        cause: LossCause::Taken,
        held: Duration::from_secs(7),
    };
    let done = Error::Done {
        key: owned(),
        since: SystemTime::now(),
        reply: None,
    };
    let no_reply = Error::NoReply {
        key: owned(),
        since: SystemTime::now(),
        cause: ReplyError::NotKept,
    };
    let foreign = Error::Foreign {
        key: owned(),
        found: "a hash of db-7".to_owned(),
    };
    let invalid = Error::Invalid {
        key: owned(),
        reason: "ttl 1 ms is shorter than db-7 allows".to_owned(),
    };
    let config = Error::Config(format!("{key}: db-7 is no host"));
    vec![
        (busy(key, Duration::ZERO), 423, "Busy", Level::DEBUG),
        (done, 409, "Done", Level::DEBUG),
        (no_reply, 409, "NoReply", Level::WARN),
        (lost, 409, "Lost", Level::WARN),
        (unavailable(key), 503, "Unavailable", Level::WARN),
        (foreign, 500, "", Level::ERROR),
        (invalid, 500, "", Level::ERROR),
        (config, 500, "", Level::ERROR),
        (Error::NotInstalled, 500, "", Level::ERROR),
        (Error::AlreadyInstalled, 500, "", Level::ERROR),
    ]
}

#[tokio::test]
async fn each_error_has_a_status_and_a_problem_of_its_own() {
    for (error, status, variant, _) in all("mail:ann@example.com") {
        let told = format!("{error:?}");
        let answer = answer(error).await;
        assert_eq!(answer.status, status, "{told}");
        let kind = match variant {
            "" => "about:blank".to_owned(),
            _ => format!(
                "https://docs.rs/lockattr/latest/lockattr/enum.Error.html#variant.{variant}"
            ),
        };
        assert_eq!(answer.of_json("type"), kind, "{told}");
        for name in ["title", "detail"] {
            assert!(!answer.of_json(name).as_str().unwrap().is_empty(), "{told}");
        }
        let later = matches!(variant, "Busy" | "Unavailable");
        assert_eq!(answer.retry_after().is_some(), later, "{told}");
    }
}

#[tokio::test]
async fn nobody_is_told_a_key_a_holder_or_what_the_store_says() {
    for (error, ..) in all("mail:ann@example.com") {
        let told = format!("{error:?}");
        let Answer { text, headers, .. } = answer(error).await;
        let all = format!("{text} {headers:?}");
        for secret in ["example.com", "db-7", "4711"] {
            assert!(!all.contains(secret), "{told}: {all}");
        }
    }
}

#[tokio::test]
async fn a_client_is_asked_to_come_back_when_the_lease_is_over() {
    let day = Duration::from_secs(86_400);
    for (remaining, seconds) in [
        (Duration::ZERO, 1),
        (Duration::from_nanos(1), 1),
        (Duration::from_secs(1), 1),
        (Duration::from_millis(1_001), 2),
        (Duration::from_millis(11_500), 12),
        (366 * day, 366 * 86_400),
        (Duration::MAX, u64::MAX),
    ] {
        let answer = answer(busy("sync:1", remaining)).await;
        assert_eq!(answer.retry_after(), Some(seconds), "{remaining:?}");
    }
    assert_eq!(answer(unavailable("sync:1")).await.retry_after(), Some(5));
}

struct Unprintable;

impl fmt::Display for Unprintable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        Err(fmt::Error)
    }
}

fn key_of(value: &(impl fmt::Display + ?Sized)) -> Result<Key, KeyError> {
    let writer = KeyWriter::new(0).text("zed:");
    writer.value("name", None, value).finish()
}

#[tokio::test]
async fn a_value_that_makes_no_key_is_the_clients_fault_unless_it_cannot_be_written() {
    let long = "x".repeat(2_000);
    for (key, status) in [
        (key_of(" "), 400),
        (key_of(&long), 400),
        (Key::new(""), 400),
        (Key::new("zed{1}"), 400),
        (key_of(&Unprintable), 500),
    ] {
        let error = Error::from(key.unwrap_err());
        let told = error.to_string();
        let answer = answer(error).await;
        assert_eq!(answer.status, status, "{told}");
        assert!(!answer.text.contains("zed"), "{}", answer.text);
        assert_eq!(answer.of_json("status"), status);
    }
}

#[distributed_lock(key = "response:<id>", client = locks, crate = crate)]
async fn handler(locks: &Client, id: u32) -> Result<&'static str, Error> {
    Ok("done")
}

#[tokio::test]
async fn a_handler_answers_with_its_value_or_with_the_error_of_its_lock() {
    let locks = Client::connect("memory:").await.unwrap();
    let free = answer(handler(&locks, 1).await).await;
    assert_eq!((free.status, &*free.text), (200, "done"));
    let held = locks.lock("response:1").ttl(Duration::from_secs(20));
    let _held = held.acquire().await.unwrap();
    let busy = answer(handler(&locks, 1).await).await;
    assert_eq!(busy.status, 423, "{}", busy.text);
    let seconds = busy.retry_after().unwrap();
    assert!((15..=20).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn the_log_is_told_the_whole_error() {
    log::listen();
    for (error, status, _, level) in all("told-in-full") {
        let text = error.to_string();
        let _ = answer(error).await;
        let told = log::about(&text);
        let is_told = |told: &Told| {
            let status = format!("status={status} ");
            told.level == level && told.target == "lockattr" && told.text.contains(&status)
        };
        assert!(told.iter().any(is_told), "{text}: {told:?}");
    }
}
