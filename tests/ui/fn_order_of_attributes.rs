//! Attributes that have made the function an ordinary one before ours sees it.
use lockattr::distributed_lock;

#[tokio::test]
#[distributed_lock(key = "a", on_busy = skip)]
async fn test() {}

#[tokio::main]
#[distributed_lock(key = "b", on_busy = skip)]
async fn run() {}

fn main() {}
