//! Where the locks are kept: a server that was named, a private one, or none.

use std::env;
use std::error::Error;
use std::io::ErrorKind;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lockattr::Client;

pub(crate) enum Server {
    /// `REDIS_URL`.
    Named(String),
    /// Started here, and stopped when this value is dropped.
    Private { process: Child, url: String },
    /// Neither is there.
    None,
}

impl Server {
    /// Looks for a server, in this order.
    pub(crate) async fn find(folder: &Path) -> Result<Self, Box<dyn Error>> {
        if let Ok(url) = env::var("REDIS_URL") {
            return Ok(Self::Named(url));
        }
        let socket = folder.join("redis.sock");
        let started = Command::new("redis-server")
            .args(["--port", "0", "--save", "", "--appendonly", "no"])
            .arg("--unixsocket")
            .arg(&socket)
            .arg("--dir")
            .arg(folder)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        let process = match started {
            Ok(process) => process,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Self::None),
            Err(error) => return Err(format!("redis-server does not start: {error}").into()),
        };
        let url = format!("unix://{}", socket.display());
        // From here on the process is stopped also where it never answers.
        let server = Self::Private { process, url };
        server.wait_until_ready().await?;
        Ok(server)
    }

    async fn wait_until_ready(&self) -> Result<(), lockattr::Error> {
        let mut tries = 0;
        loop {
            match Client::connect(self.url()).await {
                Ok(_) => return Ok(()),
                Err(error) if tries == 100 => return Err(error),
                Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
            }
            tries += 1;
        }
    }

    pub(crate) fn introduction(&self) -> &'static str {
        match self {
            Self::Named(_) => "four worker processes, locks on the server of REDIS_URL",
            Self::Private { .. } => "four worker processes, locks on a private redis-server",
            Self::None => {
                "no REDIS_URL and no redis-server in the PATH: four tasks, locks in memory"
            }
        }
    }

    /// Whether several processes can share it.
    pub(crate) fn is_shared(&self) -> bool {
        !matches!(self, Self::None)
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Named(url) | Self::Private { url, .. } => url.clone(),
            Self::None => "memory:".to_owned(),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Self::Private { process, .. } = self {
            // It may have ended already, and then there is nothing to stop.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
