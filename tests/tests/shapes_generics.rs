//! Generics, lifetimes and opaque types.

use std::fmt::{Debug, Display};
use std::marker::PhantomData;

use lockattr::{Error, distributed_lock};

mod shapes_support;
use shapes_support::check;

#[distributed_lock(key = "generic:<id>")]
async fn generic<T: Display, U>(id: T, other: U) -> Result<(T, U), Error> {
    Ok((id, other))
}

#[distributed_lock(key = "where:<id>")]
async fn with_where<T>(id: T) -> Result<String, Error>
where
    T: Display + Send,
    for<'a> &'a T: Debug,
{
    Ok(format!("{:?}", &id))
}

#[distributed_lock(key = "const:<list.len()>")]
async fn const_generic<const N: usize>(list: [u8; N]) -> Result<[u8; N], Error> {
    Ok(list)
}

#[distributed_lock(key = "elided:<text>")]
async fn elided(text: &str) -> Result<&str, Error> {
    Ok(&text[1..])
}

#[distributed_lock(key = "named:<a>:<b>")]
async fn named<'a, 'b: 'a>(a: &'a str, b: &'b str) -> Result<&'a str, Error> {
    tokio::task::yield_now().await;
    Ok(if a.len() > 1 { a } else { b })
}

#[distributed_lock(key = "static:<text>")]
async fn for_ever(text: &'static str) -> Result<&'static str, Error> {
    Ok(text)
}

#[distributed_lock(key = "part:<list.len()>")]
async fn part_of_an_argument(list: &mut [u8]) -> Result<Option<&mut u8>, Error> {
    let first = list.first_mut();
    tokio::task::yield_now().await;
    Ok(first)
}

#[distributed_lock(key = "opaque:<n>")]
async fn opaque(n: u8) -> Result<impl Iterator<Item = u8> + use<>, Error> {
    if n == 0 {
        return Ok(0..1);
    }
    Ok(0..n)
}

#[distributed_lock(key = "opaque-ref:<list.len()>", on_busy = skip)]
async fn opaque_borrow(list: &[u8]) -> Option<impl Iterator<Item = &u8>> {
    Some(list.iter())
}

#[distributed_lock(key = "closure:<n>")]
async fn gives_a_closure(n: u8) -> Result<impl Fn(u8) -> u8, Error> {
    Ok(move |x| x + n)
}

#[distributed_lock(key = "function:<n>")]
async fn takes_an_async_closure<F>(n: u8, f: F) -> Result<u8, Error>
where
    F: AsyncFnOnce(u8) -> u8,
{
    Ok(f(n).await)
}

type Answer<T> = Result<T, Error>;

#[distributed_lock(key = "alias")]
async fn alias() -> Answer<u8> {
    Ok(1)
}

struct Repository<'r, T, const N: usize> {
    name: &'r str,
    items: [T; N],
    marker: PhantomData<T>,
}

impl<'r, T: Clone + Display, const N: usize> Repository<'r, T, N> {
    const KIND: &'static str = "repository";

    #[distributed_lock(key = "repository:<self.name>:<extra>")]
    async fn first<E: Display>(&self, extra: E) -> Result<(T, &'r str), Error> {
        assert_eq!(Self::KIND, "repository");
        Ok((self.items[0].clone(), self.name))
    }

    #[distributed_lock(key = "new:<name>")]
    async fn new(name: &'r str, items: [T; N]) -> Result<Repository<'r, T, N>, Error> {
        Ok(Self {
            name,
            items,
            marker: PhantomData,
        })
    }
}

#[tokio::test]
async fn parameters() {
    check("generic:x", ("x", 1), async || generic("x", 1).await).await;
    check("where:1", "1".to_owned(), async || with_where(1).await).await;
    check("const:3", [1, 2, 3], async || {
        const_generic([1, 2, 3]).await
    })
    .await;
    check("function:3", 4, async || {
        takes_an_async_closure(3, async |n| n + 1).await
    })
    .await;
}

#[tokio::test]
async fn lifetimes() {
    check("elided:abc", "bc", async || elided("abc").await).await;
    check("named:ab:c", "ab", async || named("ab", "c").await).await;
    check("static:abc", "abc", async || for_ever("abc").await).await;
    check("part:2", vec![9, 2], async || {
        let mut list = vec![1, 2];
        if let Some(first) = part_of_an_argument(&mut list).await? {
            *first = 9;
        }
        Ok(list)
    })
    .await;
}

#[tokio::test]
async fn opaque_types() {
    check("opaque:3", vec![0, 1, 2], async || {
        Ok(opaque(3).await?.collect())
    })
    .await;
    check("closure:3", 4, async || Ok(gives_a_closure(3).await?(1))).await;
    let locks = lockattr::Client::connect("memory:").await.unwrap();
    let list = [1, 2];
    let found = locks.scope(opaque_borrow(&list)).await;
    assert_eq!(found.unwrap().copied().collect::<Vec<_>>(), list);
    check("alias", 1, async || alias().await).await;
}

#[tokio::test]
async fn generic_impls() {
    check("new:n", "n", async || {
        Ok(Repository::new("n", [1]).await?.name)
    })
    .await;
    check("repository:n:x", (1, "n"), async || {
        let repository = Repository {
            name: "n",
            items: [1, 2],
            marker: PhantomData,
        };
        repository.first("x").await
    })
    .await;
}
