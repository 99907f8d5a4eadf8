//! Type parameters whose bounds are missing: the compiler proposes public traits.
use lockattr::{Error, distributed_lock};

#[distributed_lock(key = "a:<id>")]
async fn value<T>(id: T) -> Result<(), Error> {
    Ok(())
}

#[distributed_lock(key = "b", on_busy = skip)]
async fn skipped<T>(value: T) -> Result<T, Error> {
    Ok(value)
}

#[distributed_lock(key = "c", on_busy = skip, on_unavailable = skip, on_lost = return value)]
async fn all_skipped<T: Clone>(value: T) -> T {
    value.clone()
}

#[distributed_lock(key = "d")]
async fn error<E>() -> Result<(), E> {
    Ok(())
}

fn main() {}
