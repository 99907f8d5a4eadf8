//! The key of one function: its template with every placeholder bound to an argument.

use std::ops::Range;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::ext::IdentExt as _;
use syn::parse::Parser as _;
use syn::{Error, Index, LitStr};

use crate::errors;
use crate::function::Scope;
use crate::literal::{in_source, underlined};
use crate::placeholder::{Placeholder, Step};
use crate::suggest::nearest;
use crate::template::{self, Piece};
use crate::template_error::{Candidates, TemplateError, TemplateErrorKind};

pub(crate) struct KeyTemplate {
    /// As it stands in the attribute.
    pub(crate) written: String,
    pub(crate) parts: Vec<Part>,
}

pub(crate) enum Part {
    Text(String),
    Value {
        /// The placeholder as written. The error for a value that cannot be in a key names it.
        name: String,
        /// The character that follows, which the value must not contain.
        next: Option<char>,
        /// A place expression or a method call on one.
        value: TokenStream,
        span: Span,
    },
}

impl KeyTemplate {
    pub(crate) fn new(literal: &LitStr, scope: &Scope) -> Result<Self, Error> {
        let text = literal.value();
        let (pieces, mut errors) = template::parse(&text, |path| correction(path, scope));
        let parts = resolve(&pieces, literal, scope, &mut errors);
        errors.sort_by_key(|found| found.range.start);
        let names_in_scope = scope.names();
        let candidates = Candidates {
            names: &names_in_scope,
            receiver: scope.receiver.is_some(),
        };
        let errors = errors
            .iter()
            .map(|found| error(found, literal, &text, &candidates));
        let template = Self {
            written: text.clone(),
            parts,
        };
        errors::combined(errors, template)
    }
}

/// Input:  `[Text("sync:"), Value(order.id)]`, the names of the function's arguments
/// Output: `[Text("sync:"), Value(order.id)]`, the value as tokens
fn resolve(
    pieces: &[Piece],
    literal: &LitStr,
    scope: &Scope,
    errors: &mut Vec<TemplateError>,
) -> Vec<Part> {
    let mut parts = Vec::new();
    for (index, piece) in pieces.iter().enumerate() {
        match piece {
            Piece::Text(text) => parts.push(Part::Text(text.clone())),
            Piece::Value(placeholder) => {
                let span = span(literal, &placeholder.range).unwrap_or_else(|| literal.span());
                let next = match pieces.get(index + 1) {
                    Some(Piece::Text(text)) => text.chars().next(),
                    _ => None,
                };
                match value(placeholder, scope, span) {
                    Ok(value) => parts.push(Part::Value {
                        name: placeholder.written.clone(),
                        next,
                        value,
                        span,
                    }),
                    Err(found) => errors.push(found),
                }
            }
        }
    }
    parts
}

/// Input:  `Placeholder { root: order, steps: [Call(id)] }`
/// Output: `order.id()`, with the argument's own token, so that it resolves to the argument also in
///         a function that a macro made, and with the span of the literal
fn value(
    placeholder: &Placeholder,
    scope: &Scope,
    span: Span,
) -> Result<TokenStream, TemplateError> {
    let start = placeholder.range.start;
    let root_length = placeholder
        .written
        .find('.')
        .unwrap_or(placeholder.written.len());
    let root_range = start..start + root_length;
    let mut root = scope
        .token(&normalized(&placeholder.root), span)
        .ok_or_else(|| TemplateError::new(root_range, unknown(&placeholder.root, scope)))?;
    root.set_span(root.span().located_at(span));
    let ours = Span::mixed_site().located_at(span);
    let mut tokens = quote_spanned! {ours=> #root };
    for step in &placeholder.steps {
        let step = match step {
            Step::Index(index) => {
                let index = Index {
                    index: *index,
                    span: ours,
                };
                quote_spanned! {ours=> .#index }
            }
            Step::Field(name) => {
                let name = member(name, ours, placeholder)?;
                quote_spanned! {ours=> .#name }
            }
            Step::Call(name) => {
                let name = member(name, ours, placeholder)?;
                quote_spanned! {ours=> .#name() }
            }
        };
        tokens.extend(step);
    }
    Ok(tokens)
}

/// A name in the normal form of the compiler (NFC): an accent may be a character of its own.
fn normalized(name: &str) -> String {
    let ident = Ident::parse_any.parse_str(name);
    ident.map_or_else(|_| name.to_owned(), |ident| ident.to_string())
}

/// A field or method. A template has no `r#` before keywords.
fn member(name: &str, span: Span, placeholder: &Placeholder) -> Result<Ident, TemplateError> {
    let no_name = || {
        let kind = TemplateErrorKind::NotAName(name.to_owned());
        TemplateError::new(placeholder.range.clone(), kind)
    };
    let mut ident = Ident::parse_any.parse_str(name).map_err(|_| no_name())?;
    if syn::parse_str::<Ident>(name).is_err() {
        if ["self", "Self", "super", "crate"].contains(&name) {
            return Err(no_name());
        }
        ident = Ident::new_raw(name, span);
    }
    ident.set_span(span);
    Ok(ident)
}

/// The correction of a path: the nearest one that starts with an argument.
///
/// Input:  `"user.name"`, the arguments `[id, user]`
/// Output: `"user.name"`
fn correction(path: &str, scope: &Scope) -> Option<String> {
    let (root, steps) = path.split_at(path.find('.').unwrap_or(path.len()));
    if scope.find(&normalized(root)).is_some() {
        return Some(path.to_owned());
    }
    let here = scope.names();
    let nearest = nearest(root, here.iter().map(String::as_str))?;
    Some(format!("{nearest}{steps}"))
}

fn unknown(root: &str, scope: &Scope) -> TemplateErrorKind {
    if root == "self" {
        return TemplateErrorKind::NoReceiver;
    }
    let here = scope.names();
    match nearest(root, here.iter().map(String::as_str)) {
        None if scope.patterns_taken => TemplateErrorKind::Destructured(root.to_owned()),
        nearest => TemplateErrorKind::Unknown(root.to_owned(), nearest.map(ToOwned::to_owned)),
    }
}

fn error(
    found: &TemplateError,
    literal: &LitStr,
    text: &str,
    candidates: &Candidates<'_>,
) -> Error {
    let mut lines = vec![found.kind.message()];
    let mut inside = None;
    if !found.range.is_empty() {
        inside = span(literal, &found.range);
        // Where the compiler can point into the string, the underline would repeat it.
        if inside.is_none() {
            lines.push(underlined(text, &found.range));
        }
    }
    let rule = found.kind.rule(candidates);
    if !rule.is_empty() {
        lines.push(rule);
    }
    Error::new(inside.unwrap_or_else(|| literal.span()), lines.join("\n"))
}

/// The span of a part of the literal, on compilers that support subspans.
fn span(literal: &LitStr, range: &Range<usize>) -> Option<Span> {
    let token = literal.token();
    let range = in_source(&token.to_string(), &literal.value(), range)?;
    token.subspan(range)
}
