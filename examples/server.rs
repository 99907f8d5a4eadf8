//! Where the locks are kept: a server that was named, a private one, or none.

use std::env;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockattr::{Client, Error, Memory};

/// Starts `redis-server` in the directory `$1`, until its standard input is closed: by whoever drops it, or by
/// the end of that process, however it ends.
const GUARDED: &str = r#"
command -v redis-server >/dev/null || exit 127
mkdir -p "$1"
redis-server --port 0 --unixsocket "$1/redis.sock" --dir "$1" --save '' --appendonly no >/dev/null 2>&1 &
read -r _
kill $!
wait
rm -rf "$1"
"#;

/// Where the locks are kept.
#[derive(Debug)]
pub enum Server {
    /// The URL of `REDIS_URL`.
    Named(String),
    /// Started here, and stopped when this value is dropped.
    Private(Private),
    /// Neither is there: locks of this process.
    None(Memory),
}

/// A `redis-server` behind its guard.
#[derive(Debug)]
pub struct Private {
    guard: Child,
    url: String,
}

impl Server {
    /// The server of `REDIS_URL`, or else a private `redis-server` from the PATH, or else locks in memory.
    ///
    /// # Errors
    /// A `redis-server` that does not start.
    pub async fn find() -> Result<Self, Error> {
        if let Ok(url) = env::var("REDIS_URL") {
            return Ok(Self::Named(url));
        }
        let mut private = match Private::start() {
            Ok(private) => private,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Self::None(Memory::new()));
            }
            Err(error) => {
                let reason = format!("redis-server does not start: {error}");
                return Err(Error::Config(reason));
            }
        };
        Ok(if private.is_ready().await? {
            Self::Private(private)
        } else {
            Self::None(Memory::new())
        })
    }

    /// A client of its own, as each process of a fleet has one.
    ///
    /// # Errors
    /// Those of [`Client::connect`].
    pub async fn connect(&self) -> Result<Client, Error> {
        match self {
            Self::Named(url) | Self::Private(Private { url, .. }) => Client::connect(url).await,
            Self::None(memory) => Client::builder().store(memory.clone()),
        }
    }

    /// Its URL, where several processes can share it.
    #[must_use]
    pub fn url(&self) -> Option<&str> {
        match self {
            Self::Named(url) | Self::Private(Private { url, .. }) => Some(url),
            Self::None(_) => None,
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Named(_) => "locks on the server of REDIS_URL",
            Self::Private(_) => "locks on a private redis-server",
            Self::None(_) => "no REDIS_URL and no redis-server in the PATH: locks in memory",
        })
    }
}

impl Private {
    fn start() -> io::Result<Self> {
        let folder = env::temp_dir().join(format!("lockattr-redis-{}", std::process::id()));
        let guard = Command::new("sh")
            .args(["-c", GUARDED, "sh"])
            .arg(&folder)
            .stdin(Stdio::piped())
            // Ctrl-C is for the program, which gives its locks back before the server may go.
            .process_group(0)
            .spawn()?;
        let url = format!("unix://{}/redis.sock", folder.display());
        Ok(Self { guard, url })
    }

    /// Waits until it answers; `false` where there is no `redis-server`.
    async fn is_ready(&mut self) -> Result<bool, Error> {
        let mut tries = 0;
        loop {
            match Client::connect(&self.url).await {
                Ok(_) => return Ok(true),
                Err(_) if matches!(self.guard.try_wait(), Ok(Some(_))) => return Ok(false),
                Err(error) if tries == 100 => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
            tries += 1;
        }
    }
}

impl Drop for Private {
    fn drop(&mut self) {
        // The end of its input is what the guard waits for.
        drop(self.guard.stdin.take());
        let _ = self.guard.wait();
    }
}
