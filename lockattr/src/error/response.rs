//! Errors as answers of an HTTP handler (feature `axum`).

use std::time::Duration;

use axum_core::body::Body;
use axum_core::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, StatusCode};

use super::Error;

/// How many seconds a client is asked to wait where nobody knows how long an outage lasts.
const OUTAGE_SECONDS: u64 = 5;

/// What a stranger is told: no key, since it may be made of personal data, and nothing of who holds it.
struct Problem {
    status: StatusCode,
    /// The variant that describes it in the documentation; none where it concerns the program alone.
    variant: Option<&'static str>,
    title: &'static str,
    detail: &'static str,
    retry_after: Option<u64>,
}

/// A problem of RFC 9457 (`application/problem+json`), so that a handler may return
/// `Result<_, lockattr::Error>`. With the feature `axum`, for axum 0.8.
///
/// | error | status | `Retry-After` |
/// |---|---|---|
/// | [`Busy`](Self::Busy) | 423 Locked | for how long the holder's lease runs, in whole seconds, rounded up, at least 1: up to the ttl, however soon it ends, so that handlers want a short one |
/// | [`Done`](Self::Done) | 409 Conflict: the work is done, and its answer is not kept | |
/// | [`NoReply`](Self::NoReply) | 409 Conflict: the work is done, and there is no answer that can be given back | |
/// | [`Lost`](Self::Lost) | 409 Conflict: it was stopped half way, and may have done some of its work | |
/// | [`Unavailable`](Self::Unavailable) | 503 Service Unavailable | 5 |
/// | [`Key`](Self::Key) | 400 Bad Request: a value of the request is blank, or too long for a key | |
/// | [`Key`](Self::Key) of a value whose `Display` has failed, and all others | 500 Internal Server Error | |
///
/// The body has `type`, `title`, `status` and `detail`, each a fixed text. It names neither the key nor its holder,
/// nor what the store has said: these are for the log, where an event `a request was answered with the error of its
/// lock` has them (target `lockattr`, fields `status` and `error`): at ERROR with a status of 500, at WARN with 503,
/// after a loss and for a reply that is missing, at DEBUG where the client has to wait or to ask for something else.
///
/// ```
/// use axum::extract::{Path, State};
/// use axum::Router;
/// use axum::routing::post;
/// use lockattr::{Client, Error, distributed_lock};
///
/// #[derive(Clone)]
/// struct App { locks: Client }
///
/// #[distributed_lock(key = "report:<month>", client = app.locks)]
/// async fn report(State(app): State<App>, Path(month): Path<String>) -> Result<String, Error> {
///     Ok(format!("the report of {month}"))
/// }
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Error> {
/// let locks = Client::connect("memory:").await?;
/// let routes: Router = Router::new()
///     .route("/reports/{month}", post(report))
///     .with_state(App { locks });
/// # drop(routes);
/// # Ok(()) }
/// ```
#[cfg_attr(docsrs, doc(cfg(feature = "axum")))]
impl IntoResponse for Error {
    fn into_response(self) -> Response {
        let problem = self.problem();
        self.tell(problem.status);
        problem.into_response()
    }
}

impl Error {
    fn problem(&self) -> Problem {
        let problem = |status, variant, title, detail| Problem {
            status,
            variant,
            title,
            detail,
            retry_after: None,
        };
        match self {
            Self::Busy { remaining, .. } => Problem {
                retry_after: Some(whole_seconds(*remaining)),
                ..problem(
                    StatusCode::LOCKED,
                    Some("Busy"),
                    "Locked",
                    "Another request, or a job, holds the lock that this one needs.",
                )
            },
            Self::Done { .. } => problem(
                StatusCode::CONFLICT,
                Some("Done"),
                "Already done",
                "This was done already, and is not to be done again yet.",
            ),
            Self::NoReply { .. } => problem(
                StatusCode::CONFLICT,
                Some("NoReply"),
                "Already done",
                "This was done already, and its answer cannot be given again.",
            ),
            Self::Lost { .. } => problem(
                StatusCode::CONFLICT,
                Some("Lost"),
                "Lock lost",
                "The request was stopped, because its lock had ended. Some of its work may be done.",
            ),
            Self::Unavailable { .. } => Problem {
                retry_after: Some(OUTAGE_SECONDS),
                ..problem(
                    StatusCode::SERVICE_UNAVAILABLE,
                    Some("Unavailable"),
                    "Locks unavailable",
                    "The lock that this request needs cannot be asked for at the moment.",
                )
            },
            Self::Key(error) if error.is_of_input() => problem(
                StatusCode::BAD_REQUEST,
                Some("Key"),
                "Unusable value",
                "A value of the request is blank, too long, or of characters that cannot be used.",
            ),
            Self::Key(_)
            | Self::Foreign { .. }
            | Self::Invalid { .. }
            | Self::Config(_)
            | Self::NotInstalled
            | Self::AlreadyInstalled => problem(
                StatusCode::INTERNAL_SERVER_ERROR,
                None,
                "Internal Server Error",
                "The lock that this request needs cannot be taken. It is not the request's fault.",
            ),
        }
    }

    fn tell(&self, status: StatusCode) {
        macro_rules! tell {
            ($level:ident) => {
                tracing::$level!(
                    target: "lockattr",
                    status = status.as_u16(),
                    error = %self,
                    "a request was answered with the error of its lock"
                )
            };
        }
        match self {
            _ if status == StatusCode::INTERNAL_SERVER_ERROR => tell!(error),
            Self::Unavailable { .. } | Self::Lost { .. } | Self::NoReply { .. } => tell!(warn),
            _ => tell!(debug),
        }
    }
}

/// Rounded up, since a client that comes too early is refused again.
fn whole_seconds(remaining: Duration) -> u64 {
    let started = u64::from(remaining.subsec_nanos() > 0);
    remaining.as_secs().saturating_add(started).max(1)
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let Self { title, detail, .. } = self;
        let status = self.status.as_u16();
        let kind = match self.variant {
            Some(variant) => {
                format!(
                    "https://docs.rs/lockattr/latest/lockattr/enum.Error.html#variant.{variant}"
                )
            }
            None => "about:blank".to_owned(),
        };
        // Fixed texts: nothing in them has to be escaped.
        let body = format!(
            r#"{{"type":"{kind}","title":"{title}","status":{status},"detail":"{detail}"}}"#
        );
        let mut response = Response::new(Body::from(body));
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        let kind = HeaderValue::from_static("application/problem+json");
        headers.insert(CONTENT_TYPE, kind);
        if let Some(seconds) = self.retry_after {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

#[cfg(test)]
mod tests;
