//! Reads the URL of a server, and opens connections to it.
//!
//! An error about a URL never repeats the URL, which may hold a password. Timeouts are left to the
//! caller, and so is what is done with a connection.

use std::sync::Arc;

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{
    AsyncConnectionConfig, ConnectionAddr, ConnectionInfo, ErrorKind, IntoConnectionInfo,
    ProtocolVersion, RedisConnectionInfo, RedisError, RedisResult,
};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::access::Access;
use super::addresses::Address;
use super::credentials::Login;
use super::greeting::Greeting;
use super::tracking::Tracking;
use super::transport::{Stream, Transport};
use crate::error::Error;

/// The schemes of a URL, and whether each means TLS.
const SCHEMES: [(&str, bool); 5] = [
    ("redis", false),
    ("rediss", true),
    ("unix", false),
    ("valkey", false),
    ("valkeys", true),
];

/// The server that a URL names.
#[derive(Clone)]
pub(crate) struct Target {
    address: ConnectionInfo,
    login: Login,
    transport: Transport,
}

/// An open connection of the redis client, and the task that drives it.
pub(super) struct RawConnection {
    pub(super) redis: MultiplexedConnection,
    pub(super) task: DriverTask,
}

/// Ends the task when dropped.
pub(super) struct DriverTask {
    task: JoinHandle<()>,
    ended: Option<oneshot::Receiver<()>>,
    changes: HearsOfChanges,
}

/// Whether a connection is told of changed keys.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HearsOfChanges {
    NotAsked,
    Refused,
    Yes,
}

impl RawConnection {
    /// The server has answered on it, and so is one: what it has refused it would refuse again.
    pub(super) fn answered(&self, tracking: Option<&Arc<Tracking>>) {
        if self.task.changes == HearsOfChanges::Refused
            && let Some(tracking) = tracking
        {
            tracking.refuse();
        }
    }
}

impl DriverTask {
    fn spawn(driver: impl Future<Output = ()> + Send + 'static) -> Self {
        let (ends, ended) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            // Dropped with the task, however that ends.
            let _ends = ends;
            driver.await;
        });
        Self {
            task,
            ended: Some(ended),
            changes: HearsOfChanges::NotAsked,
        }
    }

    /// Whether the connection is told of changed keys.
    pub(super) fn is_told(&self) -> bool {
        self.changes == HearsOfChanges::Yes
    }

    /// Waits until the connection is closed, by either side, or has ended with its runtime. For one caller.
    pub(super) fn ended(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let ended = self.ended.take();
        async move {
            if let Some(ended) = ended {
                let _ = ended.await;
            }
        }
    }
}

impl Drop for DriverTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Reads a URL.
pub(crate) fn target(url: &str, access: &Access) -> Result<Target, Error> {
    let refuse = |reason: String| Err(Error::Config(reason));
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    let known = SCHEMES.iter().find(|(known, _)| Some(*known) == scheme);
    let Some((scheme, tls)) = known.copied() else {
        return refuse(
            "a store's URL starts with redis://, rediss://, unix://, valkey://, valkeys://, \
             redis+cluster://, rediss+cluster://, redis+sentinel://, rediss+sentinel://, \
             redis+quorum://, rediss+quorum://, zookeeper:// or zookeeper+tls://, or is memory:, and \
             this one does not"
                .to_owned(),
        );
    };
    let transport = Transport::of(scheme, tls, access)?;
    if scheme != "unix" {
        let rest = &url[scheme.len() + "://".len()..];
        let (_, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        // The redis client would take a part of the password for the host, and errors would show it.
        if behind.contains('@') {
            return refuse(format!(
                "the {scheme}:// URL has an `@` behind its host: percent-encode `/`, `?`, `#` and `@` \
                 in a user's name and password"
            ));
        }
        if behind.contains('#') {
            return refuse(format!(
                "the {scheme}:// URL ends in a `#…`, which means nothing here: certificates are \
                 always verified, by `root_certificates` where they are your own"
            ));
        }
    }
    let unusable = |why: &str| Error::Config(format!("the {scheme}:// URL cannot be used: {why}"));
    let refused = |error: RedisError| {
        let mut why = error.to_string();
        // The detail repeats a part of the URL.
        if let Some(detail) = error.detail()
            && let Some(start) = why.rfind(detail)
        {
            why.truncate(start);
        }
        unusable(why.trim_end_matches([':', ' ']))
    };
    // TLS is done here, not by the redis client: that would choose the process's provider of
    // cryptography.
    let plain = match scheme {
        "rediss" | "valkeys" => format!("redis{}", &url[scheme.len()..]),
        _ => url.to_owned(),
    };
    let info = plain.as_str().into_connection_info().map_err(refused)?;
    let login = Login::new(info.redis_settings().clone(), access.credentials.as_ref());
    Ok(Target {
        address: info,
        login: login.map_err(|why| unusable(&why))?,
        transport,
    })
}

impl Target {
    /// The server at an address that no URL names.
    pub(super) fn at(address: &Address, login: Login, transport: Transport) -> RedisResult<Self> {
        let address = ConnectionAddr::Tcp(address.host.clone(), address.port);
        Ok(Self {
            address: address.into_connection_info()?,
            login,
            transport,
        })
    }

    /// Connects and logs in. The connection is driven on the runtime that this is polled on, and may be told of
    /// changed keys.
    pub(super) async fn connection(
        &self,
        tracking: Option<&Arc<Tracking>>,
    ) -> RedisResult<RawConnection> {
        let config = || {
            AsyncConnectionConfig::new()
                .set_connection_timeout(None)
                .set_response_timeout(None)
        };
        // The redis client would name its library in a round trip of its own; `greeting` does that.
        let login = self.login.settings().await?.set_skip_set_lib_name();
        let stream = self.transport.stream(self.address()).await?;
        let Some(tracking) = tracking.filter(|tracking| tracking.is_possible()) else {
            return set_up(stream, &login, config()).await;
        };
        let told = config().set_push_sender(tracking.receiver());
        let speaks = login.clone().set_protocol(ProtocolVersion::RESP3);
        match set_up(stream, &speaks, told).await {
            Ok(mut connection) => {
                connection.task.changes = HearsOfChanges::Yes;
                Ok(connection)
            }
            // In the words that the redis client has for it without RESP3.
            Err(error) if matches!(error.code(), Some("NOAUTH" | "WRONGPASS")) => {
                Err(RedisError::from((
                    ErrorKind::AuthenticationFailed,
                    "Password authentication failed",
                )))
            }
            // What does not speak RESP3 says so in words of its own, or closes the connection.
            Err(_) => {
                let stream = self.transport.stream(self.address()).await?;
                let mut connection = set_up(stream, &login, config()).await?;
                connection.task.changes = HearsOfChanges::Refused;
                Ok(connection)
            }
        }
    }

    /// The same for a connection that subscribes to channels, which cannot introduce itself later.
    pub(super) async fn pubsub(&self, greeting: &Greeting) -> RedisResult<PubSub> {
        let login = self.login.settings().await?;
        let mut stream = self.transport.stream(self.address()).await?;
        greeting.on_stream(&mut stream, &login).await?;
        let logged_in = RedisConnectionInfo::default().set_skip_set_lib_name();
        PubSub::new(&logged_in, stream).await
    }

    /// The same with another host and port.
    pub(super) fn with_address(&self, address: &Address) -> Self {
        let address = ConnectionAddr::Tcp(address.host.clone(), address.port);
        Self {
            address: self.address.clone().set_addr(address),
            ..self.clone()
        }
    }

    pub(super) fn is_tls(&self) -> bool {
        self.transport.is_tls()
    }

    /// Host and port, or the socket's path: never the user or the password.
    pub(super) fn address(&self) -> &ConnectionAddr {
        self.address.addr()
    }
}

/// Speaks first on a stream.
async fn set_up(
    stream: Stream,
    login: &RedisConnectionInfo,
    config: AsyncConnectionConfig,
) -> RedisResult<RawConnection> {
    // Driven by a task of our own, which tells its end: the redis client's would be asked first.
    let connecting = MultiplexedConnection::new_with_config(login, stream, config);
    let (redis, driver) = connecting.await?;
    Ok(RawConnection {
        redis,
        task: DriverTask::spawn(driver),
    })
}
