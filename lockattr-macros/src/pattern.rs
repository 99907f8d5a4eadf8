//! The patterns of arguments: the names that they bind, and `mut` bindings moved into the body.

use proc_macro2::{Ident, TokenStream};
use quote::quote_spanned;
use syn::punctuated::Punctuated;
use syn::visit_mut::{self, VisitMut};
use syn::{Attribute, Expr, FnArg, Pat, PatIdent, Token};

/// Input:  `Json(Order { id, owner: (name, _), .. })`
/// Output: `[id, name]`
pub(crate) fn names(pat: &Pat) -> Vec<Ident> {
    let mut visitor = BoundNames(Vec::new());
    // The visitor changes nothing. Using syn's mutable visitor alone keeps the build short.
    visitor.visit_pat_mut(&mut pat.clone());
    visitor.0
}

struct BoundNames(Vec<Ident>);

impl VisitMut for BoundNames {
    fn visit_pat_ident_mut(&mut self, pat: &mut PatIdent) {
        if !self.0.contains(&pat.ident) {
            self.0.push(pat.ident.clone());
        }
        visit_mut::visit_pat_ident_mut(self, pat);
    }

    fn visit_expr_mut(&mut self, _: &mut Expr) {}
}

/// A `mut` argument, bound again as mutable inside the body.
pub(crate) struct Rebind {
    attrs: Vec<Attribute>,
    mutability: Token![mut],
    ident: Ident,
}

impl Rebind {
    /// Input:  mut s
    /// Output: `let mut s = s;`
    pub(crate) fn tokens(&self, ours: proc_macro2::Span) -> TokenStream {
        let Self {
            attrs,
            mutability,
            ident,
        } = self;
        quote_spanned! {ours=> #(#attrs)* let #mutability #ident = #ident; }
    }
}

/// Removes the `mut` of by-value bindings from the signature.
///
/// A variable that a block captures has one type, lifetimes included. So
/// `async fn f(mut s: &str) { let t = s.trim(); s = t; }` compiles only where the block itself
/// binds `s`.
///
/// Input:  `(mut a, ref mut b): (A, B)`
/// Output: `(a, ref mut b): (A, B)`, and `a` to be bound again
pub(crate) fn strip_mut(inputs: &mut Punctuated<FnArg, Token![,]>) -> Vec<Rebind> {
    let mut rebinds = Vec::new();
    for input in inputs {
        let FnArg::Typed(typed) = input else {
            continue;
        };
        let mut visitor = StripMut(Vec::new());
        visitor.visit_pat_mut(&mut typed.pat);
        let plain = matches!(*typed.pat, Pat::Ident(_));
        for (mutability, ident) in visitor.0 {
            rebinds.push(Rebind {
                attrs: attributes(&mut typed.attrs, plain),
                mutability,
                ident,
            });
        }
    }
    rebinds
}

struct StripMut(Vec<(Token![mut], Ident)>);

impl VisitMut for StripMut {
    fn visit_pat_ident_mut(&mut self, pat: &mut PatIdent) {
        if pat.by_ref.is_none()
            && let Some(mutability) = pat.mutability.take()
            && !self.0.iter().any(|(_, ident)| *ident == pat.ident)
        {
            self.0.push((mutability, pat.ident.clone()));
        }
        visit_mut::visit_pat_ident_mut(self, pat);
    }

    fn visit_expr_mut(&mut self, _: &mut Expr) {}
}

/// The attributes that the new binding needs: `cfg`, since it exists only where its argument does,
/// and lint levels, since the lint now fires on the new binding.
fn attributes(attrs: &mut Vec<Attribute>, take_lints: bool) -> Vec<Attribute> {
    let is = |attr: &Attribute, names: &[&str]| names.iter().any(|name| attr.path().is_ident(name));
    let mut taken = Vec::new();
    attrs.retain(|attr| {
        if is(attr, &["cfg", "cfg_attr"]) {
            taken.push(attr.clone());
        } else if take_lints && is(attr, &["allow", "expect", "warn", "deny", "forbid"]) {
            taken.push(attr.clone());
            return false;
        }
        true
    });
    taken
}

#[cfg(test)]
mod tests {
    use quote::{ToTokens as _, quote};
    use syn::parse::Parser as _;

    use super::*;

    #[test]
    fn every_binding_is_found() {
        let mut found = Vec::new();
        for pat in [
            "Json(Order { id, owner: (name, _), .. })",
            "[first, rest @ ..]",
            "&r#type",
        ] {
            found.extend(names(&Pat::parse_single.parse_str(pat).unwrap()));
        }
        let found: Vec<String> = found.iter().map(ToString::to_string).collect();
        assert_eq!(found, ["id", "name", "first", "rest", "r#type"]);
    }

    #[test]
    fn mut_moves_into_the_body() {
        let sig =
            "fn f(mut self, mut a: A, (ref mut b, mut c): (B, C), #[cfg(x)] #[allow(y)] mut d: D)";
        let mut sig: syn::Signature = syn::parse_str(sig).unwrap();
        let rebinds = strip_mut(&mut sig.inputs);
        let inputs = quote!(mut self, a: A, (ref mut b, c): (B, C), #[cfg(x)] d: D);
        assert_eq!(sig.inputs.to_token_stream().to_string(), inputs.to_string());
        let here = proc_macro2::Span::call_site();
        let lets: TokenStream = rebinds.iter().map(|rebind| rebind.tokens(here)).collect();
        let expected = quote! {
            let mut a = a;
            let mut c = c;
            #[cfg(x)] #[allow(y)] let mut d = d;
        };
        assert_eq!(lets.to_string(), expected.to_string());
    }
}
