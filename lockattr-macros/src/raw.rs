//! Parses the argument list to names and expressions, and recovers from each error.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use quote::{ToTokens as _, quote};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, ExprLit, ExprPath, Lit, LitStr, Path, Token};

use crate::duration;
use crate::errors::CollectedErrors;
use crate::known::{argument_with, example, meant, names};

/// `ttl = "30s"`
pub(crate) struct Argument {
    /// `None` for a string alone, which is most likely the key.
    pub(crate) name: Option<Ident>,
    /// `None` where an error was collected for it.
    pub(crate) value: Option<Expr>,
}

/// Input:  `key = "sync:<id>", ttl = "30s"`
/// Output: `[Argument { key, "sync:<id>" }, Argument { ttl, "30s" }]`; every error goes to `errors`
pub(crate) fn parse(tokens: TokenStream, errors: &mut CollectedErrors) -> Vec<Argument> {
    let mut list = Vec::new();
    let parser = |input: ParseStream<'_>| {
        while !input.is_empty() {
            match argument(input, errors) {
                Ok(argument) => list.push(argument),
                Err(error) => {
                    errors.push(error);
                    skip_to_comma(input);
                }
            }
            if input.is_empty() {
                break;
            }
            if let Err(error) = comma(input) {
                errors.push(error);
                if !at_argument(input) {
                    skip_to_comma(input);
                    input.parse::<Option<Token![,]>>()?;
                }
            }
        }
        Ok(())
    };
    if let Err(error) = parser.parse2(tokens) {
        errors.push(error);
    }
    list
}

fn argument(input: ParseStream<'_>, errors: &mut CollectedErrors) -> Result<Argument, Error> {
    if !input.peek(Ident::peek_any) {
        return match input.parse::<LitStr>() {
            Ok(text) => {
                let written = text.token();
                // A string alone is most likely the key, which shall not be reported as missing then.
                let is_duration = duration::parse(&text.value(), duration::TTL).is_ok();
                let name = if is_duration { "ttl" } else { "key" };
                let message = format!("arguments have names: write `{name} = {written}`");
                errors.push(Error::new(text.span(), message));
                Ok(Argument {
                    name: is_duration.then(|| Ident::new(name, text.span())),
                    value: None,
                })
            }
            Err(_) => Err(input.error("expected an argument, such as `key = \"sync:<user_id>\"`")),
        };
    }
    let name = input.call(Ident::parse_any)?;
    let ends = input.is_empty() || input.peek(Token![,]);
    if ends && name == "shared" {
        let path = Path::from(name.clone());
        let (attrs, qself) = (Vec::new(), None);
        return Ok(Argument {
            name: Some(name),
            value: Some(Expr::Path(ExprPath { attrs, qself, path })),
        });
    }
    if ends && let Some(error) = bare(&name) {
        errors.push(error);
        let is_policy = argument_with(&name.to_string()).is_some();
        return Ok(Argument {
            name: is_policy.then_some(name),
            value: None,
        });
    }
    let value = value(&name, input).map_err(|error| {
        errors.push(error);
        skip_to_comma(input);
    });
    Ok(Argument {
        name: Some(name),
        value: value.ok(),
    })
}

/// The error for a word without a value that is not an argument.
fn bare(name: &Ident) -> Option<Error> {
    let word = name.to_string();
    let message = if names().any(|name| name == word) {
        return None;
    } else if let Some(argument) = argument_with(&word) {
        format!("`{word}` is a value: write `{argument} = {word}`")
    } else {
        match meant(&word) {
            Some(meant) if meant != "key" => {
                let example = example(meant);
                format!("there is no argument `{word}`: did you mean `{example}`?")
            }
            _ => format!(
                "there is no argument `{word}`: an argument of the function goes into the key, as \
                 in `key = \"sync:<{word}>\"`"
            ),
        }
    };
    Some(Error::new_spanned(name, message))
}

fn value(name: &Ident, input: ParseStream<'_>) -> Result<Expr, Error> {
    let example = example(&name.to_string());
    if input.is_empty() || input.peek(Token![,]) {
        let message = format!("`{name}` needs a value, as in `{example}`");
        return Err(Error::new_spanned(name, message));
    }
    if input.peek(Token![==]) || !input.peek(Token![=]) {
        let found = input.cursor().token_stream().into_iter().next();
        let message = match &found {
            _ if *name == "return" => {
                let value = to_comma(input);
                format!("a value is returned on an occasion: write `on_busy = return {value}`")
            }
            Some(TokenTree::Punct(punct)) if matches!(punct.as_char(), ':' | '=') => {
                format!("an argument is written `{name} = …`, with one `=`")
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
                let written = called(name, group.stream()).unwrap_or(example);
                format!("an argument is written `{written}`")
            }
            _ => format!("an argument is written `{example}`"),
        };
        return Err(Error::new_spanned(found, message));
    }
    let equals: Token![=] = input.parse()?;
    if input.is_empty() || input.peek(Token![,]) {
        let message = format!("`{name} =` is not followed by a value, as in `{example}`");
        return Err(Error::new_spanned(equals, message));
    }
    let value = input.parse().map_err(|error: Error| {
        let message = format!("the value of `{name}` is not an expression: {error}");
        Error::new(error.span(), message)
    })?;
    // `30 s` is one error, not a number without a unit and a missing comma.
    if let Expr::Lit(ExprLit {
        lit: Lit::Int(_) | Lit::Float(_),
        ..
    }) = &value
        && input.peek(Ident::peek_any)
        && !at_argument(input)
    {
        let unit: Ident = input.parse()?;
        let number = value.to_token_stream();
        let message =
            format!("a duration is written in quotes: write `{name} = \"{number}{unit}\"`");
        return Err(Error::new_spanned(quote! { #value #unit }, message));
    }
    Ok(value)
}

/// Input:  `key("a", "b")`
/// Output: `key = ["a", "b"]`
fn called(name: &Ident, arguments: TokenStream) -> Option<String> {
    let arguments = Punctuated::<Expr, Token![,]>::parse_terminated.parse2(arguments);
    let values: Vec<String> = arguments
        .ok()?
        .iter()
        .filter(|value| !matches!(value, Expr::Array(list) if list.elems.is_empty()))
        .map(|value| value.to_token_stream().to_string())
        .collect();
    match &values[..] {
        [value] => Some(format!("{name} = {value}")),
        [_, ..] if *name == "key" => Some(format!("key = [{}]", values.join(", "))),
        _ => None,
    }
}

fn to_comma(input: ParseStream<'_>) -> TokenStream {
    let tokens = input.cursor().token_stream().into_iter();
    let is_comma = |token: &TokenTree| matches!(token, TokenTree::Punct(p) if p.as_char() == ',');
    tokens.take_while(|token| !is_comma(token)).collect()
}

fn comma(input: ParseStream<'_>) -> Result<(), Error> {
    if input.peek(Token![,]) {
        input.parse::<Token![,]>()?;
        Ok(())
    } else {
        Err(input.error("expected `,` between arguments"))
    }
}

fn at_argument(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    ahead.call(Ident::parse_any).is_ok() && ahead.peek(Token![=])
}

fn skip_to_comma(input: ParseStream<'_>) {
    while !input.is_empty() && !input.peek(Token![,]) {
        if input.parse::<TokenTree>().is_err() {
            break;
        }
    }
}
