//! Functions that are not `async` and take their lock on a thread that may wait.
#![deny(warnings, clippy::pedantic, clippy::nursery)]
#![deny(unused, future_incompatible, let_underscore_drop)]
#![allow(
    clippy::missing_errors_doc,
    clippy::match_single_binding,
    clippy::missing_const_for_fn,
    reason = "what the code below does as its author, and not the expansion"
)]

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt::{Debug, Display};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use lockattr::{Client, Error, distributed_lock};

/// Calls a guarded function while its key is free, while it is held, and once more.
#[allow(clippy::needless_pass_by_value)]
fn check<T: PartialEq + Debug>(key: &str, value: T, call: impl Fn() -> Result<T, Error>) {
    let locks = Client::connect_blocking("memory:").unwrap();
    assert_eq!(locks.scope_blocking(&call).unwrap(), value);
    let held = locks.lock(key).acquire_blocking().unwrap();
    match locks.scope_blocking(&call) {
        Err(Error::Busy { .. }) => {}
        other => panic!("{key} is held, and the call answered {other:?}"),
    }
    held.release_blocking().unwrap();
    assert_eq!(locks.scope_blocking(&call).unwrap(), value);
}

#[distributed_lock(key = "plain:<id>", blocking)]
fn plain(id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[distributed_lock(
    key = "every:<id>",
    ttl = "5s",
    wait = "1ms",
    on_busy = return Err(busy(id)),
    on_unavailable = local,
    on_lost = return Err(busy(id)),
    min_hold = "1ms",
    max_hold = "1m",
    once = "1ms",
    on_done = error,
    bind = lease,
    redact = false,
    blocking,
)]
fn every_argument(id: u8) -> Result<u8, Error> {
    lease.check()?;
    Ok(id)
}

fn busy(_: u8) -> Error {
    Error::NotInstalled
}

#[distributed_lock(key = "early:<id>", blocking)]
fn early_returns(id: u8) -> Result<&'static str, Error> {
    if id == 1 {
        return Ok("one");
    }
    for i in 0..id {
        if i == 2 {
            return Ok("loop");
        }
    }
    plain(id)?;
    Ok("end")
}

#[distributed_lock(key = "mut:<text>", blocking)]
fn mutable(mut text: &str, (mut count, ref step): (usize, usize)) -> Result<String, Error> {
    let upper = text.to_uppercase();
    text = &upper;
    count += *step;
    Ok(text.repeat(count))
}

#[distributed_lock(key = "moved:<name>", blocking)]
fn uses_up_its_argument(name: String) -> Result<Vec<u8>, Error> {
    Ok(name.into_bytes())
}

#[distributed_lock(key = "generic:<id>", blocking)]
fn generic<T: Display, R>(id: T, rest: &R) -> Result<(String, &R), Error> {
    Ok((id.to_string(), rest))
}

#[distributed_lock(key = "impl:<id>", blocking)]
fn impl_argument(id: impl Display, parts: &[u8]) -> Result<impl Iterator<Item = &u8>, Error> {
    drop(id);
    if parts.is_empty() {
        return Ok(parts.iter());
    }
    Ok(parts[1..].iter())
}

#[distributed_lock(key = "opaque:<id>", on_busy = return 0..0, on_unavailable = return 0..0, on_lost = return 0..0, blocking)]
fn opaque(id: u8) -> impl Iterator<Item = u8> {
    0..id
}

#[distributed_lock(key = "coerced:<id>", blocking)]
fn coerced(id: u8) -> Result<Box<dyn Display>, Error> {
    if id == 0 {
        return Ok(Box::new("none"));
    }
    Ok(Box::new(id))
}

#[distributed_lock(key = "local:<id>", blocking)]
fn not_send(id: u8) -> Result<Rc<RefCell<u8>>, Error> {
    Ok(Rc::new(RefCell::new(id)))
}

#[distributed_lock(key = "outer:<id>", blocking)]
#[distributed_lock(key = "inner:<id>", bind = inner, blocking)]
fn two_locks(id: u8) -> Result<String, Error> {
    Ok(inner.key().to_owned())
}

#[distributed_lock(key = "skip:<id>", on_busy = skip, on_lost = continue, blocking)]
fn skip(id: u8) -> Option<u8> {
    Some(id)
}

#[distributed_lock(key = "unit", on_busy = skip, blocking)]
fn unit() {}

#[distributed_lock(key = "c:<id>", on_busy = skip, blocking)]
extern "C" fn foreign(id: u8) {
    let _ = id;
}

#[distributed_lock(key = "anyhow:<id>", blocking)]
fn alias(id: u8) -> anyhow::Result<u8> {
    Ok("4".parse::<u8>()? + id)
}

#[distributed_lock(key = "panic:<id>", blocking)]
fn panics(id: u8) -> Result<u8, Error> {
    assert!(id > 0, "as it was told");
    Ok(id)
}

struct Service {
    name: String,
    counts: HashMap<u8, u8>,
    locks: Client,
}

impl Service {
    #[distributed_lock(key = "ref:<self.name>", client = self.locks, blocking)]
    fn by_ref(&self) -> Result<&str, Error> {
        Ok(&self.name)
    }

    #[distributed_lock(key = "mut:<self.name>:<id>", client = self.locks, blocking)]
    fn by_mut(&mut self, id: u8) -> Result<&mut u8, Error> {
        if self.counts.get(&id).is_some_and(|known| *known > 100) {
            return Err(Error::NotInstalled);
        }
        Ok(self.counts.entry(id).or_insert(id))
    }

    #[distributed_lock(key = "value:<self.name>", client = self.locks, blocking)]
    fn by_value(mut self) -> Result<String, Error> {
        self.name.push('!');
        Ok(self.name)
    }

    #[distributed_lock(key = "rc:<self.name>", client = self.locks, blocking)]
    fn by_rc(self: Rc<Self>) -> Result<usize, Error> {
        Ok(Rc::strong_count(&self))
    }

    #[distributed_lock(key = "longer", client = self.locks, blocking)]
    fn longer<'a>(&self, one: &'a str, other: &'a str) -> Result<&'a str, Error> {
        Ok(if one.len() > other.len() { one } else { other })
    }
}

trait Job {
    fn id(&self) -> u8;

    #[distributed_lock(key = "job:<self.id()>", blocking)]
    fn run(&self) -> Result<u8, Error> {
        Ok(self.id())
    }

    fn stop(&self) -> Result<Self, Error>
    where
        Self: Sized;
}

impl Job for u8 {
    fn id(&self) -> u8 {
        *self
    }

    #[distributed_lock(key = "stop:<self>", blocking)]
    fn stop(&self) -> Result<Self, Error> {
        Ok(*self)
    }
}

macro_rules! job {
    ($name:ident, $id:ident, $body:block) => {
        #[distributed_lock(key = "made:<id>", blocking)]
        fn $name($id: u8) -> Result<u8, Error> $body
    };
}

job!(made_by_a_macro, id, { Ok(id) });

#[test]
fn what_bodies_are_made_of() {
    check("plain:1", 1, || plain(1));
    check("early:1", "one", || early_returns(1));
    check("early:2", "end", || early_returns(2));
    check("early:3", "loop", || early_returns(3));
    check("mut:a", "AAA".to_owned(), || mutable("a", (1, 2)));
    check("moved:a", vec![b'a'], || uses_up_its_argument("a".into()));
    check("local:1", 1, || Ok(not_send(1)?.take()));
    check("coerced:1", "1".to_owned(), || Ok(coerced(1)?.to_string()));
    check("made:1", 1, || made_by_a_macro(1));
    check("inner:1", "inner:1".to_owned(), || two_locks(1));
    check("outer:1", "inner:1".to_owned(), || two_locks(1));
}

#[test]
fn generics_and_opaque_types() {
    check("generic:1", ("1".to_owned(), 2), || {
        let (id, rest) = generic(1, &2)?;
        Ok((id, *rest))
    });
    check("impl:1", 1, || Ok(impl_argument(1, &[1, 2])?.count()));
    let locks = Client::connect_blocking("memory:").unwrap();
    assert_eq!(locks.scope_blocking(|| opaque(3).count()), 3);
    let _held = locks.lock("opaque:3").acquire_blocking().unwrap();
    assert_eq!(locks.scope_blocking(|| opaque(3).count()), 0);
}

#[test]
fn receivers_and_traits() {
    let locks = Client::connect_blocking("memory:").unwrap();
    let service = || Service {
        name: "s".into(),
        counts: HashMap::new(),
        locks: locks.clone(),
    };
    assert_eq!(service().by_ref().unwrap(), "s");
    assert_eq!(*service().by_mut(7).unwrap(), 7);
    assert_eq!(service().by_value().unwrap(), "s!");
    assert_eq!(Rc::new(service()).by_rc().unwrap(), 1);
    assert_eq!(service().longer("a", "bc").unwrap(), "bc");
    check("job:1", 1, || 1_u8.run());
    check("stop:1", 1, || 1_u8.stop());
}

#[test]
fn qualifiers_and_policies() {
    let locks = Client::connect_blocking("memory:").unwrap();
    locks.scope_blocking(|| {
        foreign(1);
        unit();
        assert_eq!(alias(1).unwrap(), 5);
        assert_eq!(skip(1), Some(1));
    });
    let _held = locks.lock("skip:1").acquire_blocking().unwrap();
    assert_eq!(locks.scope_blocking(|| skip(1)), None);
    assert_eq!(locks.scope_blocking(|| every_argument(1)).unwrap(), 1);
    let error = plain(1).unwrap_err();
    assert!(matches!(error, Error::NotInstalled), "{error}");
}

#[test]
fn a_panic_gives_the_key_back() {
    let locks = Client::connect_blocking("memory:").unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(|| locks.scope_blocking(|| panics(0))));
    assert!(panicked.is_err());
    let wait = std::time::Duration::from_secs(20);
    let again = locks.lock("panic:0").wait(wait).acquire_blocking();
    again.unwrap().release_blocking().unwrap();
}

/// Without locks, and in time that a test has stopped.
#[tokio::test(start_paused = true)]
async fn other_clients() {
    let disabled = Client::disabled().unwrap();
    let (memory, none) = (Client::connect("memory:").await.unwrap(), disabled.clone());
    let held = memory.lock("plain:1").acquire().await.unwrap();
    let its = memory.clone();
    let calls = move || {
        (
            its.scope_blocking(|| plain(1)),
            none.scope_blocking(|| plain(1)),
        )
    };
    let (busy, ran) = tokio::task::spawn_blocking(calls).await.unwrap();
    assert!(matches!(busy, Err(Error::Busy { .. })), "{busy:?}");
    assert_eq!(ran.unwrap(), 1);
    assert_eq!(disabled.stats().unguarded, 1);
    held.release().await.unwrap();
    let again = move || memory.scope_blocking(|| plain(1));
    let again = tokio::task::spawn_blocking(again).await.unwrap();
    assert_eq!(again.unwrap(), 1);
}
