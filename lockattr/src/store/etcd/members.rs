//! The members of a cluster, and requests to them: to one member as long as it answers, and then to the next.
//!
//! Connections are driven on the client's own thread, and so is each request, which goes on where its caller
//! is dropped. A member that does not answer in time is asked over a new connection the next time. All members are
//! asked for what a majority has agreed upon (`hasleader`), so that one which is cut off from the others says so.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use prost::Message;
use tokio::time::{sleep, timeout_at};
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::fault::{Fault, Kind};
use super::login::Login;
use super::url::Location;
use crate::error::{Error, StoreError};
use crate::runtime::background::Background;

/// Before a cluster that cannot serve just now is asked again.
const PAUSE: Duration = Duration::from_millis(50);

pub(super) const TXN: &str = "/etcdserverpb.KV/Txn";
pub(super) const GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
pub(super) const REVOKE: &str = "/etcdserverpb.Lease/LeaseRevoke";
pub(super) const KEEP_ALIVE: &str = "/etcdserverpb.Lease/LeaseKeepAlive";
pub(super) const TIME_TO_LIVE: &str = "/etcdserverpb.Lease/LeaseTimeToLive";
pub(super) const WATCH: &str = "/etcdserverpb.Watch/Watch";
pub(super) const AUTHENTICATE: &str = "/etcdserverpb.Auth/Authenticate";

#[derive(Clone)]
pub(super) struct Members(Arc<Inner>);

struct Inner {
    background: Background,
    members: Vec<Member>,
    /// Which is asked.
    current: AtomicUsize,
    login: Login,
    timeouts: Timeouts,
}

struct Member {
    /// As errors name it.
    name: String,
    endpoint: Endpoint,
    connection: Mutex<Connection>,
}

#[derive(Clone)]
struct Connection {
    channel: Channel,
    /// Tells it from those before.
    generation: usize,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Timeouts {
    pub(super) connect: Duration,
    pub(super) reply: Duration,
}

impl Timeouts {
    /// How long a step may take, with a member that is found to be away in it.
    pub(super) fn step(self) -> Duration {
        self.connect + 2 * self.reply
    }
}

/// A member as one request found it.
#[derive(Clone)]
pub(super) struct Found {
    index: usize,
    generation: usize,
    pub(super) name: String,
    pub(super) channel: Channel,
    #[cfg(feature = "inspect")]
    pub(super) is_encrypted: bool,
}

/// What a request is answered with.
pub(super) struct Answer<R> {
    pub(super) message: R,
    /// Whether an earlier try was not answered, and may still be carried out.
    pub(super) in_doubt: bool,
}

/// By when an answer is wanted, and how long one member is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) deadline: Instant,
    pub(super) each: Duration,
}

impl Members {
    /// `first` says which of them is asked first.
    pub(super) fn new(
        location: Location,
        endpoint: impl Fn(Uri) -> Result<Endpoint, Error>,
        timeouts: Timeouts,
        first: usize,
        background: &Background,
    ) -> Result<Self, Error> {
        let _context = background.runtime().enter();
        let scheme = if location.tls { "https" } else { "http" };
        let member = |name: String| {
            let uri = format!("{scheme}://{name}").parse::<Uri>();
            let uri =
                uri.map_err(|error| Error::Config(format!("etcd's host cannot be used: {error}")))?;
            let endpoint = endpoint(uri)?.connect_timeout(timeouts.connect);
            let channel = endpoint.connect_lazy();
            let connection = Connection {
                channel,
                generation: 0,
            };
            Ok(Member {
                name,
                endpoint,
                connection: Mutex::new(connection),
            })
        };
        let members: Vec<_> = location
            .hosts
            .into_iter()
            .map(member)
            .collect::<Result<_, Error>>()?;
        Ok(Self(Arc::new(Inner {
            background: background.clone(),
            current: AtomicUsize::new(first % members.len()),
            members,
            login: Login::new(location.login),
            timeouts,
        })))
    }

    pub(super) fn background(&self) -> &Background {
        &self.0.background
    }

    pub(super) fn timeouts(&self) -> Timeouts {
        self.0.timeouts
    }

    /// For a step that begins now.
    pub(super) fn patience(&self) -> Patience {
        let Timeouts { reply, .. } = self.0.timeouts;
        Patience {
            deadline: Instant::now() + self.0.timeouts.step(),
            each: reply,
        }
    }

    /// Sends a request, which is done for whether or not anybody waits for its answer. `done` is called with
    /// whether it is in doubt then.
    pub(super) fn call<M, R, D>(
        &self,
        path: &'static str,
        message: M,
        patience: Patience,
        done: D,
    ) -> impl Future<Output = Result<Answer<R>, Fault>> + Send + use<M, R, D>
    where
        D: FnOnce(bool) + Send + 'static,
        M: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let members = self.clone();
        let asking = self.0.background.spawn(async move {
            let answer = members.ask(path, message, patience).await;
            done(match &answer {
                Ok(answer) => answer.in_doubt,
                Err(fault) => fault.error.is_in_doubt(),
            });
            answer
        });
        async move {
            asking.await.unwrap_or_else(|_| {
                let ended = StoreError::in_doubt("the client's thread has ended");
                Err(Fault::last(ended))
            })
        }
    }

    async fn ask<M, R>(
        &self,
        path: &'static str,
        message: M,
        patience: Patience,
    ) -> Result<Answer<R>, Fault>
    where
        M: Message + Clone + 'static,
        R: Message + Default + 'static,
    {
        let (mut in_doubt, mut logged_in, mut unreachable) = (false, false, 0);
        let mut known = None;
        loop {
            let member = self.current();
            let sent = Instant::now();
            let until = (sent + patience.each).min(patience.deadline);
            let asking = self.ask_member(&member, path, message.clone());
            let answer = timeout_at(until.into(), asking).await;
            let fault = match answer {
                Ok(Ok(message)) => {
                    return Ok(Answer { message, in_doubt });
                }
                Ok(Err(fault)) => fault,
                Err(_) => {
                    self.silent(&member);
                    let fault = Fault::silent(&member.name, until - sent);
                    // What was answered before says more than that the time was over then.
                    known
                        .filter(|_| until == patience.deadline)
                        .unwrap_or(fault)
                }
            };
            known = Some(fault.clone());
            in_doubt |= fault.error.is_in_doubt();
            if fault.kind == Kind::Away {
                self.leave(&member);
            }
            let out_of_time = Instant::now() + PAUSE >= patience.deadline;
            match fault.kind {
                Kind::LoggedOut if !logged_in && self.0.login.is_known() => logged_in = true,
                Kind::Away if !out_of_time => {
                    if fault.error.is_in_doubt() {
                        unreachable = 0;
                        sleep(PAUSE).await;
                    } else {
                        unreachable += 1;
                        // Each was tried, and the first of them twice.
                        if unreachable > self.0.members.len() {
                            return Err(fault.after(in_doubt));
                        }
                    }
                }
                _ => return Err(fault.after(in_doubt)),
            }
        }
    }

    pub(super) async fn ask_member<M, R>(
        &self,
        member: &Found,
        path: &'static str,
        message: M,
    ) -> Result<R, Fault>
    where
        M: Message + 'static,
        R: Message + Default + 'static,
    {
        let (request, token) = self.signed(member, message).await?;
        let answer = unary(member, path, request).await;
        if let Err(fault) = &answer
            && fault.kind == Kind::LoggedOut
        {
            self.0.login.ended(token.as_deref());
        }
        answer
    }

    /// A request with what says who asks.
    pub(super) async fn signed<M>(
        &self,
        member: &Found,
        message: M,
    ) -> Result<(Request<M>, Option<String>), Fault> {
        let token = self.0.login.token(member).await?;
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("hasleader", AsciiMetadataValue::from_static("true"));
        if let Some(token) = &token {
            let token = token.parse();
            metadata.insert("token", token.map_err(|_| Fault::nonsense("a token"))?);
        }
        Ok((request, token))
    }

    /// The token with which something was refused is not to be used again.
    pub(super) fn logged_out(&self, token: Option<&str>) {
        self.0.login.ended(token);
    }

    /// The token may have ended, whichever it is.
    pub(super) fn log_in_anew(&self) {
        self.0.login.forget();
    }

    pub(super) fn current(&self) -> Found {
        self.found(self.0.current.load(Ordering::Relaxed))
    }

    /// All of them, whichever is asked.
    #[cfg(feature = "inspect")]
    pub(super) fn each(&self) -> Vec<Found> {
        let indices = 0..self.0.members.len();
        indices.map(|index| self.found(index)).collect()
    }

    fn found(&self, index: usize) -> Found {
        let member = &self.0.members[index];
        let connection = member.connection();
        Found {
            index,
            generation: connection.generation,
            name: member.name.clone(),
            channel: connection.channel,
            #[cfg(feature = "inspect")]
            is_encrypted: member.endpoint.uri().scheme_str() == Some("https"),
        }
    }

    /// Asks the next member from now on.
    pub(super) fn leave(&self, member: &Found) {
        let next = (member.index + 1) % self.0.members.len();
        let current = &self.0.current;
        // Where another request has left it already, this is not to leave the next one.
        let _ = current.compare_exchange(member.index, next, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// A connection is silent, and is not to be used again.
    pub(super) fn silent(&self, found: &Found) {
        let member = &self.0.members[found.index];
        let _context = self.0.background.runtime().enter();
        let mut connection = member
            .connection
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if connection.generation == found.generation {
            *connection = Connection {
                channel: member.endpoint.connect_lazy(),
                generation: found.generation + 1,
            };
        }
    }
}

impl Member {
    fn connection(&self) -> Connection {
        let connection = self.connection.lock();
        connection.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// One request to one member.
pub(super) async fn unary<M, R>(
    member: &Found,
    path: &'static str,
    request: Request<M>,
) -> Result<R, Fault>
where
    M: Message + 'static,
    R: Message + Default + 'static,
{
    let mut grpc = Grpc::new(member.channel.clone());
    let ready = grpc.ready().await;
    let answer = match ready {
        Ok(()) => {
            // Each of them is a path.
            let path = Uri::from_static(path).into_parts().path_and_query;
            let codec = ProstCodec::<M, R>::default();
            match path {
                Some(path) => grpc.unary(request, path, codec).await,
                None => Err(Status::internal("no path")),
            }
        }
        Err(error) => Err(Status::from_error(error.into())),
    };
    answer
        .map(tonic::Response::into_inner)
        .map_err(|status| Fault::of(&status, &member.name))
}

impl std::fmt::Debug for Members {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<_> = self.0.members.iter().map(|member| &member.name).collect();
        f.debug_tuple("Members").field(&names).finish()
    }
}
