//! Reads `redis+sentinel://[[user]:password@]host[:port][,host[:port]…]/service[/database]`, with the
//! login at the sentinels as parameters.
//!
//! An error about a URL never repeats a part that may hold a password.

use redis::RedisConnectionInfo;

use super::suggestion;
use crate::error::Error;
use crate::percent;
use crate::store::redis::addresses::Address;

/// The schemes, and whether each means TLS.
const SCHEMES: [(&str, bool); 2] = [("redis+sentinel", false), ("rediss+sentinel", true)];

const DEFAULT_PORT: u16 = 26_379;

const PARAMETERS: [&str; 2] = ["sentinel_user", "sentinel_password"];

/// A scheme that means sentinels, and whether it means TLS.
pub(in crate::store::redis) type Scheme = (&'static str, bool);

/// What a URL says.
#[derive(Debug)]
pub(super) struct SentinelUrl {
    pub(super) sentinels: Vec<Address>,
    pub(super) service: String,
    /// At the Redis servers, with the database.
    pub(super) login: RedisConnectionInfo,
    pub(super) sentinel_login: RedisConnectionInfo,
}

/// The scheme of such a URL; `None` for every other.
pub(in crate::store::redis) fn scheme(url: &str) -> Option<Scheme> {
    let (scheme, _) = url.split_once("://")?;
    SCHEMES.into_iter().find(|(known, _)| *known == scheme)
}

/// Reads a URL of that scheme.
pub(super) fn read(scheme: &str, url: &str) -> Result<SentinelUrl, Error> {
    let refused = |why: String| Error::Config(format!("the {scheme}:// URL cannot be used: {why}"));
    let rest = &url[scheme.len() + "://".len()..];
    let (authority, behind) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    if behind.contains('@') {
        return Err(refused(
            "it has an `@` behind its hosts; percent-encode `/`, `?`, `#` and `@` in a user's name and \
             password"
                .to_owned(),
        ));
    }
    if behind.contains('#') {
        return Err(refused(
            "it ends in a `#…`, which means nothing here".to_owned(),
        ));
    }
    let (path, query) = behind.split_once('?').unwrap_or((behind, ""));
    let (login, hosts) = match authority.rsplit_once('@') {
        Some((login, hosts)) => (Some(login), hosts),
        None => (None, authority),
    };
    let (service, database) = service(path).map_err(refused)?;
    let login = login.map_or(Ok(RedisConnectionInfo::default()), url_login);
    let sentinels: Result<Vec<_>, _> = hosts
        .split(',')
        .enumerate()
        .map(|(index, host)| {
            address(host).map_err(|why| format!("sentinel {} of its list {why}", index + 1))
        })
        .collect();
    Ok(SentinelUrl {
        sentinels: sentinels.map_err(refused)?,
        service,
        login: login.map_err(refused)?.set_db(database),
        sentinel_login: sentinel_login(query).map_err(refused)?,
    })
}

/// Input:  `/mymaster/3`
/// Output: `mymaster` and 3
fn service(path: &str) -> Result<(String, i64), String> {
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let service = decoded(parts.next().unwrap_or_default(), "its service")?;
    if service.is_empty() {
        return Err(
            "it names no service; write it behind the hosts, as in …/mymaster, the name that the \
             sentinels' `sentinel monitor` gives it"
                .to_owned(),
        );
    }
    let database = match parts.next().unwrap_or_default().trim_end_matches('/') {
        "" => 0,
        digits => {
            let number = digits.parse().ok().filter(|number: &i64| *number >= 0);
            number.ok_or("its database, behind the service, is not a number")?
        }
    };
    Ok((service, database))
}

/// `user:password`, `:password` or `user`.
fn url_login(login: &str) -> Result<RedisConnectionInfo, String> {
    let (user, password) = login.split_once(':').unwrap_or((login, ""));
    logged_in(
        decoded(user, "its user")?,
        decoded(password, "its password")?,
    )
}

fn sentinel_login(query: &str) -> Result<RedisConnectionInfo, String> {
    let (mut user, mut password) = (String::new(), String::new());
    for parameter in query.split('&').filter(|parameter| !parameter.is_empty()) {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        match name {
            "sentinel_user" => user = decoded(value, "`sentinel_user`")?,
            "sentinel_password" => password = decoded(value, "`sentinel_password`")?,
            _ => return Err(unknown(name)),
        }
    }
    logged_in(user, password).map_err(|_| "`sentinel_user` needs a `sentinel_password`".to_owned())
}

fn logged_in(user: String, password: String) -> Result<RedisConnectionInfo, String> {
    let login = RedisConnectionInfo::default();
    match (user.is_empty(), password.is_empty()) {
        (true, true) => Ok(login),
        (false, true) => Err("its user has no password; write user:password@".to_owned()),
        (true, false) => Ok(login.set_password(password)),
        (false, false) => Ok(login.set_username(user).set_password(password)),
    }
}

/// A parameter that means nothing. Its name may be a misplaced password unless it looks like a name.
fn unknown(name: &str) -> String {
    let is_name = name.len() <= 32 && name.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    let named = match suggestion::nearest(name, PARAMETERS) {
        Some(meant) if is_name => format!("`{name}`, where `{meant}` may be meant"),
        _ => "one that is not known".to_owned(),
    };
    format!(
        "among its parameters is {named}; there are {}",
        suggestion::list(PARAMETERS)
    )
}

/// `host`, `host:port`, `[address]` or `[address]:port`.
fn address(text: &str) -> Result<Address, &'static str> {
    let (host, port) = if let Some(bracketed) = text.strip_prefix('[') {
        let (host, behind) = bracketed.split_once(']').ok_or("has a `[` and no `]`")?;
        match behind.strip_prefix(':') {
            Some(port) => (host, Some(port)),
            None if behind.is_empty() => (host, None),
            None => return Err("has something other than a port behind its `]`"),
        }
    } else {
        match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(
                    "is an IPv6 address without brackets, or has two ports; write [::1]:26379",
                );
            }
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        }
    };
    if host.is_empty() {
        return Err("is empty");
    }
    let port = match port {
        None => DEFAULT_PORT,
        Some(port) => port
            .parse()
            .ok()
            .filter(|port| *port > 0)
            .ok_or("has a port that is none")?,
    };
    let host = host.to_owned();
    Ok(Address { host, port })
}

/// Without percent-encoding.
fn decoded(text: &str, what: &str) -> Result<String, String> {
    let bytes = percent::decoded_bytes(text).ok_or_else(|| {
        format!("{what} has a `%` that is not followed by two hexadecimal digits")
    })?;
    String::from_utf8(bytes).map_err(|_| format!("{what} is not UTF-8 once it is decoded"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_url(url: &str) -> Result<SentinelUrl, String> {
        let (scheme, _) = scheme(url).unwrap();
        read(scheme, url).map_err(|error| error.to_string())
    }

    #[test]
    fn all_of_it_is_read() {
        let url = "redis+sentinel://us%3Aer:p%40ss@one,two:7,[::1],[fe80::2]:9/my%20master/3\
                   ?sentinel_user=s%26u&sentinel_password=s%3Dp";
        let read = read_url(url).unwrap();
        let sentinels: Vec<_> = read.sentinels.iter().map(ToString::to_string).collect();
        assert_eq!(
            sentinels,
            ["one:26379", "two:7", "[::1]:26379", "[fe80::2]:9"]
        );
        assert_eq!((read.service.as_str(), read.login.db()), ("my master", 3));
        assert_eq!(read.login.username(), Some("us:er"));
        assert_eq!(read.login.password(), Some("p@ss"));
        assert_eq!(read.sentinel_login.username(), Some("s&u"));
        assert_eq!(read.sentinel_login.password(), Some("s=p"));
        let least = read_url("rediss+sentinel://one/main/").unwrap();
        assert_eq!((least.service.as_str(), least.login.db()), ("main", 0));
        assert_eq!(least.login.password(), None);
        assert_eq!(least.sentinel_login.password(), None);
    }

    #[test]
    fn what_cannot_be_used_says_why_and_repeats_no_secret() {
        for (rest, word) in [
            ("one", "names no service"),
            ("one/", "names no service"),
            ("/main", "sentinel 1 of its list is empty"),
            ("one,,two/main", "sentinel 2 of its list is empty"),
            ("one:x/main", "port"),
            ("one:0/main", "port"),
            ("one:70000/main", "port"),
            ("::1/main", "brackets"),
            ("[::1/main", "no `]`"),
            ("[::1]x/main", "behind its `]`"),
            ("one/main/x", "database"),
            ("one/main/-1", "database"),
            ("one/main/1/2", "database"),
            ("user@one/main", "no password"),
            ("one/main?sentinel_user=u", "needs a `sentinel_password`"),
            (
                "one/main?sentinel_pasword=secret",
                "`sentinel_password` may be meant",
            ),
            ("one/main?db=3", "`sentinel_user` and `sentinel_password`"),
            ("one/main?secret", "one that is not known"),
            (":secret/x@one/main", "percent-encode"),
            (":%zzsecret@one/main", "hexadecimal"),
            ("one/main?sentinel_password=%ff", "UTF-8"),
            ("one/main#insecure", "means nothing"),
        ] {
            let why = read_url(&format!("redis+sentinel://{rest}")).unwrap_err();
            assert!(why.contains(word), "{rest}: {why}");
            assert!(
                !why.contains("secret") && !why.contains('\n'),
                "{rest}: {why}"
            );
        }
    }
}
