//! Reads a `zookeeper://` URL. An error never repeats the URL, which may hold a password.

use std::fmt;

use super::connection::Transport;
use crate::error::Error;
use crate::percent;
use crate::store::redis::Certificates;
#[cfg(feature = "tls")]
use crate::store::redis::Tls;

const PLAIN: &str = "zookeeper";
const ENCRYPTED: &str = "zookeeper+tls";
const PORT: u16 = 2181;

/// The servers that a URL names, and the node below which locks are kept.
#[derive(Clone)]
pub(crate) struct Ensemble {
    pub(super) hosts: Vec<Host>,
    /// Without a slash at its end: empty for the root.
    pub(super) root: String,
    pub(super) transport: Transport,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Host {
    pub(super) name: String,
    pub(super) port: u16,
}

/// Whoever the URL says, by the scheme `digest`.
#[derive(Clone)]
pub(super) struct Login {
    pub(super) user: String,
    pub(super) password: String,
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.port)
    }
}

/// `None` for a URL of another store.
pub(crate) fn ensemble(url: &str, certificates: &Certificates) -> Option<Result<Ensemble, Error>> {
    let (scheme, rest) = url.split_once("://")?;
    let is_encrypted = match scheme {
        PLAIN => false,
        ENCRYPTED => true,
        _ => return None,
    };
    let read = read(rest)
        .map_err(|why| Error::Config(format!("the {scheme}:// URL cannot be used: {why}")));
    Some(read.and_then(|(hosts, root, login)| {
        Ok(Ensemble {
            hosts,
            root,
            transport: transport(scheme, is_encrypted, login, certificates)?,
        })
    }))
}

fn transport(
    scheme: &str,
    is_encrypted: bool,
    login: Option<Login>,
    certificates: &Certificates,
) -> Result<Transport, Error> {
    if is_encrypted && !cfg!(feature = "tls") {
        return Err(Error::Config(format!(
            "{scheme}:// needs TLS: enable the feature `tls` of the crate `lockattr`"
        )));
    }
    if !is_encrypted && let Some(setting) = certificates.any() {
        return Err(Error::Config(format!(
            "`{setting}` is for TLS, and {scheme}:// has none: write {ENCRYPTED}://, or leave it out"
        )));
    }
    Ok(Transport {
        login,
        #[cfg(feature = "tls")]
        tls: is_encrypted.then(|| Tls::new(certificates)).transpose()?,
    })
}

type Parts = (Vec<Host>, String, Option<Login>);

fn read(rest: &str) -> Result<Parts, String> {
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    if path.contains('@') {
        return Err(
            "there is an `@` behind its host: percent-encode `/` and `@` in a user's name and password"
                .to_owned(),
        );
    }
    if rest.contains(['?', '#']) {
        return Err(
            "it has a `?` or a `#`, and there are no parameters: leave them out".to_owned(),
        );
    }
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (Some(read_login(login)?), hosts),
        None => (None, authority),
    };
    let hosts = hosts.split(',').map(read_host).collect::<Result<_, _>>()?;
    Ok((hosts, read_root(path)?, login))
}

fn read_login(login: &str) -> Result<Login, String> {
    let (user, password) = login
        .split_once(':')
        .ok_or("before the `@` there are a user and a password, as `user:password@`")?;
    let decode =
        |text| percent::decoded(text).ok_or("its user or password is not percent-encoded text");
    let (user, password) = (decode(user)?, decode(password)?);
    if user.is_empty() || user.contains(':') {
        return Err("a user has a name, and no colon in it".to_owned());
    }
    Ok(Login { user, password })
}

fn read_host(host: &str) -> Result<Host, String> {
    let (name, port) = match host.strip_prefix('[') {
        Some(v6) => {
            let (name, behind) = v6
                .split_once(']')
                .ok_or("an IPv6 address lacks its closing bracket")?;
            (name, behind.strip_prefix(':'))
        }
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    let port = match port {
        None => Some(PORT),
        Some(port) => port.parse().ok().filter(|port| *port != 0),
    };
    match port {
        Some(port) if !name.is_empty() => Ok(Host {
            name: name.to_owned(),
            port,
        }),
        _ => Err("a server is `host` or `host:port`, several are divided by commas".to_owned()),
    }
}

fn read_root(path: &str) -> Result<String, String> {
    let root = path.strip_suffix('/').unwrap_or(path);
    if root.is_empty() {
        return Ok(String::new());
    }
    let root = percent::decoded(root).ok_or("its path is not percent-encoded text")?;
    let is_allowed = |c: char| {
        !c.is_control() && !matches!(c, '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..='\u{ffff}')
    };
    let is_name = |name: &str| !matches!(name, "" | "." | "..") && name.chars().all(is_allowed);
    let mut names = root[1..].split('/');
    if root.starts_with("/zookeeper") || !names.all(is_name) {
        return Err(
            "its path is to be that of a node, as `/locks`, and not below `/zookeeper`".to_owned(),
        );
    }
    Ok(root)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_servers_and_a_node() {
        let (hosts, root, login) = read("u:p%40w@a,b:2182,[::1]:9/locks/x/").unwrap();
        let hosts: Vec<_> = hosts.iter().map(ToString::to_string).collect();
        assert_eq!(hosts, ["a:2181", "b:2182", "::1:9"]);
        assert_eq!(root, "/locks/x");
        let login = login.unwrap();
        assert_eq!((login.user.as_str(), login.password.as_str()), ("u", "p@w"));
        assert_eq!(read("a").unwrap().1, "");
        assert_eq!(read("a/").unwrap().1, "");
    }

    #[test]
    fn what_cannot_be_read_is_refused_without_being_repeated() {
        for url in [
            "",
            ":1",
            "a:0",
            "a:x",
            "secret@a",
            "a,,b",
            "u:secret%4@a",
            "a/b?secret",
            "a//b",
            "a/..",
            "a/zookeeper/x",
            "u:se/cret@a",
            "[::1",
        ] {
            let why = read(url).map(|_| ()).unwrap_err();
            assert!(!why.contains("secret"), "{url}: {why}");
        }
        assert!(ensemble("redis://a/", &Certificates::default()).is_none());
    }
}
