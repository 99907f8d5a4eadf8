//! Parses the value of each kind of argument.

use proc_macro2::Ident;
use quote::ToTokens as _;
use syn::{Error, Expr, ExprLit, ExprReturn, ExprUnary, Lit, LitStr, Path, UnOp};

use crate::duration::{self, Bounds};
use crate::suggest::nearest;

/// The value of an argument that is a duration.
pub(crate) enum DurationValue {
    Millis(u64),
    /// Of type `Duration`.
    Expr(Expr),
}

/// The expression without parentheses, and without the invisible groups that `macro_rules!` adds.
pub(crate) fn ungrouped(value: Expr) -> Expr {
    match value {
        Expr::Group(group) => ungrouped(*group.expr),
        Expr::Paren(paren) => ungrouped(*paren.expr),
        other => other,
    }
}

/// One key, or a list of them.
pub(crate) fn keys(value: &Expr) -> Result<Vec<LitStr>, Error> {
    let Expr::Array(list) = value else {
        return Ok(vec![key(value)?]);
    };
    if list.elems.is_empty() {
        return Err(Error::new_spanned(
            value,
            "the list of keys is empty: it names what is locked, as in \
             `key = [\"account:<from>\", \"account:<to>\"]`",
        ));
    }
    let keys = list.elems.iter().cloned().map(ungrouped);
    keys.map(|value| key(&value)).collect()
}

fn key(value: &Expr) -> Result<LitStr, Error> {
    let example = "such as `key = \"sync:<user_id>\"`";
    let message = match value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) if text.suffix().is_empty() => {
            return Ok(text.clone());
        }
        Expr::Lit(ExprLit {
            lit: Lit::Int(_) | Lit::Float(_) | Lit::Bool(_) | Lit::Char(_),
            ..
        }) => {
            let text = value.to_token_stream().to_string();
            format!(
                "a key is a string: write `key = \"{}\"`",
                text.trim_matches('\'')
            )
        }
        Expr::Lit(_) => format!("a key is a plain string literal, {example}"),
        Expr::Macro(expr) => {
            let name = expr.mac.path.to_token_stream().to_string().replace(' ', "");
            format!(
                "a key is a string literal, {example}\nwhat `{name}!` makes is not known yet when \
                 the attribute reads it; values go into the key as placeholders"
            )
        }
        _ => format!(
            "a key is a string literal, {example}\nthe attribute reads it when the program is \
             compiled; values go into the key as placeholders"
        ),
    };
    Err(Error::new_spanned(value, message))
}

pub(crate) fn duration(name: &str, value: Expr, bounds: Bounds) -> Result<DurationValue, Error> {
    let rule = format!(
        "`{name}` is a duration in quotes, such as \"500ms\", \"30s\" or \"1m 30s\", {}, or an \
         expression of type `Duration`",
        bounds.rule
    );
    let number = match &value {
        Expr::Unary(ExprUnary {
            op: UnOp::Neg(_),
            expr,
            ..
        }) => &**expr,
        other => other,
    };
    let message = match number {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => {
            let text = text.value();
            let error = match duration::parse(&text, bounds) {
                Ok(millis) => return Ok(DurationValue::Millis(millis)),
                Err(error) => error,
            };
            let likely = match error.likely {
                Some(likely) => format!("; did you mean \"{likely}\"?"),
                None => String::new(),
            };
            format!("`{name} = {text:?}`: {}{likely}\n{rule}", error.message)
        }
        Expr::Lit(ExprLit {
            lit: lit @ (Lit::Int(_) | Lit::Float(_)),
            ..
        }) => format!("{}\n{rule}", without_quotes(name, lit, bounds)),
        Expr::Lit(_) => rule,
        _ => return Ok(DurationValue::Expr(value)),
    };
    Err(Error::new_spanned(value, message))
}

/// Input:  `"ttl"`, `30m`
/// Output: "a duration is written in quotes: write `ttl = "30m"`"
fn without_quotes(name: &str, number: &Lit, bounds: Bounds) -> String {
    let (digits, suffix) = match number {
        Lit::Int(number) => (number.base10_digits(), number.suffix()),
        Lit::Float(number) => (number.base10_digits(), number.suffix()),
        _ => ("", ""),
    };
    // The suffix of `30u64` is a type, not a unit.
    let is_type = suffix.starts_with(['u', 'i', 'f']) && !suffix.starts_with("us");
    if suffix.is_empty() || is_type {
        let text = format!("{digits}s");
        return match duration::parse(&text, bounds) {
            Ok(_) => format!("a number has no unit; did you mean \"{text}\"?"),
            Err(_) => "a number has no unit".into(),
        };
    }
    let text = format!("{digits}{suffix}");
    let likely = match duration::parse(&text, bounds) {
        Ok(_) => Some(text),
        Err(error) => error.likely,
    };
    let likely = likely.map_or_else(String::new, |likely| {
        format!(": write `{name} = {likely:?}`")
    });
    format!("a duration is written in quotes{likely}")
}

/// Input:  `cancel("2s")`
/// Output: `"2s"`, or `None` for any other expression
pub(crate) fn grace(value: &Expr) -> Result<Option<Expr>, Error> {
    let Expr::Call(call) = value else {
        return Ok(None);
    };
    if !is(&call.func, "cancel") {
        return Ok(None);
    }
    let mut arguments = call.args.iter();
    match (arguments.next(), arguments.next()) {
        (Some(grace), None) => Ok(Some(grace.clone())),
        _ => Err(Error::new_spanned(
            value,
            "`cancel(…)` has one argument, how long the body may wind down after the loss: \
             `on_lost = cancel(\"2s\")`",
        )),
    }
}

pub(crate) fn permits(value: Expr) -> Result<Expr, Error> {
    number("permits", "how many permits a key has", value)
}

pub(crate) fn weight(value: Expr) -> Result<Expr, Error> {
    number("weight", "how many of the permits a holder takes", value)
}

fn number(name: &str, what: &str, value: Expr) -> Result<Expr, Error> {
    const BOUNDS: std::ops::RangeInclusive<u32> = 1..=1_000_000;
    let rule =
        format!("`{name}` is {what}: an integer from 1 to 1000000, or an expression of type `u32`");
    let message = match &value {
        Expr::Lit(ExprLit {
            lit: Lit::Int(number),
            ..
        }) => match number.base10_parse::<u32>() {
            Ok(number) if BOUNDS.contains(&number) => return Ok(value),
            _ => rule,
        },
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) if text
            .value()
            .parse()
            .is_ok_and(|number: u32| BOUNDS.contains(&number)) =>
        {
            format!("write `{name} = {}`, without quotes\n{rule}", text.value())
        }
        Expr::Lit(_)
        | Expr::Unary(ExprUnary {
            op: UnOp::Neg(_), ..
        }) => rule,
        _ => return Ok(value),
    };
    Err(Error::new_spanned(value, message))
}

/// The number that is written out, if one is.
pub(crate) fn written(value: &Expr) -> Option<u32> {
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Int(number),
            ..
        }) => number.base10_parse().ok(),
        _ => None,
    }
}

/// A word that stands alone, for which the word itself was put.
pub(crate) fn alone(name: &str, value: &Expr) -> Result<bool, Error> {
    match value {
        Expr::Path(path) if path.path.is_ident(name) => Ok(true),
        _ => Err(Error::new_spanned(
            value,
            format!("`{name}` has no value: write `{name}` alone, or leave it out"),
        )),
    }
}

/// One of an argument's words, or a value to return.
pub(crate) enum Chosen {
    Word(&'static str),
    Return(Box<Expr>),
}

pub(crate) fn policy(name: &str, value: Expr, words: &[&'static str]) -> Result<Chosen, Error> {
    let word = word(&value);
    if let Expr::Return(ExprReturn {
        expr: Some(value), ..
    }) = value
    {
        return Ok(Chosen::Return(value));
    }
    if let Some(word) = words.iter().find(|known| word.as_deref() == Some(**known)) {
        return Ok(Chosen::Word(word));
    }
    let nearest = |written: &str| nearest(written, words.iter().copied());
    let quoted: Vec<_> = words.iter().map(|word| format!("`{word}`")).collect();
    let rule = format!("`{name}` is {} or `return EXPR`", quoted.join(", "));
    let message = match &value {
        Expr::Return(_) => {
            format!("`return` is followed by the value to give back, such as `return ()`\n{rule}")
        }
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => {
            let text = text.value();
            let returns = syn::parse_str(&text)
                .is_ok_and(|value| matches!(value, Expr::Return(value) if value.expr.is_some()));
            match nearest(&text) {
                Some(word) => format!("write `{name} = {word}`, without quotes\n{rule}"),
                None if returns => format!("write `{name} = {text}`, without quotes\n{rule}"),
                None if waits(&text) => waiting(name, "\"5s\"", &rule),
                None => rule,
            }
        }
        Expr::Call(call) if is(&call.func, "wait") => {
            let time = match call.args.first() {
                Some(time) => time.to_token_stream().to_string(),
                None => "\"5s\"".into(),
            };
            waiting(name, &time, &rule)
        }
        _ => match word.as_deref().and_then(nearest) {
            Some(word) => format!("did you mean `{name} = {word}`?\n{rule}"),
            None if word.as_deref().is_some_and(waits) => waiting(name, "\"5s\"", &rule),
            // A constant or an expression can only be meant as the value to return.
            None if is_value(&value) => {
                let value = value.to_token_stream().to_string().replace(" :: ", "::");
                format!("a value is given back by `return`: `{name} = return {value}`\n{rule}")
            }
            None => {
                let value = value.to_token_stream();
                format!("there is no `{name} = {value}`\n{rule}")
            }
        },
    };
    Err(Error::new_spanned(value, message))
}

/// Whether a policy's word asks to wait, which is no policy but an argument.
fn waits(word: &str) -> bool {
    ["wait", "retry", "block", "queue"].contains(&word)
}

fn waiting(name: &str, time: &str, rule: &str) -> String {
    format!(
        "waiting is an argument of its own: write `wait = {time}`, and what follows after that time \
         as `{name}`\n{rule}"
    )
}

/// The last name of a path, or the keyword `continue`, which is a policy here.
fn word(value: &Expr) -> Option<String> {
    match value {
        Expr::Path(path) => Some(path.path.segments.last()?.ident.to_string()),
        Expr::Continue(word) if word.label.is_none() => Some("continue".into()),
        _ => None,
    }
}

fn is(value: &Expr, name: &str) -> bool {
    matches!(value, Expr::Path(path) if path.path.is_ident(name))
}

fn is_value(value: &Expr) -> bool {
    match value {
        Expr::Path(path) => path
            .path
            .segments
            .last()
            .is_some_and(|last| last.ident.to_string().starts_with(char::is_uppercase)),
        Expr::Continue(_) | Expr::Break(_) | Expr::Assign(_) => false,
        _ => true,
    }
}

pub(crate) fn flag(name: &str, value: &Expr) -> Result<bool, Error> {
    let rule = format!("`{name}` is `true` or `false`");
    let written = match value {
        Expr::Lit(ExprLit {
            lit: Lit::Bool(value),
            ..
        }) => return Ok(value.value),
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => text.value(),
        other => other.to_token_stream().to_string(),
    };
    let quotes = if matches!(
        value,
        Expr::Lit(ExprLit {
            lit: Lit::Str(_),
            ..
        })
    ) {
        ", without quotes"
    } else {
        ""
    };
    let likely = match &*written.to_lowercase() {
        "true" | "yes" | "on" | "1" => format!("write `{name} = true`{quotes}\n"),
        "false" | "no" | "off" | "0" => format!("write `{name} = false`{quotes}\n"),
        _ => String::new(),
    };
    Err(Error::new_spanned(value, likely + &rule))
}

pub(crate) fn bind(value: &Expr) -> Result<Ident, Error> {
    let rule = "`bind` is a name for the `&Lease` inside the body, such as `bind = lease`";
    let message = match value {
        Expr::Path(path) => match path.path.get_ident() {
            Some(name) if name != "self" && name != "Self" => return Ok(name.clone()),
            _ => rule.to_owned(),
        },
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => match syn::parse_str::<Ident>(&text.value()) {
            Ok(name) => format!("write `bind = {name}`, without quotes\n{rule}"),
            Err(_) => rule.to_owned(),
        },
        Expr::Infer(_) => format!("leave `bind` out where the lease is not used\n{rule}"),
        Expr::Reference(inner) => match bind(&inner.expr) {
            Ok(name) => format!("write `bind = {name}`\n{rule}"),
            Err(_) => rule.to_owned(),
        },
        _ => rule.to_owned(),
    };
    Err(Error::new_spanned(value, message))
}

pub(crate) fn client(value: Expr) -> Result<Expr, Error> {
    if let Expr::Lit(_) = &value {
        return Err(Error::new_spanned(
            value,
            "`client` is an expression of type `Client`, such as `client = self.locks`\na URL is \
             given to `Client::connect`, once for the whole program",
        ));
    }
    Ok(value)
}

pub(crate) fn krate(value: &Expr) -> Result<Path, Error> {
    let rule = "`crate` is the whole path to lockattr, such as `crate = ::my_locks` or \
                `crate = crate::prelude::lockattr`";
    let message = match value {
        Expr::Path(expr) if expr.qself.is_none() => {
            let path = &expr.path;
            let first = path.segments.first().map(|first| first.ident.to_string());
            let whole = path.leading_colon.is_some()
                || matches!(
                    first.as_deref(),
                    Some("crate" | "self" | "super" | "$crate")
                );
            if whole {
                return Ok(path.clone());
            }
            let written = path.to_token_stream().to_string().replace(' ', "");
            format!(
                "this path means another thing in each module: write `crate = ::{written}` for a \
                 dependency, or `crate = crate::{written}` for a module of this crate"
            )
        }
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => match text.parse::<Path>() {
            Ok(path) => {
                let path = path.to_token_stream().to_string().replace(' ', "");
                let whole = ["::", "crate", "self", "super"]
                    .iter()
                    .any(|start| path.starts_with(start));
                let colons = if whole { "" } else { "::" };
                format!("write `crate = {colons}{path}`, without quotes\n{rule}")
            }
            Err(_) => rule.to_owned(),
        },
        _ => rule.to_owned(),
    };
    Err(Error::new_spanned(value, message))
}
