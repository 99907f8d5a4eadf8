//! An error type that a `lockattr::Error` does not become.
use lockattr::distributed_lock;

enum ApiError {
    NotFound,
}

#[distributed_lock(key = "a")]
async fn own_error() -> Result<(), ApiError> {
    Err(ApiError::NotFound)
}

fn main() {}
