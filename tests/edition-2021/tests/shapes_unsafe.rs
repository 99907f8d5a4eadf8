//! Unsafe functions, whose callers promise something about the arguments.

use lockattr::{Client, Error, distributed_lock};

#[distributed_lock(key = "unsafe:<id>")]
async unsafe fn unsafe_async(id: u8, list: &[u8]) -> Result<u8, Error> {
    tokio::task::yield_now().await;
    // In this edition the body of an unsafe function is an unsafe block.
    Ok(*list.get_unchecked(usize::from(id)))
}

#[distributed_lock(key = "unsafe-extern:<id>")]
#[allow(improper_ctypes_definitions, reason = "the abi is the subject")]
async unsafe extern "C" fn unsafe_extern(mut id: u8) -> Result<u8, Error> {
    id += 1;
    Ok(id)
}

#[distributed_lock(key = "unsafe-blocking:<id>", blocking)]
unsafe fn unsafe_blocking(id: u8, list: &[u8]) -> Result<u8, Error> {
    Ok(*list.get_unchecked(usize::from(id)))
}

#[test]
fn an_unsafe_function_that_blocks() {
    let locks = Client::connect_blocking("memory:").unwrap();
    // SAFETY: one is an index of the list.
    let call = || unsafe { unsafe_blocking(1, &[7, 8]) };
    assert_eq!(locks.scope_blocking(call).unwrap(), 8);
}

#[tokio::test]
async fn unsafe_functions() {
    let locks = Client::connect("memory:").await.unwrap();
    // SAFETY: one is an index of the list.
    let call = unsafe { unsafe_async(1, &[7, 8]) };
    assert_eq!(locks.scope(call).await.unwrap(), 8);
    // SAFETY: the function asks for nothing.
    let call = unsafe { unsafe_extern(1) };
    assert_eq!(locks.scope(call).await.unwrap(), 2);
}
