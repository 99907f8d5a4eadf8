//! How to put locks to work: a page for each subject, a heading for each question.
//!
//! | page | |
//! |---|---|
//! | [Choosing a ttl](ttl) | what it bounds, and what it does not |
//! | [Skip, wait or fail](busy) | what a call does that finds its key held, or the store away |
//! | [One key per job, per entity, per shard](keys) | what to lock; several keys; so many at a time |
//! | [What a lock cannot do](limits) | and the idempotent or fenced write beside it |
//! | [Once per period](once) | the same cron tick in several replicas |
//! | [Locks and transactions](transactions) | commit before the lock is given back |
//! | [Blocking work and child processes](blocking_work) | what goes on when the body is dropped |
//! | [Deploying, and rolling back](deploying) | what two releases have to agree about; SIGTERM |
//! | [Choosing a store](stores) | what each can lose, what it costs |
//! | [Servers that are far away](distance) | round trips, timeouts, regions |
//! | [Troubleshooting](troubleshooting) | each message, event and metric: what happened, what to do |
//! | [Coming from another library](coming_from) | redis-py, Celery, Redisson, `ShedLock`, Sidekiq, Laravel |
//! | [Questions that are asked most](questions) | in a few sentences each |
//!
//! All code in it is compiled. Arguments are listed at [`distributed_lock`](crate::distributed_lock).

// The pages are files that are also read as such, where `[ttl]` leads to `ttl.md`. Here it leads to a module: of two
// definitions of a link the first one counts. The line of a failed example counts those of `links.md` too.
macro_rules! pages {
    ($($page:ident)*) => {$(
        #[doc = include_str!("guide/links.md")]
        #[doc = include_str!(concat!("../docs/guide/", stringify!($page), ".md"))]
        pub mod $page {}
    )*};
}

pages! {
    ttl
    busy
    keys
    limits
    once
    transactions
    blocking_work
    deploying
    stores
    distance
    troubleshooting
    coming_from
    questions
}
