//! The key of one function: its template with every placeholder bound to an argument.

use std::ops::Range;

use proc_macro2::{Ident, Span, TokenStream};
use quote::quote_spanned;
use syn::ext::IdentExt as _;
use syn::parse::Parser as _;
use syn::{Error, Index, LitStr};

use crate::faults;
use crate::flaw::{Flaw, Here, Problem};
use crate::function::Names;
use crate::names::nearest;
use crate::place::{draw, in_source};
use crate::template::{self, Piece, Placeholder, Step};

pub(crate) struct Key {
    pub(crate) parts: Vec<Part>,
}

pub(crate) enum Part {
    Text(String),
    Value {
        /// The placeholder as written, for the error of a value that cannot be in a key.
        name: String,
        /// The character that follows, which the value must not contain.
        next: Option<char>,
        /// A place expression or a method call on one.
        value: TokenStream,
        span: Span,
    },
}

impl Key {
    pub(crate) fn new(literal: &LitStr, names: &Names) -> Result<Self, Error> {
        let text = literal.value();
        let (pieces, mut flaws) = template::parse(&text, |path| meant(path, names));
        let parts = resolve(&pieces, literal, names, &mut flaws);
        flaws.sort_by_key(|flaw| flaw.range.start);
        let here = names.here();
        let here = Here {
            names: &here,
            receiver: names.receiver.is_some(),
        };
        let errors = flaws.iter().map(|flaw| error(flaw, literal, &text, &here));
        faults::all(errors, Self { parts })
    }
}

/// Input:  `[Text("sync:"), Value(order.id)]`, the names of the function's arguments
/// Output: `[Text("sync:"), Value(order.id)]`, the value as tokens
fn resolve(pieces: &[Piece], literal: &LitStr, names: &Names, flaws: &mut Vec<Flaw>) -> Vec<Part> {
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
                match value(placeholder, names, span) {
                    Ok(value) => parts.push(Part::Value {
                        name: placeholder.written.clone(),
                        next,
                        value,
                        span,
                    }),
                    Err(flaw) => flaws.push(flaw),
                }
            }
        }
    }
    parts
}

/// Input:  `Placeholder { root: order, steps: [Call(id)] }`
/// Output: `order.id()`: the argument's own token, so that it means the argument wherever the
///         function came from, at the place of the literal
fn value(placeholder: &Placeholder, names: &Names, span: Span) -> Result<TokenStream, Flaw> {
    let start = placeholder.range.start;
    let root_length = placeholder
        .written
        .find('.')
        .unwrap_or(placeholder.written.len());
    let root_range = start..start + root_length;
    let mut root = names
        .token(&normalized(&placeholder.root), span)
        .ok_or_else(|| Flaw::new(root_range, unknown(&placeholder.root, names)))?;
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

/// A name as the compiler knows it: an accent may be written as a character of its own.
fn normalized(name: &str) -> String {
    let ident = Ident::parse_any.parse_str(name);
    ident.map_or_else(|_| name.to_owned(), |ident| ident.to_string())
}

/// A field or method; keywords are written plainly in a template.
fn member(name: &str, span: Span, placeholder: &Placeholder) -> Result<Ident, Flaw> {
    let no_name = || {
        let problem = Problem::NotAName(name.to_owned());
        Flaw::new(placeholder.range.clone(), problem)
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

/// The path that was meant by one that may not start with an argument.
///
/// Input:  `"user.name"`, the arguments `[id, user]`
/// Output: `"user.name"`
fn meant(path: &str, names: &Names) -> Option<String> {
    let (root, steps) = path.split_at(path.find('.').unwrap_or(path.len()));
    if names.find(&normalized(root)).is_some() {
        return Some(path.to_owned());
    }
    let here = names.here();
    let nearest = nearest(root, here.iter().map(String::as_str))?;
    Some(format!("{nearest}{steps}"))
}

fn unknown(root: &str, names: &Names) -> Problem {
    if root == "self" {
        return Problem::NoReceiver;
    }
    let here = names.here();
    match nearest(root, here.iter().map(String::as_str)) {
        None if names.patterns_taken => Problem::Destructured(root.to_owned()),
        nearest => Problem::Unknown(root.to_owned(), nearest.map(ToOwned::to_owned)),
    }
}

fn error(flaw: &Flaw, literal: &LitStr, text: &str, here: &Here<'_>) -> Error {
    let mut lines = vec![flaw.problem.what()];
    let mut inside = None;
    if !flaw.range.is_empty() {
        inside = span(literal, &flaw.range);
        // Where the compiler can point into the string, a drawing would say it twice.
        if inside.is_none() {
            lines.push(draw(text, &flaw.range));
        }
    }
    let rule = flaw.problem.rule(here);
    if !rule.is_empty() {
        lines.push(rule);
    }
    Error::new(inside.unwrap_or_else(|| literal.span()), lines.join("\n"))
}

/// The part of the literal, on compilers that can tell it.
fn span(literal: &LitStr, range: &Range<usize>) -> Option<Span> {
    let token = literal.token();
    let range = in_source(&token.to_string(), &literal.value(), range)?;
    token.subspan(range)
}
