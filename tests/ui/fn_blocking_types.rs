//! Functions that block, and are wrong inside.
use lockattr::{Error, distributed_lock};

#[distributed_lock(key = "a", on_busy = skip, blocking)]
fn awaits_in_its_body() {
    std::future::ready(1).await;
}

#[distributed_lock(key = "b", blocking)]
fn cannot_carry_an_error() -> u8 {
    1
}

#[distributed_lock(key = "c", blocking)]
fn another_type(id: u8) -> Result<u8, Error> {
    if id == 1 {
        return Ok("one");
    }
    Ok(id)
}

#[distributed_lock(key = "d", blocking)]
fn too_short_a_life(id: &str) -> Result<&'static str, Error> {
    Ok(id)
}

fn main() {}
