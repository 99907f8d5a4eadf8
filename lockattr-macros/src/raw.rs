//! The argument list as written: names and expressions, read past every mistake.

use proc_macro2::{Delimiter, Ident, TokenStream, TokenTree};
use syn::ext::IdentExt as _;
use syn::parse::{ParseStream, Parser as _};
use syn::{Error, Expr, LitStr, Token};

use crate::faults::Faults;

/// `ttl = "30s"`
pub(crate) struct Argument {
    /// Nothing for a string without a name.
    pub(crate) name: Option<Ident>,
    /// Nothing where its error has been told.
    pub(crate) value: Option<Expr>,
}

/// Input:  `key = "sync:<id>", ttl = "30s"`
/// Output: `[Argument { key, "sync:<id>" }, Argument { ttl, "30s" }]`; every error goes to `faults`
pub(crate) fn parse(tokens: TokenStream, faults: &mut Faults) -> Vec<Argument> {
    let mut list = Vec::new();
    let parser = |input: ParseStream<'_>| {
        while !input.is_empty() {
            match argument(input, faults) {
                Ok(argument) => list.push(argument),
                Err(error) => {
                    faults.push(error);
                    skip_to_comma(input);
                }
            }
            if input.is_empty() {
                break;
            }
            if let Err(error) = comma(input) {
                faults.push(error);
                if !at_argument(input) {
                    skip_to_comma(input);
                    input.parse::<Option<Token![,]>>()?;
                }
            }
        }
        Ok(())
    };
    if let Err(error) = parser.parse2(tokens) {
        faults.push(error);
    }
    list
}

fn argument(input: ParseStream<'_>, faults: &mut Faults) -> Result<Argument, Error> {
    if !input.peek(Ident::peek_any) {
        // A string alone is most likely the key, and not a reason to miss one as well.
        return match input.parse::<LitStr>() {
            Ok(text) => {
                let written = text.token();
                let message = format!("arguments have names: write `key = {written}`");
                faults.push(Error::new(text.span(), message));
                Ok(Argument {
                    name: None,
                    value: None,
                })
            }
            Err(_) => Err(input.error("expected an argument, such as `key = \"sync:<user_id>\"`")),
        };
    }
    let name = input.call(Ident::parse_any)?;
    let value = value(&name, input).map_err(|error| {
        faults.push(error);
        skip_to_comma(input);
    });
    Ok(Argument {
        name: Some(name),
        value: value.ok(),
    })
}

fn value(name: &Ident, input: ParseStream<'_>) -> Result<Expr, Error> {
    if input.is_empty() || input.peek(Token![,]) {
        let message = format!("`{name}` needs a value: `{name} = …`");
        return Err(Error::new_spanned(name, message));
    }
    if input.peek(Token![==]) || !input.peek(Token![=]) {
        let found = input.cursor().token_stream().into_iter().next();
        let message = match &found {
            Some(TokenTree::Punct(punct)) if matches!(punct.as_char(), ':' | '=') => {
                format!("an argument is written `{name} = …`, with one `=`")
            }
            Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
                format!("an argument is written `{name} = {}`", group.stream())
            }
            _ => format!("an argument is written `{name} = …`"),
        };
        return Err(Error::new_spanned(found, message));
    }
    let equals: Token![=] = input.parse()?;
    if input.is_empty() || input.peek(Token![,]) {
        let message = format!("`{name} =` is not followed by a value");
        return Err(Error::new_spanned(equals, message));
    }
    input.parse().map_err(|error: Error| {
        let message = format!("the value of `{name}` is not an expression: {error}");
        Error::new(error.span(), message)
    })
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
