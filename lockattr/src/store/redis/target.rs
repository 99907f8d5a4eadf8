//! Reads the URL of a server, and opens connections to it.
//!
//! An error about a URL never repeats the URL, which may hold a password. Timeouts are left to the
//! caller, and so is what is done with a connection.

use redis::aio::PubSub;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult};

use super::access::Access;
use super::addresses::Address;
use super::credentials::Login;
use super::greeting::Greeting;
use super::login::logged_in;
use super::transport::Transport;
use super::wire::Wire;
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

/// Whether a server's address alone is given.
fn is_address(url: &str) -> bool {
    let (host, port) = url.split_once(':').unwrap_or((url, "6379"));
    let is_host = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    !host.is_empty() && host.chars().all(is_host) && port.parse::<u16>().is_ok()
}

/// Reads a URL.
pub(crate) fn target(url: &str, access: &Access) -> Result<Target, Error> {
    let refuse = |reason: String| Err(Error::Config(reason));
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    let known = SCHEMES.iter().find(|(known, _)| Some(*known) == scheme);
    let Some((scheme, tls)) = known.copied() else {
        // What is given is not repeated: it may be a password.
        if is_address(url) {
            return refuse(
                "a store's URL starts with its scheme, and this one has none: the address of a Redis server is \
                 written redis://HOST/ or redis://HOST:PORT/"
                    .to_owned(),
            );
        }
        return refuse(
            "a store's URL starts with redis://, rediss://, unix://, valkey://, valkeys://, \
             redis+cluster://, rediss+cluster://, redis+sentinel://, rediss+sentinel://, \
             redis+quorum://, rediss+quorum://, etcd://, etcds://, postgres://, postgresql://, \
             zookeeper:// or zookeeper+tls://, or is memory:, and this one does not"
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
    let refused = |error: redis::RedisError| {
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

    /// Connects and logs in, on the runtime that this is polled on.
    pub(super) async fn connection(&self) -> RedisResult<Wire> {
        let stream = self.transport.stream(self.address()).await?;
        // The redis client would name its library in a round trip of its own; `greeting` does that.
        let login = self.login.settings().await?.set_skip_set_lib_name();
        Ok(Wire::new(logged_in(stream, &login).await?))
    }

    /// The same for a connection that subscribes to channels, which cannot introduce itself later.
    pub(super) async fn pubsub(&self, greeting: &Greeting) -> RedisResult<PubSub> {
        let mut wire = self.connection().await?;
        greeting.alone(&mut wire).await?;
        let logged_in = RedisConnectionInfo::default().set_skip_set_lib_name();
        PubSub::new(&logged_in, wire.into_stream()).await
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
