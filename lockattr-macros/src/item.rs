//! The item under the attribute.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::{Attribute, Error, FnArg, Result, Signature, Token, Visibility};

use crate::body;
use crate::pattern;

/// A function, its body not yet parsed.
pub(crate) struct Item {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: Option<Group>,
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis: Visibility = input.parse()?;
        if !starts_function(input) {
            return Err(Error::new(input.span(), not_a_function(input)));
        }
        let sig: Signature = input.parse()?;
        let body = if input.peek(Token![;]) {
            input.parse::<Token![;]>()?;
            None
        } else {
            Some(brace_group(input)?)
        };
        Ok(Self {
            attrs,
            vis,
            sig,
            body,
        })
    }
}

fn starts_function(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    loop {
        if ahead.peek(Token![fn]) {
            return true;
        }
        let qualifier = ahead.peek(Token![async])
            || ahead.peek(Token![unsafe])
            || ahead.peek(Token![const])
            || ahead.peek(Token![extern])
            || ahead.peek(syn::LitStr);
        if !qualifier || ahead.parse::<TokenTree>().is_err() {
            return false;
        }
    }
}

fn not_a_function(input: ParseStream<'_>) -> String {
    let ahead = input.fork();
    while ahead.peek(Token![unsafe]) || ahead.peek(Token![default]) || ahead.peek(Token![auto]) {
        if ahead.parse::<TokenTree>().is_err() {
            break;
        }
    }
    let what = if ahead.peek(Token![impl]) {
        return "the attribute goes on an `async fn`, not on an `impl` block: put it on each \
                function in the block that takes the lock"
            .into();
    } else if ahead.peek(Token![trait]) {
        return "the attribute goes on an `async fn`, not on a trait: put it on the default \
                bodies in the trait, and on the functions that implement it"
            .into();
    } else if ahead.peek(Token![struct]) {
        "a struct"
    } else if ahead.peek(Token![enum]) {
        "an enum"
    } else if ahead.peek(Token![mod]) {
        "a module"
    } else if ahead.peek(Token![static]) || ahead.peek(Token![const]) {
        "a value"
    } else if ahead.peek(Token![type]) {
        "a type"
    } else {
        return "the attribute goes on an `async fn`".into();
    };
    format!("the attribute goes on an `async fn`, not on {what}")
}

/// The braces of the body, without the invisible groups that `macro_rules!` puts around them.
fn brace_group(input: ParseStream<'_>) -> Result<Group> {
    input.step(|cursor| {
        if let Some((TokenTree::Group(group), rest)) = cursor.token_tree()
            && let Some(body) = peel(&group)
        {
            return Ok((body, rest));
        }
        Err(cursor.error("expected the body of the function"))
    })
}

/// Input:  an invisible group around `{ … }`, however deep
/// Output: `{ … }`
fn peel(group: &Group) -> Option<Group> {
    if group.delimiter() == Delimiter::Brace {
        return Some(group.clone());
    }
    if group.delimiter() != Delimiter::None {
        return None;
    }
    let mut inside = group.stream().into_iter();
    match (inside.next(), inside.next()) {
        (Some(TokenTree::Group(only)), None) => peel(&only),
        _ => None,
    }
}

impl Item {
    /// The function without a lock, emitted beside the errors so that its users still compile.
    pub(crate) fn unguarded(&self, before_body: &TokenStream) -> TokenStream {
        let Self {
            attrs,
            vis,
            sig,
            body,
        } = self;
        let Some(body) = body else {
            return quote! { #(#attrs)* #vis #sig ; };
        };
        let mut attrs = attrs.clone();
        let body = body::hoist(body.clone(), &mut attrs);
        let used = self.used();
        let braces = body.span();
        // No block around the user's statements: the compiler would call its braces unnecessary, and
        // other attributes look at the last expression.
        let (items, rest) = body::split_items(&body);
        let body = quote! { #items #used #before_body #rest };
        let mut body = Group::new(Delimiter::Brace, body);
        body.set_span(braces);
        quote! { #(#attrs)* #vis #sig #body }
    }

    /// Uses each argument: one that only a wrong key names shall not be reported as unused as well.
    fn used(&self) -> TokenStream {
        let mut names = Vec::new();
        for input in &self.sig.inputs {
            if let FnArg::Typed(typed) = input
                && typed.attrs.is_empty()
            {
                names.extend(pattern::names(&typed.pat));
            }
        }
        let ours = Span::mixed_site();
        quote_spanned! {ours=> #(let _ = &#names;)* }
    }
}
