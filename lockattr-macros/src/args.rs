//! The arguments of the attribute: each is checked alone, then against the others.

use proc_macro2::{Ident, Span, TokenStream};
use syn::spanned::Spanned as _;
use syn::{Error, Expr, LitStr, Path};

use crate::duration;
use crate::errors::CollectedErrors;
use crate::known::{meant, unknown};
use crate::raw::{self, Argument};
use crate::relations;
use crate::values::{self, Chosen, DurationValue, ungrouped};

/// The arguments of one attribute. An argument with an error keeps its default.
pub(crate) struct Args {
    /// One, or several that are taken together.
    pub(crate) keys: Vec<LitStr>,
    pub(crate) ttl: Option<DurationValue>,
    pub(crate) wait: Option<DurationValue>,
    pub(crate) on_busy: OnBusy,
    pub(crate) on_unavailable: OnUnavailable,
    pub(crate) on_lost: OnLost,
    pub(crate) renew: bool,
    pub(crate) min_hold: Option<DurationValue>,
    pub(crate) max_hold: Option<DurationValue>,
    pub(crate) once: Option<DurationValue>,
    pub(crate) on_done: OnBusy,
    /// Of type `u32`.
    pub(crate) permits: Option<Expr>,
    /// The same.
    pub(crate) weight: Option<Expr>,
    pub(crate) shared: bool,
    pub(crate) bind: Option<Ident>,
    pub(crate) client: Option<Expr>,
    pub(crate) redact: Option<bool>,
    pub(crate) krate: Option<Path>,
}

/// What a call returns that does not run its body: the value of `on_busy` and `on_done`.
pub(crate) enum OnBusy {
    Skip,
    Error,
    Return(Box<Expr>),
}

pub(crate) enum OnUnavailable {
    Skip,
    Error,
    Run,
    Local,
    Return(Box<Expr>),
}

pub(crate) enum OnLost {
    /// After a grace, where there is one.
    Cancel(Option<DurationValue>),
    Continue,
    Return(Box<Expr>),
}

impl Args {
    /// Input:  `key = "sync:<id>", on_busy = skip`
    /// Output: `Args { key: "sync:<id>", on_busy: Skip }`; every error goes to `errors`
    pub(crate) fn new(tokens: TokenStream, attribute: Span, errors: &mut CollectedErrors) -> Self {
        let mut args = Self {
            keys: Vec::new(),
            ttl: None,
            wait: None,
            on_busy: OnBusy::Error,
            on_unavailable: OnUnavailable::Error,
            on_lost: OnLost::Cancel(None),
            renew: true,
            min_hold: None,
            max_hold: None,
            once: None,
            on_done: OnBusy::Skip,
            permits: None,
            weight: None,
            shared: false,
            bind: None,
            client: None,
            redact: None,
            krate: None,
        };
        let mut seen = Vec::new();
        for Argument { name, value } in raw::parse(tokens, errors) {
            let Some(name) = name else {
                seen.push(("key".to_owned(), attribute));
                continue;
            };
            let written = name.to_string();
            if seen.iter().any(|(earlier, _)| *earlier == written) {
                let message = format!("`{written}` is given twice");
                errors.push(Error::new_spanned(&name, message));
                continue;
            }
            let span = value.as_ref().map_or(attribute, Expr::span);
            if let Some(value) = value {
                errors.keep(args.set(&name, ungrouped(value)));
            }
            // A misspelt `key` is one error: no missing key is reported beside it.
            let meant = meant(&written).unwrap_or(&written).to_owned();
            seen.push((if meant == "key" { meant } else { written }, span));
        }
        let given = |name: &str| seen.iter().find(|(seen, _)| seen == name);
        if given("key").is_none() {
            errors.push(Error::new(
                attribute,
                "a key is missing: it names what is locked, as in `key = \"sync:<user_id>\"`",
            ));
        }
        if given("on_done").is_some() && given("once").is_none() {
            let message = "`on_done` is for `once`: without it no work counts as done";
            let span = given("on_done").map_or(attribute, |(_, span)| *span);
            errors.push(Error::new(span, message));
        }
        for (name, message) in relations::contradictions(&args) {
            let span = given(name).map_or(attribute, |(_, span)| *span);
            errors.push(Error::new(span, message));
        }
        args
    }

    fn set(&mut self, name: &Ident, value: Expr) -> Result<(), Error> {
        match &*name.to_string() {
            "key" => self.keys = values::keys(&value)?,
            "ttl" => self.ttl = Some(values::duration("ttl", value, duration::TTL)?),
            "wait" => self.wait = Some(values::duration("wait", value, duration::WAIT)?),
            "on_busy" => {
                self.on_busy = match values::policy("on_busy", value, &["skip", "error"])? {
                    Chosen::Return(value) => OnBusy::Return(value),
                    Chosen::Word("skip") => OnBusy::Skip,
                    Chosen::Word(_) => OnBusy::Error,
                }
            }
            "on_done" => {
                self.on_done = match values::policy("on_done", value, &["skip", "error"])? {
                    Chosen::Return(value) => OnBusy::Return(value),
                    Chosen::Word("error") => OnBusy::Error,
                    Chosen::Word(_) => OnBusy::Skip,
                }
            }
            "on_unavailable" => {
                let words = &["error", "skip", "run", "local"];
                self.on_unavailable = match values::policy("on_unavailable", value, words)? {
                    Chosen::Return(value) => OnUnavailable::Return(value),
                    Chosen::Word("skip") => OnUnavailable::Skip,
                    Chosen::Word("run") => OnUnavailable::Run,
                    Chosen::Word("local") => OnUnavailable::Local,
                    Chosen::Word(_) => OnUnavailable::Error,
                }
            }
            "on_lost" => self.on_lost = on_lost(value)?,
            "renew" => self.renew = values::flag("renew", &value)?,
            "min_hold" => {
                self.min_hold = Some(values::duration("min_hold", value, duration::PERIOD)?);
            }
            "max_hold" => {
                self.max_hold = Some(values::duration("max_hold", value, duration::PERIOD)?);
            }
            "once" => self.once = Some(values::duration("once", value, duration::PERIOD)?),
            "permits" => self.permits = Some(values::permits(value)?),
            "weight" => self.weight = Some(values::weight(value)?),
            "shared" => self.shared = values::alone("shared", &value)?,
            "bind" => self.bind = Some(values::bind(&value)?),
            "client" => self.client = Some(values::client(value)?),
            "redact" => self.redact = Some(values::flag("redact", &value)?),
            "crate" => self.krate = Some(values::krate(&value)?),
            _ => return Err(unknown(name)),
        }
        Ok(())
    }
}

/// `cancel`, `cancel("2s")`, `continue` or `return EXPR`
fn on_lost(value: Expr) -> Result<OnLost, Error> {
    if let Some(grace) = values::grace(&value)? {
        let grace = values::duration("cancel(…)", ungrouped(grace), duration::PERIOD)?;
        return Ok(OnLost::Cancel(Some(grace)));
    }
    Ok(
        match values::policy("on_lost", value, &["cancel", "continue"])? {
            Chosen::Return(value) => OnLost::Return(value),
            Chosen::Word("continue") => OnLost::Continue,
            Chosen::Word(_) => OnLost::Cancel(None),
        },
    )
}

// The path also holds where a fuzz target includes this file.
#[cfg(test)]
#[path = "args/tests.rs"]
mod tests;
