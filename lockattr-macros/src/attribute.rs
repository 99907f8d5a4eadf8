//! One use of the attribute: every error is collected, and without errors it is expanded.

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, Meta};

use crate::args::{Args, OnDone};
use crate::errors::CollectedErrors;
use crate::expand;
use crate::function::{Function, Scope, Shape, plain};
use crate::item::Item;
use crate::key::KeyTemplate;
use crate::lock::{self, Lock};

/// Input:  `key = "sync:<id>"`, `async fn f(id: u8) { … }`
/// Output: the function under its lock, or its errors and the function without one
pub(crate) fn apply(args: TokenStream, item: &TokenStream) -> TokenStream {
    let mut errors = CollectedErrors::default();
    let mut item = match syn::parse2::<Item>(item.clone()) {
        Ok(parsed) => parsed,
        Err(error) => {
            errors.push(error);
            let errors = errors.tokens();
            return quote_spanned! {Span::call_site()=> #errors #item };
        }
    };
    // With the hygiene of the function's tokens: for a span of the expansion the compiler adds a
    // note about it.
    let attribute = item.sig.fn_token.span.located_at(Span::call_site());
    let mut uses = vec![(args, attribute)];
    uses.extend(take_further_uses(&mut item.attrs, own_name().as_deref()));
    let all: Vec<Args> = uses
        .into_iter()
        .map(|(args, span)| Args::new(args, span, &mut errors))
        .collect();
    let scope = Scope::of(&item.sig);
    let unguarded = item.unguarded(&stand_ins(&all, &scope));
    let blocking = blocking(&all, &mut errors);
    let Some(function) = errors.keep(Function::new(item, blocking)) else {
        let errors = errors.tokens();
        return quote_spanned! {Span::call_site()=> #errors #unguarded };
    };
    let mut locks = Vec::new();
    for args in all {
        errors.keep(not_of_streams(&args, &function));
        errors.keep(free_name(&args, &scope));
        let keys = args.keys.iter().map(|key| KeyTemplate::new(key, &scope));
        let keys: Vec<_> = keys.filter_map(|key| errors.keep(key)).collect();
        locks.push(Lock { args, keys });
    }
    if !errors.is_empty() {
        let errors = errors.tokens();
        return quote_spanned! {Span::call_site()=> #errors #unguarded };
    }
    expand::expand(function, &locks)
}

/// The name that this attribute is used under, where its source can be seen.
///
/// Input:  `#[my::locked(key = "a")]`
/// Output: `"locked"`
fn own_name() -> Option<String> {
    name_in(&Span::call_site().source_text()?)
}

fn name_in(attribute: &str) -> Option<String> {
    let path = attribute.trim_start_matches(['#', '[', ' ']);
    let path = path.split(['(', ']']).next()?;
    let last = path.rsplit("::").next()?.trim();
    Some(last.to_owned()).filter(|name| !name.is_empty())
}

/// Takes away the further uses of this attribute below this one, also under a renamed import.
///
/// The compiler would expand them around the lock of this one. Expanded here they go inside of it,
/// so that the locks nest in the order in which they are written.
fn take_further_uses(
    attrs: &mut Vec<Attribute>,
    own_name: Option<&str>,
) -> Vec<(TokenStream, Span)> {
    let ours = |name: &Ident| name == "distributed_lock" || own_name.is_some_and(|own| name == own);
    let mut taken = Vec::new();
    attrs.retain(|attr| {
        let name = attr.path().segments.last();
        if !name.is_some_and(|name| ours(&name.ident)) {
            return true;
        }
        let args = match &attr.meta {
            Meta::List(list) => list.tokens.clone(),
            _ => TokenStream::new(),
        };
        taken.push((args, attr.span()));
        false
    });
    taken
}

/// Declares the leases that `bind` names, so that an attribute with errors does not cause further
/// errors in a body that uses its lease.
fn stand_ins(all: &[Args], scope: &Scope) -> TokenStream {
    let ours = Span::mixed_site();
    all.iter()
        .filter_map(|args| {
            let name = args.bind.as_ref()?;
            if scope.find(&plain(name)).is_some() {
                return None;
            }
            let krate = lock::krate(args, ours);
            let option = quote_spanned! {ours=> #krate::__private::core::option::Option };
            Some(quote_spanned! {ours=>
                let #name: &#krate::Lease = #option::unwrap(#option::None);
                let _ = #name;
            })
        })
        .collect()
}

fn not_of_streams(args: &Args, function: &Function) -> Result<(), Error> {
    let Shape::Stream { .. } = function.shape else {
        return Ok(());
    };
    if let OnDone::Replay { .. } = args.on_done {
        return Err(Error::new(
            function.output_span,
            "`on_done = replay` keeps one value, and a stream has many: return them as one, or write \
             `on_done = skip`, which yields nothing",
        ));
    }
    match &args.bind {
        Some(bind) => Err(Error::new_spanned(
            bind,
            "`bind` names the lease inside of a body, and a function that returns a stream has run its \
             body before: while it is polled, the stream finds its lease by `lockattr::current()`",
        )),
        None => Ok(()),
    }
}

/// Where a function is told to be one that blocks. All of its locks have to say so.
fn blocking(all: &[Args], errors: &mut CollectedErrors) -> Option<Span> {
    let told: Vec<Span> = all.iter().filter_map(|args| args.blocking).collect();
    let first = *told.first()?;
    if told.len() < all.len() {
        errors.push(Error::new(
            first,
            "each lock of a function is taken in the same way: write `blocking` in each of its \
             attributes, or in none",
        ));
    }
    Some(first)
}

fn free_name(args: &Args, scope: &Scope) -> Result<(), Error> {
    match &args.bind {
        Some(bind) if scope.find(&plain(bind)).is_some() => Err(Error::new_spanned(
            bind,
            format!(
                "`{bind}` is an argument of the function: choose another name for the lease, or \
                 the body could not reach the argument"
            ),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use syn::visit_mut::VisitMut;
    use syn::{Expr, ItemStatic, Macro, PatIdent, UseRename};

    use super::*;

    fn applied(args: &str, item: &str) -> String {
        apply(args.parse().unwrap(), &item.parse().unwrap()).to_string()
    }

    #[test]
    fn what_is_right_is_one_function() {
        for (args, item) in [
            (r#"key = "a""#, "async fn f() {}"),
            (
                r#"key = "a:<id>", bind = lease"#,
                "/// Doc. \n pub(crate) async unsafe fn f<T>(mut id: u8, (mut a, _): (T, T)) -> impl Sized { id }",
            ),
            (
                r#"key = "a", on_lost = continue"#,
                "fn f() -> impl Future<Output = u8> { async { 1 } }",
            ),
            (
                r#"key = "a""#,
                "fn f() -> BoxFuture<'static, u8> { if a { return b; } c }",
            ),
            (
                r#"key = "a", on_busy = skip"#,
                "fn f() -> Pin<Box<dyn Stream<Item = u8> + Send>> { if a { return b; } c }",
            ),
            (
                r#"key = "a:<id>", bind = lease, blocking"#,
                "unsafe extern \"C\" fn f<T>(mut id: T, (a, mut b): (u8, u8)) -> impl Sized { id }",
            ),
            (
                r#"key = "a", client = a + b"#,
                "#[distributed_lock(key = \"b\")] #[a::distributed_lock(key = \"c\")] async fn f() {}",
            ),
        ] {
            let expanded = applied(args, item);
            assert!(!expanded.contains("compile_error"), "{expanded}");
            syn::parse_str::<syn::ItemFn>(&expanded).expect(&expanded);
            assert!(!expanded.contains("distributed_lock"), "{expanded}");
        }
    }

    #[test]
    fn what_is_wrong_is_still_there() {
        for (args, item) in [
            (r#"key = "a:<b>", bind = lease"#, "async fn f(a: u8) {}"),
            (r#"key = "a""#, "#[test] fn f() {}"),
            (r#"key = "a""#, "async fn f() -> ! {}"),
            (r#"key = "a""#, "async fn f();"),
            (r#"key = "a""#, "struct S;"),
            (r#"key = "a""#, "async fn f("),
            ("", "async fn f() {}"),
        ] {
            let Ok(item) = item.parse::<TokenStream>() else {
                continue;
            };
            let expanded = apply(args.parse().unwrap(), &item).to_string();
            assert!(expanded.contains("compile_error"), "{expanded}");
            let last = item.clone().into_iter().next().unwrap().to_string();
            assert!(expanded.contains(&last), "{expanded}");
        }
    }

    #[test]
    fn every_error_is_told() {
        let expanded = applied(
            r#"key = "a:<b>:{c}", ttl = "30", bind = d, e = 1"#,
            "#[distributed_lock] async fn f(d: u8) {}",
        );
        assert_eq!(expanded.matches("compile_error").count(), 6, "{expanded}");
        let expanded = applied("", "const fn f(a: ...) -> ! {}");
        assert_eq!(expanded.matches("compile_error").count(), 4, "{expanded}");
    }

    #[test]
    fn the_name_in_use_is_read() {
        for (attribute, name) in [
            ("#[distributed_lock]", "distributed_lock"),
            ("#[locked(key = \"a::b\")]", "locked"),
            ("# [ my :: locked (key = \"a\") ]", "locked"),
            ("locked(key = \"a\")", "locked"),
        ] {
            assert_eq!(name_in(attribute).as_deref(), Some(name));
        }
        assert_eq!(name_in(""), None);
    }

    /// Not that of an item that somebody could write: hygiene does not keep those apart.
    #[test]
    fn no_name_of_ours_can_be_an_items() {
        struct Bound(Vec<String>);

        impl VisitMut for Bound {
            fn visit_pat_ident_mut(&mut self, pat: &mut PatIdent) {
                self.0.push(pat.ident.to_string());
            }

            fn visit_use_rename_mut(&mut self, rename: &mut UseRename) {
                self.0.push(rename.rename.to_string());
            }

            fn visit_item_static_mut(&mut self, item: &mut ItemStatic) {
                self.0.push(item.ident.to_string());
            }

            fn visit_macro_mut(&mut self, mac: &mut Macro) {
                let inside = mac.parse_body::<Expr>();
                self.visit_expr_mut(&mut inside.expect("an expression in `pin!`"));
            }
        }

        for on_lost in ["cancel", "continue", "return value"] {
            for (item, word) in [
                ("async fn f(id: u8) -> T { BODY }", ""),
                ("fn f(id: u8) -> T { BODY }", ", blocking"),
                (
                    "fn f(id: u8) -> impl Future<Output = T> { async move { BODY } }",
                    "",
                ),
                ("fn f(id: u8) -> impl Future<Output = T> { made(BODY) }", ""),
                ("fn f(id: u8) -> impl Stream<Item = T> { made(BODY) }", ""),
            ] {
                let args = format!(
                    "key = \"a:<id>\", ttl = ttl, client = locks, permits = 3, min_hold = \"1h\", \
                     on_lost = {on_lost}{word}"
                );
                let bind = if item.contains("Stream") {
                    ""
                } else {
                    ", bind = bound"
                };
                let args = args + bind;
                let item = format!("#[distributed_lock(key = \"b\"{word})] {item}");
                let expanded = applied(&args, &item);
                let mut expanded = syn::parse_str::<syn::ItemFn>(&expanded).expect(&expanded);
                let mut bound = Bound(Vec::new());
                bound.visit_item_fn_mut(&mut expanded);
                assert!(bound.0.len() > 20, "{:?}", bound.0);
                for name in bound.0 {
                    let digest = name.rsplit_once('_').map_or("", |(_, digest)| digest);
                    let ours = digest.len() == 16 && u64::from_str_radix(digest, 16).is_ok();
                    assert!(ours || ["id", "bound"].contains(&&*name), "{name}");
                }
            }
        }
    }

    proptest! {
        #[test]
        fn any_item_is_answered(words in proptest::collection::vec(word(), 0..16)) {
            let text = words.join(" ");
            if let Ok(item) = text.parse::<TokenStream>() {
                apply(r#"key = "a:<a>""#.parse().unwrap(), &item);
            }
        }
    }

    fn word() -> impl Strategy<Value = String> {
        let words = [
            "async",
            "fn",
            "f",
            "()",
            "(a: u8)",
            "(&mut self, mut a: A)",
            "((mut a, ..): B)",
            "{}",
            "{ return a; }",
            "{ Box::pin(async move { a }) }",
            "{ #![a] a }",
            ";",
            "->",
            "impl",
            "Future<Output = u8>",
            "Pin<Box<dyn Future>>",
            "BoxFuture<'a, u8>",
            "!",
            "pub",
            "unsafe",
            "const",
            "extern",
            "\"C\"",
            "#[a]",
            "#[distributed_lock(key = \"b\")]",
            "<T: 'a>",
            "where T: A",
            "struct",
            "trait",
            "<'async_trait>",
            "(__arg1: A)",
            "macro_rules!",
        ];
        proptest::sample::select(words.to_vec()).prop_map(ToOwned::to_owned)
    }
}
