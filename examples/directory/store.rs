//! Locks in a directory that the processes of one machine share. Each is a file, `{until} {owner}`.
//!
//! Each step reads and writes under an advisory lock on one more file, which makes it atomic. The
//! operating system releases that lock when a process ends, however it ends. Times are of the monotonic
//! clock, which starts anew with the machine: the directory has to be empty then, as below `/run`.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::pin::Pin;
use std::time::{Duration, Instant, UNIX_EPOCH};

use lockattr::StoreError;
use lockattr::store::{
    Acquired, Attempt, Claim, Found, Held, KeptReply, Leave, Limits, Release, Renewal, Renewed,
    Reply, Store, Token, relied_on_until,
};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

/// How long a step waits for the steps of other processes. Each takes less than a millisecond.
const PATIENCE: Duration = Duration::from_secs(1);

/// Written in place of an owner: the lock stays closed, or its work is done.
const CLOSED: &str = "closed";
const DONE: &str = "done";

#[derive(Clone, Debug)]
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    /// Runs one step, atomic among all processes. It completes within one poll or has no effect.
    fn step<'a, T>(&'a self, work: impl FnOnce() -> io::Result<T> + Send + 'a) -> Reply<'a, T> {
        let failed = move |error| format!("the locks in {}: {error}", self.0.display());
        let refused = move |error: io::Error| StoreError::refused(failed(error));
        Box::pin(async move {
            let guard = File::create(self.0.join(".guard")).map_err(refused)?;
            let begun = Instant::now();
            while let Err(error) = flock(&guard, FlockOperation::NonBlockingLockExclusive) {
                if error != Errno::WOULDBLOCK || begun.elapsed() > PATIENCE {
                    return Err(refused(error.into()));
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            work().map_err(|error| StoreError::in_doubt(failed(error)))
        })
    }

    /// The file of a claim's only lock: its key, in which characters that a file name cannot have are
    /// encoded, as `%2f`.
    fn file(&self, claim: Claim<'_>) -> PathBuf {
        let escaped = |byte: u8| match byte {
            b'-' | b'_' | b':' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(byte).into(),
            _ => format!("%{byte:02x}"),
        };
        let name: String = claim.locks[0].bytes().map(escaped).collect();
        self.0.join(name)
    }

    /// The holder of the lock, and the rest of its lease.
    fn read(&self, claim: Claim<'_>) -> io::Result<Option<(String, Duration)>> {
        let file = self.file(claim);
        let text = match fs::read_to_string(&file) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            text => text?,
        };
        let parts = text.split_once(' ');
        let parts = parts.and_then(|(until, owner)| Some((until.parse().ok()?, owner)));
        let (until, owner) = parts.ok_or_else(|| {
            io::Error::other(format!("{} is no lock; move it away", file.display()))
        })?;
        let left = Duration::from_millis(until).checked_sub(uptime());
        Ok(left.map(|left| (owner.to_owned(), left)))
    }

    /// Returns until when the lease may be relied on. A process that is killed here has written all or
    /// nothing.
    fn write(&self, claim: Claim<'_>, owner: &str, ttl: Duration) -> io::Result<Instant> {
        let (begun, new) = (Instant::now(), self.0.join(".new"));
        let until = (uptime() + ttl).as_millis();
        fs::write(&new, format!("{until} {owner}"))?;
        fs::rename(new, self.file(claim))?;
        Ok(relied_on_until(begun, ttl))
    }

    fn find(&self, claim: Claim<'_>) -> io::Result<Found> {
        Ok(match self.read(claim)? {
            None => Found::Nothing,
            Some((owner, _)) if owner == claim.owner => Found::Ours,
            Some(_) => Found::Another,
        })
    }
}

impl Store for Directory {
    fn limits(&self) -> Limits {
        Limits::default().several_locks(false).permits(false)
    }

    fn acquire<'a>(&'a self, claim: Claim<'a>, _: Attempt) -> Reply<'a, Acquired> {
        self.step(move || {
            let (lock, slot) = (0, 0);
            Ok(match self.read(claim)? {
                Some((owner, _)) if owner.split(' ').next() == Some(DONE) => {
                    let since = fs::metadata(self.file(claim))?.modified()?;
                    let reply = owner.split_once(' ').map(|(_, reply)| reply);
                    Acquired::done(lock, since).replied(reply.map(KeptReply::new))
                }
                Some((owner, remaining)) if owner != claim.owner => {
                    Acquired::busy(lock, owner, remaining)
                }
                _ => Acquired::granted(slot, self.write(claim, claim.owner, claim.ttl)?),
            })
        })
    }

    fn renew<'a>(&'a self, leases: &'a [Held<'a>], _: Duration) -> Reply<'a, Vec<Renewed>> {
        let renew = |lease: &Held<'_>| {
            let claim = lease.claim;
            Ok(match self.read(claim)? {
                Some((owner, left)) if owner == claim.owner => {
                    let asked = Instant::now();
                    // A renewal may come later than one that was asked for after it.
                    if lease.shortens || left < claim.ttl {
                        self.write(claim, claim.owner, claim.ttl)?;
                    }
                    Renewal::Until(relied_on_until(asked, claim.ttl))
                }
                None => Renewal::Gone,
                Some(_) => Renewal::Taken,
            })
        };
        let failed = |error: io::Error| StoreError::in_doubt(error.to_string());
        let renew = move |lease: &Held<'_>| renew(lease).map_err(failed);
        self.step(move || Ok(leases.iter().map(renew).collect()))
    }

    fn release<'a>(&'a self, claim: Claim<'a>, release: Release<'a>) -> Reply<'a, Found> {
        self.step(move || {
            let found = self.find(claim)?;
            let keeps = release.keep_marks && found == Found::Nothing;
            match release.leave.first() {
                Some(leave) if leave.is_done() && (found == Found::Ours || keeps) => {
                    let reply = leave.reply().map(KeptReply::as_str);
                    let mark =
                        reply.map_or_else(|| DONE.to_owned(), |reply| format!("{DONE} {reply}"));
                    self.write(claim, &mark, leave.length())?;
                }
                Some(Leave::Closed(length)) if found == Found::Ours => {
                    self.write(claim, CLOSED, *length)?;
                }
                _ if found == Found::Ours => fs::remove_file(self.file(claim))?,
                _ => {}
            }
            Ok(found)
        })
    }

    /// From one counter for all locks. Should its file be lost, the time since 1970 is larger.
    fn token<'a>(&'a self, lease: Held<'a>) -> Reply<'a, Token> {
        self.step(move || match self.find(lease.claim)? {
            Found::Ours => {
                let counter = self.0.join(".token");
                let last = fs::read_to_string(&counter).unwrap_or_default();
                let next = last.parse().map_or(0, |last: u64| last + 1);
                let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_micros();
                let token = next
                    .max(u64::try_from(now).unwrap_or(0))
                    .max(lease.at_least);
                fs::write(counter, token.to_string())?;
                Ok(Token::Drawn(token))
            }
            other => Ok(Token::NotHeld(other)),
        })
    }

    fn settled<'a>(&'a self, _: &'a str) -> Pin<Box<dyn Future<Output = Duration> + Send + 'a>> {
        Box::pin(async { Duration::ZERO })
    }
}

/// On the clock that every `Instant` of the machine uses.
fn uptime() -> Duration {
    Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap_or_default()
}
