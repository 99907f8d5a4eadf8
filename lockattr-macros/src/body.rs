//! Function bodies as tokens, parsed no further than is needed to find the future in them.

use proc_macro2::{Delimiter, Group, Ident, Spacing, TokenStream, TokenTree};
use quote::ToTokens as _;
use syn::parse::Parser as _;
use syn::{Attribute, Error, Signature};

/// Moves the inner attributes of a body to the function: they would be in the middle of the new
/// body, where the compiler refuses them.
///
/// Input:  `{ #![allow(dead_code)] … }`
/// Output: `{ … }`, and `#[allow(dead_code)]` on the function
pub(crate) fn hoist(body: Group, attrs: &mut Vec<Attribute>) -> Group {
    let mut rest: Vec<TokenTree> = body.stream().into_iter().collect();
    let mut found = false;
    while let [
        TokenTree::Punct(hash),
        TokenTree::Punct(bang),
        TokenTree::Group(group),
        ..,
    ] = &rest[..]
    {
        if hash.as_char() != '#' || bang.as_char() != '!' {
            break;
        }
        let outer: TokenStream = [
            TokenTree::Punct(hash.clone()),
            TokenTree::Group(group.clone()),
        ]
        .into_iter()
        .collect();
        let Ok(parsed) = Attribute::parse_outer.parse2(outer) else {
            break;
        };
        attrs.extend(parsed);
        rest.drain(..3);
        found = true;
    }
    if !found {
        return body;
    }
    let mut hoisted = Group::new(Delimiter::Brace, rest.into_iter().collect());
    hoisted.set_span(body.span());
    hoisted
}

/// A body that ends in its future: the `async` block, and the code around it.
#[derive(Clone)]
pub(crate) struct Tail {
    /// The items that the body starts with.
    pub(crate) items: TokenStream,
    /// The statements before it.
    pub(crate) before: TokenStream,
    /// `Box::pin`, and the parentheses.
    pub(crate) pin: Option<(TokenStream, Group)>,
    pub(crate) block: Group,
    /// `.boxed()`
    pub(crate) after: TokenStream,
}

/// Input:  `{ let this = self.clone(); Box::pin(async move { … }) }`
/// Output: `Tail { before: let this = self.clone(); pin: Box::pin(…), block: { … } }`
///
/// `None` where the body may return another future: a `return` before the end would hand that one
/// to the caller without a lock. A macro may contain such a `return`.
pub(crate) fn tail(body: &Group) -> Option<Tail> {
    let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
    let (tokens, after) = split_boxed(&tokens);
    let (before, pin, block) = if let Some((before, block)) = split_async(tokens) {
        (before, None, block)
    } else {
        let (TokenTree::Group(arguments), rest) = tokens.split_last()? else {
            return None;
        };
        let inside: Vec<TokenTree> = arguments.stream().into_iter().collect();
        let inside = match inside.split_last() {
            Some((TokenTree::Punct(comma), inside)) if comma.as_char() == ',' => inside,
            _ => &inside,
        };
        let ([], block) = split_async(inside)? else {
            return None;
        };
        let path = path_start(rest);
        let (before, path) = rest.split_at(path);
        if arguments.delimiter() != Delimiter::Parenthesis || !is_box_pin(path) {
            return None;
        }
        let path = path.iter().cloned().collect();
        (before, Some((path, arguments.clone())), block)
    };
    if !ends_statement(before) || may_return(before) {
        return None;
    }
    let (items, before) = before.split_at(leading_items(before));
    Some(Tail {
        items: items.iter().cloned().collect(),
        before: before.iter().cloned().collect(),
        pin,
        block,
        after: after.iter().cloned().collect(),
    })
}

/// The items that a body starts with, and the rest of it.
pub(crate) fn split_items(body: &Group) -> (TokenStream, TokenStream) {
    let tokens: Vec<TokenTree> = body.stream().into_iter().collect();
    let (items, rest) = tokens.split_at(leading_items(&tokens));
    (
        items.iter().cloned().collect(),
        rest.iter().cloned().collect(),
    )
}

/// The number of tokens that are items, before the first statement of another kind.
///
/// Input:  `use a::b; fn c() {} let d = c();`
/// Output: that of `use a::b; fn c() {}`
fn leading_items(tokens: &[TokenTree]) -> usize {
    let mut at = 0;
    while let Some(length) = item(&tokens[at..]) {
        at += length;
    }
    at
}

/// The length of the item at the start.
fn item(tokens: &[TokenTree]) -> Option<usize> {
    let start = tokens.iter().position(|token| !is_attribute(token))?;
    let leading: Vec<&TokenTree> = tokens[start..]
        .iter()
        .take_while(|token| !matches!(token, TokenTree::Punct(_) | TokenTree::Group(_)))
        .collect();
    let starts_with = |words: &[&str]| {
        let first = leading.first();
        first.is_some_and(|first| words.iter().any(|word| is(first, word)))
    };
    let has = |words: &[&str]| {
        let mut names = leading.iter();
        names.any(|name| words.iter().any(|word| is(name, word)))
    };
    let in_braces = has(&["fn", "struct", "enum", "trait", "impl", "mod", "extern"])
        || starts_with(&["union"]) && leading.len() == 2;
    let to_semicolon =
        starts_with(&["use", "static", "type"]) || starts_with(&["const"]) && leading.len() == 2;
    if !in_braces && !to_semicolon {
        return None;
    }
    let ends = |token: &TokenTree| match token {
        TokenTree::Punct(punct) => punct.as_char() == ';',
        TokenTree::Group(group) => in_braces && group.delimiter() == Delimiter::Brace,
        _ => false,
    };
    Some(tokens.iter().position(ends)? + 1)
}

fn is_attribute(token: &TokenTree) -> bool {
    match token {
        TokenTree::Punct(punct) => punct.as_char() == '#',
        TokenTree::Group(group) => group.delimiter() == Delimiter::Bracket,
        _ => false,
    }
}

/// Whether the last statement starts with `return`.
pub(crate) fn ends_in_return(body: &Group) -> bool {
    let mut starts = true;
    let mut returns = false;
    for token in body.stream() {
        if starts {
            returns = is(&token, "return");
        }
        starts = match &token {
            TokenTree::Punct(punct) => punct.as_char() == ';' || starts && punct.as_char() == '#',
            TokenTree::Group(group) => match group.delimiter() {
                Delimiter::Brace => true,
                // An attribute, or an array, which need not be told apart here.
                Delimiter::Bracket => starts,
                _ => false,
            },
            _ => false,
        };
    }
    returns
}

/// Input:  `… async move { … }`
/// Output: `…`, `{ … }`
fn split_async(tokens: &[TokenTree]) -> Option<(&[TokenTree], Group)> {
    let (TokenTree::Group(block), rest) = tokens.split_last()? else {
        return None;
    };
    if block.delimiter() != Delimiter::Brace {
        return None;
    }
    let (last, rest) = rest.split_last()?;
    if is(last, "async") {
        return Some((rest, block.clone()));
    }
    let (first, before) = rest.split_last()?;
    (is(last, "move") && is(first, "async")).then(|| (before, block.clone()))
}

/// Input:  `… .boxed()`
/// Output: `…`, `.boxed()`
fn split_boxed(tokens: &[TokenTree]) -> (&[TokenTree], &[TokenTree]) {
    if let [
        ..,
        TokenTree::Punct(dot),
        TokenTree::Ident(name),
        TokenTree::Group(none),
    ] = tokens
        && dot.as_char() == '.'
        && (*name == "boxed" || *name == "boxed_local")
        && none.stream().is_empty()
    {
        tokens.split_at(tokens.len() - 3)
    } else {
        (tokens, &[])
    }
}

/// The index at which the path at the end starts.
fn path_start(tokens: &[TokenTree]) -> usize {
    let in_path = |token: &&TokenTree| match token {
        TokenTree::Ident(_) => true,
        TokenTree::Punct(punct) => punct.as_char() == ':',
        _ => false,
    };
    tokens.len() - tokens.iter().rev().take_while(in_path).count()
}

fn is_box_pin(path: &[TokenTree]) -> bool {
    let idents: Vec<&Ident> = path
        .iter()
        .filter_map(|token| match token {
            TokenTree::Ident(ident) => Some(ident),
            _ => None,
        })
        .collect();
    matches!(&idents[..], [.., boxed, pin] if *boxed == "Box" && *pin == "pin")
}

fn is(token: &TokenTree, word: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident == word)
}

fn ends_statement(tokens: &[TokenTree]) -> bool {
    match tokens.last() {
        None => true,
        Some(TokenTree::Punct(punct)) => punct.as_char() == ';',
        Some(TokenTree::Group(group)) => group.delimiter() == Delimiter::Brace,
        Some(_) => false,
    }
}

/// Whether there is a `return`, or a macro, which may contain one.
fn may_return(tokens: &[TokenTree]) -> bool {
    let mut name = false;
    for token in tokens {
        match token {
            TokenTree::Ident(ident) if ident == "return" => return true,
            TokenTree::Punct(bang)
                if name && bang.as_char() == '!' && bang.spacing() == Spacing::Alone =>
            {
                return true;
            }
            TokenTree::Group(group) => {
                let inside: Vec<TokenTree> = group.stream().into_iter().collect();
                if may_return(&inside) {
                    return true;
                }
            }
            _ => {}
        }
        name = matches!(token, TokenTree::Ident(_));
    }
    false
}

/// The error for a function that is not `async` and returns no future.
pub(crate) fn not_async(attrs: &[Attribute], sig: &Signature, body: &Group) -> Error {
    let test = has(attrs, "test");
    let advice = if is_main(sig) {
        MAIN.to_owned()
    } else if mentions(body.stream(), "block_on") {
        let name = if test {
            "#[tokio::test]"
        } else {
            "#[tokio::main]"
        };
        format!(
            "another attribute, such as `{name}`, has already made this an ordinary function: \
             put `#[distributed_lock]` above it, where the function is still `async`"
        )
    } else if test {
        format!(
            "a lock is awaited, so this test has to be `async`: write `#[tokio::test]` and \
             `async fn {}`\n{OR_BLOCKING}",
            sig.ident
        )
    } else {
        format!(
            "a lock is awaited, so this function has to be `async`: write `async fn {}`\n\
             a `fn` that returns `impl Future<Output = …>`, `Pin<Box<dyn Future<Output = …>>>` or \
             a `BoxFuture` will do too, and so will a `Stream` in one of these forms\n{OR_BLOCKING}",
            sig.ident
        )
    };
    Error::new_spanned(sig.fn_token.to_token_stream(), advice)
}

/// The message for a `main` that another attribute makes an ordinary function.
pub(crate) const MAIN: &str = "`main` is where the client is installed, and cannot wait for a lock \
                               before that: put the attribute on a function that `main` calls";

/// What else may be written for a function that is not `async`.
const OR_BLOCKING: &str = "or write `#[distributed_lock(…, blocking)]`, where it is called on a \
                           thread that may wait for the lock";

pub(crate) fn is_main(sig: &Signature) -> bool {
    sig.ident == "main" && sig.inputs.is_empty()
}

/// Whether there is an attribute `#[name]` or `#[path::name]`.
pub(crate) fn has(attrs: &[Attribute], name: &str) -> bool {
    let mut paths = attrs.iter().map(Attribute::path);
    paths.any(|path| path.segments.last().is_some_and(|last| last.ident == name))
}

fn mentions(tokens: TokenStream, word: &str) -> bool {
    tokens.into_iter().any(|token| match token {
        TokenTree::Group(group) => mentions(group.stream(), word),
        token => is(&token, word),
    })
}

#[cfg(test)]
mod tests {
    use quote::quote;

    use super::*;

    fn tail_of(body: TokenStream) -> Option<Tail> {
        tail(&Group::new(Delimiter::Brace, body))
    }

    #[test]
    fn a_future_at_the_end_is_found() {
        for (body, before, pinned, after) in [
            (quote!(async move { 1 }), quote!(), false, quote!()),
            (quote!(async { 1 }), quote!(), false, quote!()),
            (quote!(Box::pin(async move { 1 })), quote!(), true, quote!()),
            (
                quote!(::std::boxed::Box::pin(async move { 1 },)),
                quote!(),
                true,
                quote!(),
            ),
            (
                quote!(let a = b; async move { 1 }),
                quote!(let a = b;),
                false,
                quote!(),
            ),
            (
                quote!(if a { b } Box::pin(async move { 1 })),
                quote!(if a {
                    b
                }),
                true,
                quote!(),
            ),
            (
                quote!(async move { 1 }.boxed()),
                quote!(),
                false,
                quote!(.boxed()),
            ),
        ] {
            let found = tail_of(body.clone()).unwrap_or_else(|| panic!("{body}"));
            assert_eq!(found.before.to_string(), before.to_string());
            assert_eq!(found.pin.is_some(), pinned);
            assert_eq!(found.after.to_string(), after.to_string());
            assert_eq!(found.block.to_string(), "{ 1 }");
        }
    }

    #[test]
    fn items_come_first() {
        for (items, rest) in [
            ("use a::{b};", "let c = d;"),
            (
                "#[a] const A: [u8; 2] = [1, 2]; const fn b() {} struct C(D);",
                "",
            ),
            ("impl<A> B for A {}", "let c = d; fn e() {}"),
            ("unsafe extern \"C\" { fn a(); }", ""),
            ("", "let a: fn() = b;"),
            ("", "unsafe { a() }"),
            ("", "const { a() } use b;"),
        ] {
            let body: TokenStream = format!("{items} {rest} async {{}}").parse().unwrap();
            let items: TokenStream = items.parse().unwrap();
            let found = tail_of(body.clone()).unwrap_or_else(|| panic!("{body}"));
            assert_eq!(found.items.to_string(), items.to_string(), "{body}");
        }
    }

    #[test]
    fn what_may_be_another_future_is_not() {
        for body in [
            quote!(),
            quote!(ready(1)),
            quote!(let f = async move { 1 }; f),
            quote!(if a { return b; } async move { 1 }),
            quote!(leave!(a); async move { 1 }),
            quote!(a.map(async move { 1 })),
            quote!(return async move { 1 }),
            quote!(if a {
                async move { 1 }
            } else {
                async move { 2 }
            }),
            quote!(Box::pin(f(async move { 1 }))),
            quote!(Box::pin(a, async move { 1 })),
            quote!(x = async move { 1 }),
        ] {
            assert!(tail_of(body.clone()).is_none(), "{body}");
        }
    }

    #[test]
    fn a_last_return_is_seen() {
        for (body, returns) in [
            (quote!(return a;), true),
            (quote!(a; #[allow(b)] return c;), true),
            (quote!(let b = a; return b), true),
            (
                quote!(if a { return b; } return Box::pin(async { 1 });),
                true,
            ),
            (quote!(if a { return b; } c), false),
            (quote!(return a; b), false),
            (quote!(), false),
        ] {
            let found = ends_in_return(&Group::new(Delimiter::Brace, body.clone()));
            assert_eq!(found, returns, "{body}");
        }
    }

    #[test]
    fn the_advice_fits_the_function() {
        for (function, advice) in [
            ("fn f() {}", "write `async fn f`"),
            ("fn main() {}", "that `main` calls"),
            ("fn main() { block_on(a) }", "that `main` calls"),
            ("fn main(&self) {}", "write `async fn main`"),
            ("#[test] fn f() {}", "write `#[tokio::test]` and"),
            ("#[test] fn f() { a.block_on(b) }", "above it"),
            ("fn f() { block_on(a) }", "above it"),
        ] {
            let function: syn::ItemFn = syn::parse_str(function).unwrap();
            let body = function.block.to_token_stream().into_iter().next();
            let Some(TokenTree::Group(body)) = body else {
                unreachable!()
            };
            let error = not_async(&function.attrs, &function.sig, &body).to_string();
            assert!(error.contains(advice), "{error}");
        }
    }

    #[test]
    fn inner_attributes_move_out() {
        let body: TokenStream = "{ #![allow(a)] //! Doc.\n b }".parse().unwrap();
        let Some(TokenTree::Group(body)) = body.into_iter().next() else {
            unreachable!()
        };
        let mut attrs = Vec::new();
        assert_eq!(hoist(body, &mut attrs).to_string(), "{ b }");
        assert_eq!(attrs.len(), 2);
    }
}
