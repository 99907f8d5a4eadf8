//! What a call answers: one table of policies, return types and events, gone through on each store.
//!
//! A row says what the caller gets, how often the body ran, and at which level the one event about
//! it was told (`-` for none).

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use lockattr::{Client, Error, Memory, distributed_lock};
use tests::server::Server;
use tests::{log, wait};

use crate::support::{client, nap};

/// What happens to the call.
#[derive(Clone, Copy, PartialEq)]
enum Event {
    Ran,
    Failed,
    Busy,
    Down,
    Lost,
    LostButGoesOn,
    Done,
}

/// What the body does.
#[derive(Clone)]
struct Body {
    runs: Arc<AtomicUsize>,
    event: Event,
}

impl Body {
    async fn run(&self) {
        self.runs.fetch_add(1, Ordering::SeqCst);
        match self.event {
            Event::Lost => pending().await,
            // Past the renewal that finds the loss.
            Event::LostButGoesOn => nap(500).await,
            _ => {}
        }
    }
}

type Answer = Pin<Box<dyn Future<Output = String> + Send>>;

struct Row {
    name: &'static str,
    event: Event,
    call: fn(Client, u64, Body) -> Answer,
    expected: &'static str,
}

/// The answer as the table writes it: errors by their variant.
trait Show {
    fn show(&self) -> String;
}

impl Show for () {
    fn show(&self) -> String {
        "()".into()
    }
}

impl Show for u32 {
    fn show(&self) -> String {
        self.to_string()
    }
}

impl Show for Option<u32> {
    fn show(&self) -> String {
        format!("{self:?}")
    }
}

impl<T: Show> Show for Result<T, Error> {
    fn show(&self) -> String {
        match self {
            Ok(value) => format!("Ok({})", value.show()),
            Err(error) => {
                let whole = format!("{error:?}");
                let variant: String = whole.chars().take_while(|c| c.is_alphanumeric()).collect();
                format!("Err({variant})")
            }
        }
    }
}

macro_rules! rows {
    ($($event:ident, $type:ty = $value:expr, [$($args:tt)*] => $expected:literal;)*) => {
        vec![$({
            #[distributed_lock(key = "cell:<id>", ttl = "600ms", client = locks, $($args)*)]
            async fn cell(locks: &Client, id: u64, body: Body) -> $type {
                body.run().await;
                $value
            }

            fn call(locks: Client, id: u64, body: Body) -> Answer {
                Box::pin(async move { cell(&locks, id, body).await.show() })
            }

            Row {
                name: concat!(stringify!($event), " ", stringify!($type), " [", stringify!($($args)*), "]"),
                event: Event::$event,
                call,
                expected: $expected,
            }
        },)*]
    };
}

type Unit = Result<(), Error>;
type Maybe = Result<Option<u32>, Error>;
type Number = Result<u32, Error>;

fn table() -> Vec<Row> {
    rows! {
        Ran, () = (), [on_busy = skip] => "() 1 -";
        Ran, Option<u32> = Some(1), [on_busy = skip] => "Some(1) 1 -";
        Ran, Unit = Ok(()), [] => "Ok(()) 1 -";
        Ran, Maybe = Ok(Some(1)), [] => "Ok(Some(1)) 1 -";
        Ran, Number = Ok(1), [] => "Ok(1) 1 -";
        Ran, u32 = 1, [on_busy = return 2, on_unavailable = return 3, on_lost = return 4] => "1 1 -";
        Failed, Number = Err(Error::NotInstalled), [] => "Err(NotInstalled) 1 -";

        Busy, () = (), [on_busy = skip] => "() 0 DEBUG";
        Busy, () = (), [on_busy = return ()] => "() 0 DEBUG";
        Busy, Option<u32> = Some(1), [on_busy = skip] => "None 0 DEBUG";
        Busy, Option<u32> = Some(1), [on_busy = return Some(2)] => "Some(2) 0 DEBUG";
        Busy, Unit = Ok(()), [] => "Err(Busy) 0 DEBUG";
        Busy, Unit = Ok(()), [on_busy = error] => "Err(Busy) 0 DEBUG";
        Busy, Unit = Ok(()), [on_busy = skip] => "Ok(()) 0 DEBUG";
        Busy, Maybe = Ok(Some(1)), [on_busy = error] => "Err(Busy) 0 DEBUG";
        Busy, Maybe = Ok(Some(1)), [on_busy = skip] => "Ok(None) 0 DEBUG";
        Busy, Number = Ok(1), [on_busy = error] => "Err(Busy) 0 DEBUG";
        Busy, Number = Ok(1), [on_busy = return Ok(2)] => "Ok(2) 0 DEBUG";
        Busy, Number = Ok(1), [on_busy = error, on_unavailable = run] => "Err(Busy) 0 DEBUG";
        Busy, Number = Ok(1), [on_busy = error, on_unavailable = local] => "Err(Busy) 0 DEBUG";
        Busy, Number = Ok(1), [wait = "50ms", on_unavailable = run] => "Err(Busy) 0 DEBUG";
        Busy, u32 = 1, [on_busy = return 2, on_unavailable = return 3, on_lost = return 4] => "2 0 DEBUG";

        Down, () = (), [on_busy = skip] => "() 0 ERROR";
        Down, () = (), [on_busy = skip, on_unavailable = skip] => "() 0 ERROR";
        Down, () = (), [on_busy = skip, on_unavailable = run] => "() 1 WARN";
        Down, () = (), [on_busy = skip, on_unavailable = local] => "() 1 WARN";
        Down, () = (), [on_busy = skip, on_unavailable = return ()] => "() 0 ERROR";
        Down, Option<u32> = Some(1), [on_busy = skip] => "None 0 ERROR";
        Down, Option<u32> = Some(1), [on_busy = skip, on_unavailable = run] => "Some(1) 1 WARN";
        Down, Option<u32> = Some(1), [on_busy = skip, on_unavailable = return Some(3)] => "Some(3) 0 ERROR";
        Down, Unit = Ok(()), [on_busy = skip] => "Err(Unavailable) 0 WARN";
        Down, Unit = Ok(()), [on_unavailable = error] => "Err(Unavailable) 0 WARN";
        Down, Unit = Ok(()), [on_unavailable = skip] => "Ok(()) 0 ERROR";
        Down, Maybe = Ok(Some(1)), [on_unavailable = skip] => "Ok(None) 0 ERROR";
        Down, Maybe = Ok(Some(1)), [on_unavailable = local] => "Ok(Some(1)) 1 WARN";
        Down, Number = Ok(1), [] => "Err(Unavailable) 0 WARN";
        Down, Number = Ok(1), [on_unavailable = return Ok(3)] => "Ok(3) 0 ERROR";
        Down, Number = Ok(1), [on_unavailable = run] => "Ok(1) 1 WARN";
        Down, u32 = 1, [on_busy = return 2, on_unavailable = return 3, on_lost = return 4] => "3 0 ERROR";

        Lost, () = (), [on_busy = skip] => "() 1 ERROR";
        Lost, () = (), [on_busy = skip, on_lost = return ()] => "() 1 ERROR";
        LostButGoesOn, () = (), [on_busy = skip, on_lost = continue] => "() 1 WARN";
        Lost, Option<u32> = Some(1), [on_busy = skip, on_lost = cancel] => "None 1 ERROR";
        Lost, Option<u32> = Some(1), [on_busy = skip, on_lost = return Some(4)] => "Some(4) 1 ERROR";
        LostButGoesOn, Option<u32> = Some(1), [on_busy = skip, on_lost = continue] => "Some(1) 1 WARN";
        Lost, Unit = Ok(()), [] => "Err(Lost) 1 WARN";
        Lost, Unit = Ok(()), [on_busy = skip] => "Err(Lost) 1 WARN";
        Lost, Unit = Ok(()), [on_lost = cancel("50ms")] => "Err(Lost) 1 WARN";
        Lost, Maybe = Ok(Some(1)), [] => "Err(Lost) 1 WARN";
        Lost, Number = Ok(1), [on_lost = return Ok(4)] => "Ok(4) 1 ERROR";
        LostButGoesOn, Number = Ok(1), [on_lost = continue] => "Ok(1) 1 WARN";
        LostButGoesOn, Number = Ok(1), [on_lost = cancel("10s")] => "Err(Lost) 1 WARN";
        LostButGoesOn, Number = Err(Error::NotInstalled), [on_lost = cancel("10s")] => "Err(NotInstalled) 1 WARN";
        Lost, u32 = 1, [on_busy = return 2, on_unavailable = return 3, on_lost = return 4] => "4 1 ERROR";
        LostButGoesOn, u32 = 1, [on_busy = return 2, on_unavailable = return 3, on_lost = continue] => "1 1 WARN";

        Done, () = (), [once = "1h", on_busy = skip] => "() 1 DEBUG";
        Done, Option<u32> = Some(1), [once = "1h", on_busy = skip] => "None 1 DEBUG";
        Done, Option<u32> = None, [once = "1h", on_busy = skip] => "None 2 -";
        Done, Option<u32> = Some(1), [once = "1h", on_busy = skip, on_done = return Some(5)] => "Some(5) 1 DEBUG";
        Done, Unit = Ok(()), [once = "1h"] => "Ok(()) 1 DEBUG";
        Done, Unit = Ok(()), [once = "1h", on_done = error] => "Err(Done) 1 DEBUG";
        Done, Unit = Err(Error::NotInstalled), [once = "1h"] => "Err(NotInstalled) 2 -";
        Done, Maybe = Ok(Some(1)), [once = "1h"] => "Ok(None) 1 DEBUG";
        Done, Maybe = Ok(None), [once = "1h", on_done = error] => "Err(Done) 1 DEBUG";
        Done, Number = Ok(1), [once = "1h", on_done = error] => "Err(Done) 1 DEBUG";
        Done, Number = Ok(1), [once = "1h", on_done = return Ok(5)] => "Ok(5) 1 DEBUG";
        Done, u32 = 1, [once = "1h", on_done = return 5, on_busy = return 2, on_unavailable = return 3, on_lost = return 4] => "5 1 DEBUG";
    }
}

/// A store, seen from two replicas, and one that cannot be asked.
struct Place {
    locks: Client,
    other: Client,
    down: Client,
    remove: Box<dyn Fn(&str) -> bool>,
}

/// Goes through the table; `first` makes the keys of each test its own.
async fn go_through(place: Place, first: u64) {
    log::listen();
    let mut wrong = Vec::new();
    for (id, row) in (first..).zip(table()) {
        let key = format!("cell:{id}");
        let body = Body {
            runs: Arc::default(),
            event: row.event,
        };
        let runs = Arc::clone(&body.runs);
        let before = place.locks.stats();
        let answer = match row.event {
            Event::Ran | Event::Failed => (row.call)(place.locks.clone(), id, body).await,
            Event::Busy => {
                let lease = place.other.lock(&key).acquire().await.unwrap();
                let answer = (row.call)(place.locks.clone(), id, body).await;
                lease.release().await.unwrap();
                answer
            }
            Event::Down => (row.call)(place.down.clone(), id, body).await,
            Event::Lost | Event::LostButGoesOn => {
                let call = tokio::spawn((row.call)(place.locks.clone(), id, body));
                wait::until("the body has begun", || runs.load(Ordering::SeqCst) == 1).await;
                assert!((place.remove)(&format!("lock:{key}")), "{key} is not held");
                let answer = call.await.unwrap();
                assert_eq!(place.locks.stats().lost, before.lost + 1, "{}", row.name);
                answer
            }
            Event::Done => {
                (row.call)(place.locks.clone(), id, body.clone()).await;
                (row.call)(place.locks.clone(), id, body).await
            }
        };
        let told: Vec<_> = log::about(&key)
            .iter()
            .map(|told| told.level.to_string())
            .collect();
        let told = if told.is_empty() {
            "-".to_owned()
        } else {
            told.join("+")
        };
        let seen = format!("{answer} {} {told}", runs.load(Ordering::SeqCst));
        if seen != row.expected {
            wrong.push(format!(
                "{}: expected {}, seen {seen}",
                row.name, row.expected
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[tokio::test]
async fn the_whole_table_on_memory() {
    let memory = Memory::new();
    let dead = Memory::new();
    let on = |memory: &Memory| Client::builder().store(memory.clone()).unwrap();
    let place = Place {
        locks: on(&memory),
        other: on(&memory),
        down: on(&dead),
        remove: Box::new(move |name| {
            let held = memory.holder(name).is_some();
            memory.expire(name);
            held
        }),
    };
    dead.refuse(Some("out of order"));
    go_through(place, 100_000).await;
}

#[tokio::test]
async fn the_whole_table_on_redis() {
    let server = Server::start();
    let dead = Server::start();
    let place = Place {
        locks: client(&server).await,
        other: client(&server).await,
        down: client(&dead).await,
        remove: Box::new(move |name| server.words::<u64>(&["DEL", name]).unwrap() == 1),
    };
    dead.kill();
    go_through(place, 200_000).await;
}

/// The counters of the events that the table does not look at one by one.
#[tokio::test]
async fn done_and_unguarded_runs_are_counted() {
    #[distributed_lock(key = "count", once = "1h", client = locks, on_unavailable = run)]
    async fn count(locks: &Client) -> Result<(), Error> {
        Ok(())
    }
    let memory = Memory::new();
    let locks = Client::builder().store(memory.clone()).unwrap();
    for _ in 0..3 {
        count(&locks).await.unwrap();
    }
    memory.refuse(Some("out of order"));
    count(&locks).await.unwrap();
    let stats = locks.stats();
    assert_eq!((stats.done, stats.unguarded), (2, 1), "{stats:?}");
}

/// Neither fallback is triggered by a call that is wrong in itself.
#[tokio::test]
async fn fallbacks_are_for_outages_alone() {
    #[distributed_lock(key = "a:<id>", client = locks, on_unavailable = run)]
    async fn run(locks: &Client, id: &str) -> Result<(), Error> {
        panic!("runs")
    }
    #[distributed_lock(key = "a:<id>", client = locks, on_unavailable = local, ttl = ttl)]
    async fn local(locks: &Client, id: &str, ttl: Duration) -> Result<(), Error> {
        panic!("runs")
    }
    let server = Server::start();
    let locks = client(&server).await;
    assert!(matches!(run(&locks, "").await, Err(Error::Key(_))));
    let no_ttl = local(&locks, "x", Duration::ZERO).await;
    assert!(matches!(no_ttl, Err(Error::Invalid { .. })));
    let _: u64 = server.ask("HSET lock:a:h f v");
    assert!(matches!(run(&locks, "h").await, Err(Error::Foreign { .. })));
    locks.shutdown().await;
    let late = run(&locks, "y").await;
    assert!(matches!(late, Err(Error::Unavailable { .. })), "{late:?}");
}
