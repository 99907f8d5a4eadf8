//! Patterns, names and kinds of arguments, in the key and in the body.

#![allow(clippy::toplevel_ref_arg, clippy::used_underscore_binding)]

use std::fmt::Display;

use lockattr::{Error, distributed_lock};

mod shapes_support;
use shapes_support::check;

struct Json<T>(T);
struct State<S>(S);

struct Order {
    id: u64,
    owner: (String, u8),
}

fn order() -> Order {
    Order {
        id: 7,
        owner: ("ann".into(), 1),
    }
}

#[distributed_lock(key = "extractor:<region>:<order.id>")]
async fn extractors(State(region): State<&str>, Json(order): Json<Order>) -> Result<String, Error> {
    Ok(format!("{region}{}", order.owner.0))
}

#[distributed_lock(key = "nested:<id>:<name>:<first>")]
async fn nested(
    Order {
        id,
        owner: (name, _),
    }: Order,
    [first, rest @ ..]: [u8; 3],
) -> Result<String, Error> {
    Ok(format!("{id}{name}{first}{}", rest.len()))
}

#[distributed_lock(key = "tuple:<a>:<pair.0>:<pair.1.0>")]
async fn tuples((a, b): (u8, u8), pair: (u8, (u8,))) -> Result<u8, Error> {
    Ok(a + b + pair.0)
}

#[distributed_lock(key = "refs:<a>:<b>")]
async fn references(&a: &u8, ref b: String) -> Result<usize, Error> {
    Ok(usize::from(a) + b.len())
}

#[distributed_lock(key = "wild:<_id>")]
async fn wild(_: Order, _id: u64, _unused: u8) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "mut:<count>:<name>")]
async fn mutable(mut count: u32, mut name: String, (mut a, b): (u8, u8)) -> Result<String, Error> {
    count += 1;
    name.push('!');
    a += b;
    Ok(format!("{count}{name}{a}"))
}

#[distributed_lock(key = "reborrow:<text>")]
async fn shorter_lifetime(mut text: &str) -> Result<usize, Error> {
    let upper = format!("{text}{text}");
    text = &upper;
    Ok(text.len())
}

#[distributed_lock(key = "raw:<type>:<r#fn>:<order.r#id>")]
async fn raw_identifiers(r#type: u8, r#fn: u8, order: Order) -> Result<u8, Error> {
    Ok(r#type + r#fn + order.owner.1)
}

#[distributed_lock(key = "moved:<name>:<order.id>")]
async fn moved_by_the_body(name: String, order: Order) -> Result<String, Error> {
    let moved = std::thread::spawn(move || name + &order.owner.0);
    Ok(moved.join().unwrap())
}

#[distributed_lock(key = "borrowed:<id>")]
async fn borrowed(id: u64, list: &mut Vec<u64>) -> Result<(), Error> {
    list.push(id);
    tokio::task::yield_now().await;
    list.push(id);
    Ok(())
}

#[distributed_lock(key = "impl:<id>:<name>")]
async fn impl_trait(id: impl Display, name: impl Into<String> + Display) -> Result<String, Error> {
    Ok(format!("{id}{}", name.into()))
}

#[distributed_lock(key = "dyn:<id>")]
async fn dynamic(id: &dyn Display, add: Box<dyn Fn(u8) -> u8>) -> Result<u8, Error> {
    let _ = id;
    Ok(add(1))
}

#[distributed_lock(
    key = "names:<key>:<options>:<lease>:<lockattr_key>:<value>:<error>:<client>",
    ttl = "5s",
    bind = held
)]
#[allow(clippy::too_many_arguments, reason = "their names are the subject")]
async fn named_like_ours(
    key: u8,
    options: u8,
    lease: u8,
    lockattr_key: u8,
    lockattr_lease: u8,
    value: u8,
    error: u8,
    client: u8,
    body: u8,
    outcome: u8,
    lockattr_body: u8,
) -> Result<u8, Error> {
    assert_eq!(held.key(), "names:1:1:1:1:1:1:1");
    Ok(key
        + options
        + lease
        + lockattr_key
        + lockattr_lease
        + value
        + error
        + client
        + body
        + outcome
        + lockattr_body)
}

#[distributed_lock(key = "shadow:<option>")]
async fn shadowing_the_prelude(option: u8, vec: u8, drop: u8, panic: u8) -> Result<u8, Error> {
    Ok(option + vec + drop + panic)
}

#[distributed_lock(key = "literal:<<<a>>>:%41:<a>")]
async fn literal_text(a: &str) -> Result<(), Error> {
    let _ = a;
    Ok(())
}

#[distributed_lock(key = r#"quoted:"<a>""#)]
async fn raw_string(a: u8) -> Result<u8, Error> {
    Ok(a)
}

#[distributed_lock(
    key = "conditional:<a>",
    on_busy = return Err(busy(a, &name))
)]
async fn used_by_a_policy(a: u8, name: String) -> Result<String, Error> {
    let _ = a;
    Ok(name)
}

fn busy(_: u8, _: &str) -> Error {
    Error::Busy {
        key: String::new(),
        holder: String::new(),
        remaining: std::time::Duration::ZERO,
        since: None,
    }
}

#[distributed_lock(key = "scripts:<हिन्दी>:<ภาษา>:<cafe\u{301}>")]
async fn other_scripts(हिन्दी: u8, ภาษา: u8, café: u8) -> Result<u8, Error> {
    Ok(हिन्दी + ภาษา + café)
}

#[distributed_lock(key = "quotes:<'$id'>:<id>:<'/:id %s <b>'>:5$")]
async fn quoted_text(id: u8) -> Result<u8, Error> {
    Ok(id)
}

#[tokio::test]
async fn patterns() {
    check("extractor:eu:7", "euann".to_owned(), async || {
        extractors(State("eu"), Json(order())).await
    })
    .await;
    check("nested:7:ann:1", "7ann12".to_owned(), async || {
        nested(order(), [1, 2, 3]).await
    })
    .await;
    check("tuple:1:3:4", 6, async || tuples((1, 2), (3, (4,))).await).await;
    check("refs:1:two", 4, async || references(&1, "two".into()).await).await;
    check("wild:5", (), async || wild(order(), 5, 0).await).await;
}

#[tokio::test]
async fn mutable_arguments() {
    check("mut:1:ann", "2ann!3".to_owned(), async || {
        mutable(1, "ann".into(), (1, 2)).await
    })
    .await;
    check("reborrow:abc", 6, async || shorter_lifetime("abc").await).await;
}

#[tokio::test]
async fn names() {
    check("raw:1:2:7", 4, async || {
        raw_identifiers(1, 2, order()).await
    })
    .await;
    check("names:1:1:1:1:1:1:1", 11, async || {
        named_like_ours(1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1).await
    })
    .await;
    check("shadow:1", 4, async || {
        shadowing_the_prelude(1, 1, 1, 1).await
    })
    .await;
}

#[tokio::test]
async fn names_of_other_scripts() {
    check("scripts:1:2:3", 6, async || other_scripts(1, 2, 3).await).await;
}

#[tokio::test]
async fn kinds() {
    check("moved:a:7", "aann".to_owned(), async || {
        moved_by_the_body("a".into(), order()).await
    })
    .await;
    check("borrowed:3", vec![3, 3, 4], async || {
        let mut list = Vec::new();
        borrowed(3, &mut list).await?;
        list.push(4);
        Ok(list)
    })
    .await;
    check("impl:1:x", "1x".to_owned(), async || {
        impl_trait(1, "x").await
    })
    .await;
    check("dyn:9", 2, async || dynamic(&9, Box::new(|a| a + 1)).await).await;
}

#[tokio::test]
async fn text() {
    check("literal:<a%3Eb>:%41:a>b", (), async || {
        literal_text("a>b").await
    })
    .await;
    check("quotes:$id:1:/:id %s <b>:5$", 1, async || {
        quoted_text(1).await
    })
    .await;
    check("quoted:\"1\"", 1, async || raw_string(1).await).await;
    check("conditional:1", "x".to_owned(), async || {
        used_by_a_policy(1, "x".into()).await
    })
    .await;
}
