//! Helpers for tokens.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned as _;

/// The expression as an operand of `&`, in parentheses where precedence needs them.
pub(crate) fn operand(expr: &Expr) -> TokenStream {
    match expr {
        Expr::Path(_)
        | Expr::Field(_)
        | Expr::MethodCall(_)
        | Expr::Call(_)
        | Expr::Index(_)
        | Expr::Macro(_)
        | Expr::Paren(_)
        | Expr::Reference(_)
        | Expr::Unary(_)
        | Expr::Await(_)
        | Expr::Try(_)
        | Expr::Block(_) => expr.to_token_stream(),
        _ => quote_spanned! {expr.span()=> (#expr) },
    }
}

/// The same tokens with the same hygiene, located at another span.
pub(crate) fn located(tokens: &TokenStream, at: Span) -> TokenStream {
    tokens
        .clone()
        .into_iter()
        .map(|mut token| {
            if let TokenTree::Group(group) = &token {
                let mut moved = Group::new(group.delimiter(), located(&group.stream(), at));
                moved.set_span(group.span().located_at(at));
                return TokenTree::Group(moved);
            }
            token.set_span(token.span().located_at(at));
            token
        })
        .collect()
}
