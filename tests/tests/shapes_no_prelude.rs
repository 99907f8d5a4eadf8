//! A crate without a prelude.
#![no_implicit_prelude]

use ::lockattr::{Client, Error, distributed_lock};
use ::std::prelude::v1::test;

#[distributed_lock(key = "bare:<id>", ttl = "1m 30s", wait = "1ms", bind = lease)]
async fn bare(mut id: u8) -> ::std::result::Result<u8, Error> {
    if lease.key().is_empty() {
        id += 1;
    }
    ::std::result::Result::Ok(id)
}

#[distributed_lock(key = "skip", on_busy = skip, on_lost = continue)]
async fn skip() {}

#[distributed_lock(key = "future:<id>", renew = false, on_busy = skip)]
fn future(id: u8) -> impl ::std::future::Future<Output = ::std::option::Option<u8>> {
    #[allow(clippy::needless_return)]
    return ::std::future::ready(::std::option::Option::Some(id));
}

#[distributed_lock(key = "thread:<id>", on_busy = skip, blocking)]
fn on_a_thread(mut id: u8) -> ::std::option::Option<u8> {
    id += 1;
    ::std::option::Option::Some(id)
}

async fn all() {
    let locks = Client::connect("memory:").await.unwrap();
    ::std::assert_eq!(locks.scope(bare(1)).await.unwrap(), 1);
    locks.scope(skip()).await;
    ::std::assert_eq!(locks.scope(future(1)).await, ::std::option::Option::Some(1));
}

#[test]
fn nor_on_a_thread() {
    let locks = Client::connect_blocking("memory:").unwrap();
    let answer = locks.scope_blocking(|| on_a_thread(1));
    ::std::assert_eq!(answer, ::std::option::Option::Some(2));
}

#[test]
fn nothing_of_the_prelude_is_needed() {
    let runtime = ::tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(all());
}
