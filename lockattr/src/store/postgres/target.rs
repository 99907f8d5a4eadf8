//! What a URL names: the hosts, and how a session begins. No error repeats a URL, which may hold a password.

use std::net::IpAddr;
use std::str::FromStr;

use tokio_postgres::Config;
use tokio_postgres::config::{ChannelBinding, Host, SslMode, TargetSessionAttrs};

use crate::error::Error;

const PORT: u16 = 5432;

/// The parameter of a URL that is not PostgreSQL's.
const LISTEN: &str = "listen";

/// One server, or a pooler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Address {
    pub(super) host: Host,
    /// Where the host is, if that is not to be looked up.
    pub(super) at: Option<IpAddr>,
    pub(super) port: u16,
}

#[derive(Clone, Debug)]
pub(super) struct Target {
    /// Without hosts.
    session: Config,
    pub(super) hosts: Vec<Address>,
    /// Where the connection for wake-ups and renewals goes instead.
    pub(super) listen: Option<Vec<Address>>,
}

impl Target {
    pub(super) fn of(url: &str, application: &str) -> Result<Self, Error> {
        let (url, listen) = without_listen(url)?;
        let config = parsed(&url)?;
        if !matches!(
            config.get_target_session_attrs(),
            TargetSessionAttrs::Any | TargetSessionAttrs::ReadWrite
        ) {
            return Err(refused(
                "`target_session_attrs` is `read-write` for locks, whatever the URL says, and it names another \
                 one: leave it out",
            ));
        }
        if config.get_channel_binding() == ChannelBinding::Require {
            return Err(refused(
                "`channel_binding=require` is not supported: leave it out; with `sslmode=require` the server's \
                 certificate is verified",
            ));
        }
        let listen = listen.map(|hosts| addresses(&parsed(&format!("postgres://{hosts}/"))?));
        Ok(Self {
            session: session(&config, application),
            hosts: addresses(&config)?,
            listen: listen.transpose()?,
        })
    }

    pub(super) fn names_a_login(&self) -> bool {
        self.session.get_user().is_some() || self.session.get_password().is_some()
    }

    /// Whoever says how servers are verified wants them to be.
    pub(super) fn encrypt_always(&mut self) {
        if self.session.get_ssl_mode() == SslMode::Prefer {
            self.session.ssl_mode(SslMode::Require);
        }
    }

    pub(super) fn ssl_mode(&self) -> SslMode {
        self.session.get_ssl_mode()
    }

    /// The settings of one connection.
    pub(super) fn session_at(&self, address: &Address) -> Config {
        let mut config = self.session.clone();
        match &address.host {
            Host::Tcp(host) => config.host(host),
            #[cfg(unix)]
            Host::Unix(path) => config.host_path(path),
        };
        if let Some(at) = address.at {
            config.hostaddr(at);
        }
        config.port(address.port);
        config
    }
}

impl Address {
    /// As it is told.
    pub(super) fn shown(&self) -> String {
        match &self.host {
            Host::Tcp(host) => format!("{host}:{}", self.port),
            #[cfg(unix)]
            Host::Unix(path) => format!("{}:{}", path.display(), self.port),
        }
    }
}

fn refused(why: &str) -> Error {
    Error::Config(format!("the PostgreSQL URL cannot be used: {why}"))
}

fn parsed(url: &str) -> Result<Config, Error> {
    Config::from_str(url).map_err(|error| {
        // The values are not told.
        refused(&super::fault::message(&error))
    })
}

/// A URL as PostgreSQL knows it, and the hosts of `listen=`.
fn without_listen(url: &str) -> Result<(String, Option<String>), Error> {
    let Some((before, parameters)) = url.split_once('?') else {
        return Ok((url.to_owned(), None));
    };
    let mut listen = None;
    let mut others = Vec::new();
    for parameter in parameters.split('&') {
        match parameter.split_once('=') {
            Some((LISTEN, hosts)) if hosts.is_empty() || hosts.contains(['@', '/', '?']) => {
                return Err(refused(
                    "`listen` is a host or several, with their ports: `listen=db.example:5432`",
                ));
            }
            Some((LISTEN, hosts)) => listen = Some(hosts.to_owned()),
            _ => others.push(parameter),
        }
    }
    Ok((format!("{before}?{}", others.join("&")), listen))
}

fn addresses(config: &Config) -> Result<Vec<Address>, Error> {
    let (hosts, at, ports) = (
        config.get_hosts(),
        config.get_hostaddrs(),
        config.get_ports(),
    );
    let count = hosts.len().max(at.len());
    if count == 0 {
        return Err(refused(
            "it names no host: write `postgres://host/database`",
        ));
    }
    if (!hosts.is_empty() && !at.is_empty() && hosts.len() != at.len())
        || (ports.len() > 1 && ports.len() != count)
    {
        return Err(refused("it has not as many ports or addresses as hosts"));
    }
    let address = |index: usize| {
        let at = at.get(index).copied();
        let host = hosts.get(index).cloned();
        let port = ports.get(index).or(ports.first()).copied();
        Some(Address {
            host: host.or_else(|| Some(Host::Tcp(at?.to_string())))?,
            at,
            port: port.unwrap_or(PORT),
        })
    };
    Ok((0..count).filter_map(address).collect())
}

/// Everything but the hosts.
fn session(config: &Config, application: &str) -> Config {
    let mut session = Config::new();
    session
        .application_name(config.get_application_name().unwrap_or(application))
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle());
    if let Some(user) = config.get_user() {
        session.user(user);
    }
    if let Some(password) = config.get_password() {
        session.password(password);
    }
    if let Some(name) = config.get_dbname() {
        session.dbname(name);
    }
    if let Some(options) = config.get_options() {
        session.options(options);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        session.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        session.keepalives_retries(retries);
    }
    if let Some(timeout) = config.get_tcp_user_timeout() {
        session.tcp_user_timeout(*timeout);
    }
    session
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(hosts: &[Address]) -> Vec<String> {
        hosts.iter().map(Address::shown).collect()
    }

    #[test]
    fn hosts_are_those_of_the_url() {
        let target = Target::of("postgres://me:pw@a,b:6000/db?listen=c:7000,d", "x").unwrap();
        assert_eq!(shown(&target.hosts), ["a:5432", "b:6000"]);
        assert_eq!(shown(&target.listen.clone().unwrap()), ["c:7000", "d:5432"]);
        let config = target.session_at(&target.hosts[1]);
        assert_eq!(config.get_user(), Some("me"));
        assert_eq!(config.get_dbname(), Some("db"));
        assert_eq!(config.get_ports(), [6000]);
        assert_eq!(config.get_application_name(), Some("x"));
    }

    #[test]
    fn what_cannot_be_used_is_told_without_the_password() {
        for url in [
            "postgres://me:secret@/db",
            "postgres://me:secret@a/db?target_session_attrs=read-only",
            "postgres://me:secret@a/db?channel_binding=require",
            "postgres://me:secret@a/db?sslmode=maybe",
            "postgres://me:secret@a/db?unheard=of",
            "postgres://me:secret@a/db?listen=",
            "postgres://me:secret@a:port/db",
        ] {
            let error = Target::of(url, "x").expect_err(url).to_string();
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
