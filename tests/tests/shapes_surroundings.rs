//! Modules, types, macros and traits around the function that are called like what the expansion
//! needs.
#![allow(dead_code, unused_macros, clippy::new_ret_no_self)]

mod shapes_support;

mod crowded {
    //! All of them at once.

    mod std {}
    mod core {}
    mod alloc {}
    mod tokio {}
    mod lockattr {}

    struct Result;
    struct Option;
    struct Some;
    struct None;
    struct Ok;
    struct Err;
    struct Vec;
    struct String;
    struct Box;
    struct Pin;
    struct Duration;
    struct Poll;
    struct Lease;
    struct Client;
    struct Key;
    struct KeyWriter;
    struct Options;
    struct Entered;
    struct Guarded;
    struct Outcome;
    struct Verdict;
    struct ToTheEnd;

    trait Send {}
    trait Sync {}
    trait Future {}
    trait IntoFuture {}
    trait Drop {}
    trait Fn {}
    trait FnOnce {}
    trait Iterator {}
    trait Into {}
    trait From {}
    trait Clone {}
    trait Display {}

    #[allow(non_upper_case_globals)]
    const key: u8 = 0;
    #[allow(non_upper_case_globals)]
    static lease: u8 = 0;
    #[allow(non_upper_case_globals)]
    const error: u8 = 0;
    #[allow(non_upper_case_globals)]
    const value: u8 = 0;

    fn enter() {}
    fn leave() {}
    fn client() {}
    fn busy_error() {}
    fn down_error() {}
    fn lost_cancel() {}

    macro_rules! own {
        ($($name:ident)*) => { $( macro_rules! $name { () => { compile_error!("of the user") }; } )* };
    }
    own! { format println panic unreachable pin matches write vec todo assert }

    #[::lockattr::distributed_lock(key = "crowded:<id>", ttl = "5s", wait = "1ms", bind = held)]
    pub(super) async fn crowded(mut id: u8) -> ::std::result::Result<u8, ::lockattr::Error> {
        id += u8::from(held.key().is_empty());
        ::std::result::Result::Ok(id)
    }

    #[::lockattr::distributed_lock(key = "crowded-thread:<id>", ttl = "5s", bind = held, blocking)]
    pub(super) fn thread(mut id: u8) -> ::std::result::Result<u8, ::lockattr::Error> {
        id += u8::from(held.key().is_empty());
        ::std::result::Result::Ok(id)
    }

    #[::lockattr::distributed_lock(key = "crowded-skip:<id>", on_busy = skip, on_lost = continue)]
    pub(super) async fn skip(id: u8) -> ::std::option::Option<u8> {
        ::std::option::Option::Some(id)
    }

    #[::lockattr::distributed_lock(key = "crowded-future:<id>")]
    pub(super) fn future(
        id: u8,
    ) -> impl ::std::future::Future<Output = ::std::result::Result<u8, ::lockattr::Error>> {
        async move { ::std::result::Result::Ok(id) }
    }

    #[::lockattr::distributed_lock(key = "crowded-boxed:<id>")]
    pub(super) fn boxed(
        id: u8,
    ) -> ::std::pin::Pin<
        ::std::boxed::Box<
            dyn ::std::future::Future<Output = ::std::result::Result<u8, ::lockattr::Error>>,
        >,
    > {
        if id == 0 {
            return ::std::boxed::Box::pin(crowded(id));
        }
        let future = crowded(id);
        ::std::boxed::Box::pin(future)
    }
}

mod own_result {
    //! A `Result` of one's own, with the name of the other.

    use lockattr::distributed_lock;

    pub(super) type Result<T, E = lockattr::Error> = std::result::Result<T, E>;

    #[distributed_lock(key = "own-result:<id>")]
    pub(super) async fn own_result(id: u8) -> Result<u8> {
        Ok(id)
    }
}

mod items_like_variables {
    //! Constants, statics and unit structs named like variables of an expansion.
    #![allow(non_upper_case_globals, non_camel_case_types)]

    use std::future::Future;
    use std::time::Duration;

    use lockattr::{Client, Error, distributed_lock};

    macro_rules! items {
        ($($constant:ident $value:ident $structure:ident)*) => {
            $(
                const $constant: u8 = 1;
                static $value: u8 = 1;
                struct $structure;
            )*
        };
    }
    items! {
        lockattr_key_0 lockattr_options_0 lockattr_client_0
        lockattr_entered lockattr_lease lockattr_error
        lockattr_body lockattr_leaving lockattr_ending
        lockattr_run lockattr_outcome lockattr_value
        lockattr_writer lockattr_never lockattr_future
        lockattr_ended lockattr_made lockattr_private_0
    }

    #[distributed_lock(key = "items:<id>", ttl = ttl, permits = 1, bind = lease)]
    pub(super) async fn cancelled(mut id: u8, ttl: Duration) -> Result<u8, Error> {
        id += u8::from(lease.key().is_empty());
        Ok(id + lockattr_key_0 - lockattr_options_0)
    }

    #[distributed_lock(key = "items-continued:<id>", on_lost = continue, client = locks)]
    pub(super) async fn continued(id: u8, locks: &Client) -> Result<u8, Error> {
        Ok(id)
    }

    #[distributed_lock(key = "items-returned:<id>", on_lost = return Ok(0))]
    #[distributed_lock(key = "items-returned-inner:<id>", on_unavailable = return Ok(0))]
    pub(super) async fn returned(id: u8) -> Result<u8, Error> {
        Ok(id)
    }

    #[distributed_lock(key = "items-future:<id>")]
    pub(super) fn future(id: u8) -> impl Future<Output = Result<u8, Error>> {
        async move { Ok(id) }
    }

    #[distributed_lock(key = "items-made:<id>")]
    pub(super) fn made(id: u8) -> impl Future<Output = Result<u8, Error>> {
        std::future::ready(Ok(id))
    }
}

mod blanket {
    //! Traits for everything, with the names of the methods that an expansion might call.

    use lockattr::{Error, distributed_lock};

    trait Everything: Sized {
        fn text(self, _: &str) -> u8 {
            0
        }
        fn value(self) -> u8 {
            0
        }
        fn finish(self) -> u8 {
            0
        }
        fn ttl(self) -> u8 {
            0
        }
        fn wait(self) -> u8 {
            0
        }
        fn renew(self) -> u8 {
            0
        }
        fn poll(self) -> u8 {
            0
        }
        fn as_ref(&self) -> u8 {
            0
        }
        fn is_err(&self) -> u8 {
            0
        }
        fn to_string(&self) -> u8 {
            0
        }
        fn clone(&self) -> u8 {
            0
        }
        fn new() -> u8 {
            0
        }
    }

    impl<T> Everything for T {}

    #[distributed_lock(key = "blanket:<id>", ttl = "5s", wait = "1ms", renew = false)]
    pub(super) async fn blanket(id: u8) -> Result<u8, Error> {
        Ok(id)
    }
}

mod reexported {
    //! The crate under another path.

    pub(super) mod prelude {
        pub(in super::super) use ::lockattr as locks;
    }

    /// In place of the crate, which is then reached by its path alone.
    mod lockattr {}

    use self::prelude::locks::distributed_lock;

    #[distributed_lock(key = "reexported:<id>", crate = crate::reexported::prelude::locks)]
    pub(super) async fn absolute(id: u8) -> Result<u8, prelude::locks::Error> {
        Ok(id)
    }

    #[distributed_lock(key = "reexported-self:<id>", crate = self::prelude::locks, bind = lease)]
    pub(super) async fn relative_to_itself(id: u8) -> Result<u8, prelude::locks::Error> {
        Ok(id + u8::from(lease.key().is_empty()))
    }
}

mod in_a_macro {
    //! The crate as another crate's macros name it.

    #[doc(hidden)]
    pub(super) use ::lockattr as hidden;

    macro_rules! job {
        ($name:ident, $id:ident) => {
            #[hidden::distributed_lock(key = "job:<id>", crate = $crate::in_a_macro::hidden)]
            pub(super) async fn $name($id: u8) -> Result<u8, hidden::Error> {
                Ok($id)
            }
        };
    }
    job!(job, id);
}

mod nested {
    //! A function in a function.

    use lockattr::{Error, distributed_lock};

    pub(super) async fn outer(id: u8) -> Result<u8, Error> {
        #[distributed_lock(key = "nested:<id>")]
        async fn inner(id: u8) -> Result<u8, Error> {
            Ok(id)
        }
        inner(id).await
    }
}

#[tokio::test]
async fn everything_has_its_name_taken() {
    use shapes_support::check;

    check("crowded:1", 1, async || crowded::crowded(1).await).await;
    check("crowded-future:1", 1, async || crowded::future(1).await).await;
    check("crowded-boxed:1", 1, async || crowded::boxed(1).await).await;
    check("own-result:1", 1, async || own_result::own_result(1).await).await;
    check("blanket:1", 1, async || blanket::blanket(1).await).await;
    check("reexported:1", 1, async || reexported::absolute(1).await).await;
    check("reexported-self:1", 1, async || {
        reexported::relative_to_itself(1).await
    })
    .await;
    check("job:1", 1, async || in_a_macro::job(1).await).await;
    check("nested:1", 1, async || nested::outer(1).await).await;
    let locks = lockattr::Client::connect("memory:").await.unwrap();
    assert_eq!(locks.scope(crowded::skip(1)).await, Some(1));
    let on_a_thread = move || locks.scope_blocking(|| crowded::thread(1));
    let answer = tokio::task::spawn_blocking(on_a_thread).await.unwrap();
    assert_eq!(answer.unwrap(), 1);
}

#[tokio::test]
async fn items_named_like_variables() {
    use items_like_variables::{cancelled, continued, future, made, returned};
    use shapes_support::check;

    let ttl = std::time::Duration::from_secs(30);
    check("items:1", 1, async || cancelled(1, ttl).await).await;
    check("items-returned:1", 1, async || returned(1).await).await;
    check("items-future:1", 1, async || future(1).await).await;
    check("items-made:1", 1, async || made(1).await).await;
    let locks = lockattr::Client::connect("memory:").await.unwrap();
    assert_eq!(continued(1, &locks).await.unwrap(), 1);
}
