//! The function that a program starts with.
mod ordinary {
    #[lockattr::distributed_lock(key = "a", on_busy = skip)]
    fn main() {}
}

mod above {
    #[lockattr::distributed_lock(key = "b", on_busy = skip)]
    #[tokio::main]
    async fn main() {}
}

mod below {
    #[tokio::main]
    #[lockattr::distributed_lock(key = "c", on_busy = skip)]
    async fn main() {}
}

fn main() {}
