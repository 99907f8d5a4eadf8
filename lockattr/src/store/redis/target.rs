//! Reads the URL of a server, and opens connections to it.
//!
//! An error about a URL never repeats the URL, which may hold a password. Timeouts are left to the
//! caller, and so is what is done with a connection.

use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, IntoConnectionInfo, RedisResult};

#[cfg(feature = "tls")]
use super::tls::Tls;
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
    client: Client,
    is_tls: bool,
    #[cfg(feature = "tls")]
    tls: Option<Tls>,
}

/// An open connection of the redis client, and the task that drives it where the client has none.
pub(super) struct RawConnection {
    pub(super) redis: MultiplexedConnection,
    pub(super) task: Option<DriverTask>,
}

/// Ends the task when dropped.
pub(super) struct DriverTask(tokio::task::JoinHandle<()>);

impl Drop for DriverTask {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Reads a URL; `root_certificates` are for one that means TLS.
pub(crate) fn target(url: &str, root_certificates: Option<&[u8]>) -> Result<Target, Error> {
    let refuse = |reason: String| Err(Error::Config(reason));
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    let known = SCHEMES.iter().find(|(known, _)| Some(*known) == scheme);
    let Some((scheme, tls)) = known.copied() else {
        return refuse(
            "a store's URL starts with redis://, rediss://, redis+cluster://, rediss+cluster://, unix://, \
             valkey:// or valkeys://, or is memory:, and this one does not"
                .to_owned(),
        );
    };
    if tls && !cfg!(feature = "tls") {
        return refuse(format!(
            "{scheme}:// needs TLS: enable the feature `tls` of the crate `lockattr`"
        ));
    }
    if !tls && root_certificates.is_some() {
        return refuse(format!(
            "`root_certificates` are for TLS, and {scheme}:// has none: write rediss:// or \
             valkeys://, or leave them out"
        ));
    }
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
    let refused = |error: redis::RedisError| {
        let mut why = error.to_string();
        // The detail repeats a part of the URL.
        if let Some(detail) = error.detail()
            && let Some(start) = why.rfind(detail)
        {
            why.truncate(start);
        }
        let why = why.trim_end_matches([':', ' ']);
        Error::Config(format!("the {scheme}:// URL cannot be used: {why}"))
    };
    // TLS is done here, not by the redis client: that would choose the process's provider of
    // cryptography.
    let plain = match scheme {
        "rediss" | "valkeys" => format!("redis{}", &url[scheme.len()..]),
        _ => url.to_owned(),
    };
    let info = plain.as_str().into_connection_info().map_err(refused)?;
    // Nagle's algorithm would hold small commands back until earlier ones are acknowledged.
    let settings = info.tcp_settings().clone().set_nodelay(true);
    let info = info.set_tcp_settings(settings);
    // The command by which the redis client names its library needs a right of its own.
    let settings = info.redis_settings().clone().set_skip_set_lib_name();
    let info = info.set_redis_settings(settings);
    Ok(Target {
        client: Client::open(info).map_err(refused)?,
        is_tls: tls,
        #[cfg(feature = "tls")]
        tls: tls.then(|| Tls::new(root_certificates)).transpose()?,
    })
}

impl Target {
    /// Connects and logs in. The connection is driven on the runtime that this is polled on.
    pub(super) async fn connection(&self) -> RedisResult<RawConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(None)
            .set_response_timeout(None);
        #[cfg(feature = "tls")]
        if let (Some(tls), ConnectionAddr::Tcp(host, port)) = (&self.tls, self.address()) {
            let stream = tls.connect(host, *port).await?;
            let login = self.client.get_connection_info().redis_settings();
            let connecting = MultiplexedConnection::new_with_config(login, stream, config);
            let (redis, driver) = connecting.await?;
            return Ok(RawConnection {
                redis,
                task: Some(DriverTask(tokio::spawn(driver))),
            });
        }
        let connecting = self
            .client
            .get_multiplexed_async_connection_with_config(&config);
        Ok(RawConnection {
            redis: connecting.await?,
            task: None,
        })
    }

    /// The same for a connection that subscribes to channels.
    pub(super) async fn pubsub(&self) -> RedisResult<PubSub> {
        #[cfg(feature = "tls")]
        if let (Some(tls), ConnectionAddr::Tcp(host, port)) = (&self.tls, self.address()) {
            let stream = tls.connect(host, *port).await?;
            let login = self.client.get_connection_info().redis_settings();
            return PubSub::new(login, stream).await;
        }
        self.client.get_async_pubsub().await
    }

    /// The same with another host and port.
    pub(super) fn at(&self, host: &str, port: u16) -> RedisResult<Self> {
        let address = ConnectionAddr::Tcp(host.to_owned(), port);
        let info = self.client.get_connection_info().clone().set_addr(address);
        Ok(Self {
            client: Client::open(info)?,
            ..self.clone()
        })
    }

    pub(super) fn is_tls(&self) -> bool {
        self.is_tls
    }

    /// Host and port, or the socket's path: never the user or the password.
    pub(super) fn address(&self) -> &ConnectionAddr {
        self.client.get_connection_info().addr()
    }
}
