//! What bodies are made of.
#![allow(clippy::match_single_binding, clippy::never_loop, clippy::unused_async)]

use lockattr::{Error, distributed_lock};
use std::fmt::Display;

mod shapes_support;
use shapes_support::check;

async fn two() -> Result<u8, Error> {
    Ok(2)
}

#[distributed_lock(key = "question:<id>")]
async fn question_mark(id: u8) -> Result<u8, Error> {
    let a = two().await?;
    let b = async { Ok::<u8, Error>(two().await? + 1) }.await?;
    Ok(a + b + id)
}

#[distributed_lock(key = "early:<id>")]
async fn early_returns(id: u8) -> Result<&'static str, Error> {
    if id == 1 {
        return Ok("one");
    }
    for i in 0..id {
        if i == 2 {
            return Ok("loop");
        }
    }
    match id {
        2 => return Ok("two"),
        _ => tokio::task::yield_now().await,
    }
    Ok("end")
}

#[distributed_lock(key = "inner:<id>")]
async fn returns_elsewhere(id: u8) -> Result<u8, Error> {
    let closure = |x: u8| -> u8 {
        if x > 1 {
            return x;
        }
        1
    };
    let block = async {
        if id > 1 {
            return 10;
        }
        20
    };
    Ok(closure(id) + block.await)
}

#[distributed_lock(key = "label:<id>")]
async fn labelled(id: u8) -> Result<u8, Error> {
    let found = 'search: {
        for i in 0..id {
            if i == 3 {
                break 'search i;
            }
        }
        0
    };
    let mut turns = 0;
    'outer: loop {
        loop {
            turns += 1;
            if turns > 4 {
                break 'outer;
            }
            continue 'outer;
        }
    }
    Ok(found + turns)
}

#[distributed_lock(key = "recursive:<n>")]
async fn recursive(n: u32) -> Result<u32, Error> {
    if n == 0 {
        return Ok(0);
    }
    Ok(n + Box::pin(recursive(n - 1)).await?)
}

#[distributed_lock(key = "coerced:<id>")]
async fn coerced(id: u8) -> Result<Box<dyn Display + Send>, Error> {
    if id == 1 {
        return Ok(Box::new("one"));
    }
    Ok(Box::new(id))
}

#[distributed_lock(key = "inferred:<text>")]
async fn inferred(text: &str) -> Result<Vec<u8>, Error> {
    let empty = Vec::new();
    if text.is_empty() {
        return Ok(empty);
    }
    let parsed = text.split(',').map(|part| part.parse().unwrap()).collect();
    Ok(parsed)
}

#[distributed_lock(key = "anyhow:<text>")]
async fn any_error(text: &str) -> anyhow::Result<u8> {
    let number = text.parse::<u8>()?;
    anyhow::ensure!(number < 10, "too large");
    Ok(number)
}

#[distributed_lock(key = "items:<id>")]
async fn nested_items(id: u8) -> Result<u8, Error> {
    const STEP: u8 = 2;
    struct Add(u8);
    impl Add {
        fn to(&self, id: u8) -> u8 {
            self.0 + id
        }
    }
    fn add(id: u8) -> u8 {
        Add(STEP).to(id)
    }
    macro_rules! twice {
        ($e:expr) => {
            $e + $e
        };
    }
    Ok(twice!(add(id)))
}

#[distributed_lock(key = "inner-attribute")]
async fn inner_attributes() -> Result<u8, Error> {
    #![allow(unused_variables)]
    let unused = 1;
    Ok(2)
}

#[distributed_lock(key = "diverges:<id>", on_busy = skip)]
#[allow(clippy::needless_return, reason = "the last return is the subject")]
async fn ends_in_return(id: u8) -> Option<u8> {
    return Some(id);
}

#[distributed_lock(key = "panics", on_busy = skip)]
async fn only_panics() {
    panic!("as expected")
}

#[distributed_lock(key = "borrowed-tail:<cell.len()>")]
async fn temporaries_of_arguments(mut cell: Cell) -> Result<usize, Error> {
    cell.0.get_mut().push('!');
    match cell.0.lock() {
        text => Ok(text.len()),
    }
}

struct Cell(Mutex);

impl Cell {
    fn len(&self) -> usize {
        self.0.lock().len()
    }
}

/// A lock whose guard is alive until the end of the function.
struct Mutex(std::sync::Mutex<String>);

impl Mutex {
    fn lock(&self) -> std::sync::MutexGuard<'_, String> {
        self.0.lock().unwrap()
    }

    fn get_mut(&mut self) -> &mut String {
        self.0.get_mut().unwrap()
    }
}

#[distributed_lock(key = "token", bind = lease)]
async fn bound() -> Result<String, Error> {
    assert!(lease.token().await? > 0);
    Ok(lease.key().to_owned())
}

#[distributed_lock(key = "to-the-end:<id>", on_lost = continue, ttl = "1m 30s")]
async fn to_the_end(id: u8) -> Result<u8, Error> {
    tokio::task::yield_now().await;
    Ok(id)
}

#[distributed_lock(
    key = "everything:<id>",
    ttl = ttl,
    wait = std::time::Duration::from_millis(u64::from(id)),
    on_busy = error,
    on_unavailable = return Ok(0),
    on_lost = return Err(lost(id)),
    renew = false
)]
async fn every_argument(id: u8, ttl: std::time::Duration) -> Result<u8, Error> {
    Ok(id)
}

fn lost(_: u8) -> Error {
    unreachable!()
}

mod visible {
    use lockattr::{Error, distributed_lock};

    #[distributed_lock(key = "pub")]
    pub(super) async fn public() -> Result<u8, Error> {
        Ok(1)
    }

    #[distributed_lock(key = "crate")]
    pub(crate) async fn to_the_crate() -> Result<u8, Error> {
        Ok(1)
    }

    #[distributed_lock(key = "in")]
    pub(in crate::visible) async fn here() -> Result<u8, Error> {
        Ok(1)
    }

    pub(super) async fn from_here() -> Result<u8, Error> {
        here().await
    }
}

#[distributed_lock(key = "abi:<id>")]
#[allow(improper_ctypes_definitions, reason = "the abi is the subject")]
async extern "C" fn other_abi(id: u8) -> Result<u8, Error> {
    Ok(id)
}

macro_rules! guarded {
    ($name:ident, $id:ident, $key:literal, $body:block) => {
        #[distributed_lock(key = $key)]
        async fn $name($id: u8) -> Result<u8, Error> $body
    };
}
guarded!(made_by_a_macro, id, "macro:<id>", {
    let id = id + 1;
    Ok(id)
});

macro_rules! whole {
    ($name:ident) => {
        #[distributed_lock(key = "whole:<id>:<pair.0>", ttl = "5s", bind = lease)]
        async fn $name(id: u8, pair: (u8, u8)) -> Result<u8, Error> {
            assert!(lease.key().starts_with("whole:"));
            Ok(id + pair.1)
        }
    };
}
whole!(whole_in_a_macro);

macro_rules! item {
    ($item:item) => {
        #[distributed_lock(key = "item:<id>")]
        $item
    };
}
item! {
    async fn item_of_a_macro(id: u8) -> Result<u8, Error> {
        Ok(id)
    }
}

macro_rules! hygienic {
    ($name:ident, $outer:ident) => {
        #[distributed_lock(key = "hygienic:<id>")]
        async fn $name($outer: u8, id: u8) -> Result<u8, Error> {
            Ok($outer - id)
        }
    };
}
hygienic!(two_arguments_of_one_name, id);

#[tokio::test]
async fn control_flow() {
    check("question:1", 6, async || question_mark(1).await).await;
    check("early:1", "one", async || early_returns(1).await).await;
    check("early:2", "two", async || early_returns(2).await).await;
    check("early:0", "end", async || early_returns(0).await).await;
    check("early:3", "loop", async || early_returns(3).await).await;
    check("inner:2", 12, async || returns_elsewhere(2).await).await;
    check("label:5", 8, async || labelled(5).await).await;
    check("recursive:3", 6, async || recursive(3).await).await;
    check("diverges:1", Some(1), async || {
        match ends_in_return(1).await {
            Some(id) => Ok(Some(id)),
            None => Err(Error::Busy {
                key: String::new(),
                holder: String::new(),
                remaining: std::time::Duration::ZERO,
                since: None,
            }),
        }
    })
    .await;
}

#[tokio::test]
async fn types() {
    check("coerced:1", "one".to_owned(), async || {
        Ok(coerced(1).await?.to_string())
    })
    .await;
    check("coerced:2", "2".to_owned(), async || {
        Ok(coerced(2).await?.to_string())
    })
    .await;
    check("inferred:1,2", vec![1, 2], async || inferred("1,2").await).await;
    check("anyhow:7", 7, async || {
        any_error("7")
            .await
            .map_err(|error| error.downcast().unwrap())
    })
    .await;
}

#[tokio::test]
async fn insides() {
    check("items:1", 6, async || nested_items(1).await).await;
    check("inner-attribute", 2, async || inner_attributes().await).await;
    check("borrowed-tail:1", 2, async || {
        temporaries_of_arguments(Cell(Mutex(String::from("a").into()))).await
    })
    .await;
}

#[tokio::test]
async fn arguments_of_the_attribute() {
    check("token", "token".to_owned(), async || bound().await).await;
    check("to-the-end:1", 1, async || to_the_end(1).await).await;
    check("everything:9", 9, async || {
        every_argument(9, std::time::Duration::from_secs(5)).await
    })
    .await;
}

#[tokio::test]
async fn declarations() {
    check("pub", 1, async || visible::public().await).await;
    check("crate", 1, async || visible::to_the_crate().await).await;
    check("in", 1, async || visible::from_here().await).await;
    check("abi:1", 1, async || other_abi(1).await).await;
    check("macro:1", 2, async || made_by_a_macro(1).await).await;
    check("whole:1:2", 4, async || whole_in_a_macro(1, (2, 3)).await).await;
    check("item:1", 1, async || item_of_a_macro(1).await).await;
    check("hygienic:1", 4, async || {
        two_arguments_of_one_name(5, 1).await
    })
    .await;
}

#[tokio::test]
async fn a_panic_frees_the_key() {
    let locks = lockattr::Client::connect("memory:").await.unwrap();
    let scope = locks.clone();
    let run = tokio::spawn(async move { scope.scope(only_panics()).await });
    assert!(run.await.unwrap_err().is_panic());
    drop(locks.lock("panics").acquire().await.unwrap());
}
