//! The arguments, checked: each against its kind, then against each other.

use std::time::Duration;

use proc_macro2::{Ident, Span, TokenStream};
use syn::spanned::Spanned as _;
use syn::{Error, Expr, LitStr, Path};

use crate::duration;
use crate::faults::Faults;
use crate::known::{meant, unknown};
use crate::raw::{self, Argument};
use crate::values::{self, Chosen, Length, ungrouped};

/// The arguments of one attribute, as far as they are right.
pub(crate) struct Args {
    /// One, or several that are taken together.
    pub(crate) keys: Vec<LitStr>,
    pub(crate) ttl: Option<Length>,
    pub(crate) wait: Option<Length>,
    pub(crate) on_busy: OnBusy,
    pub(crate) on_unavailable: OnUnavailable,
    pub(crate) on_lost: OnLost,
    pub(crate) renew: bool,
    pub(crate) min_hold: Option<Length>,
    pub(crate) max_hold: Option<Length>,
    pub(crate) once: Option<Length>,
    pub(crate) on_done: OnBusy,
    /// Of type `u32`.
    pub(crate) permits: Option<Expr>,
    pub(crate) bind: Option<Ident>,
    pub(crate) client: Option<Expr>,
    pub(crate) krate: Option<Path>,
}

/// What a call that does not run answers: `on_busy`, `on_done`.
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
    Cancel(Option<Length>),
    Continue,
    Return(Box<Expr>),
}

impl Args {
    /// Input:  `key = "sync:<id>", on_busy = skip`
    /// Output: `Args { key: "sync:<id>", on_busy: Skip }`; every error goes to `faults`
    pub(crate) fn new(tokens: TokenStream, attribute: Span, faults: &mut Faults) -> Self {
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
            bind: None,
            client: None,
            krate: None,
        };
        let mut seen = Vec::new();
        for Argument { name, value } in raw::parse(tokens, faults) {
            let Some(name) = name else {
                seen.push(("key".to_owned(), attribute));
                continue;
            };
            let written = name.to_string();
            if seen.iter().any(|(earlier, _)| *earlier == written) {
                let message = format!("`{written}` is given twice");
                faults.push(Error::new_spanned(&name, message));
                continue;
            }
            let span = value.as_ref().map_or(attribute, Expr::span);
            if let Some(value) = value {
                faults.keep(args.set(&name, ungrouped(value)));
            }
            // A slip of `key` is not a missing key as well.
            let meant = meant(&written).unwrap_or(&written).to_owned();
            seen.push((if meant == "key" { meant } else { written }, span));
        }
        let given = |name: &str| seen.iter().find(|(seen, _)| seen == name);
        if given("key").is_none() {
            faults.push(Error::new(
                attribute,
                "a key is missing: it names what is locked, as in `key = \"sync:<user_id>\"`",
            ));
        }
        if given("on_done").is_some() && given("once").is_none() {
            let message = "`on_done` is for `once`: without it no work counts as done";
            let span = given("on_done").map_or(attribute, |(_, span)| *span);
            faults.push(Error::new(span, message));
        }
        let relations = args.relations();
        for (name, message) in relations {
            let span = given(name).map_or(attribute, |(_, span)| *span);
            faults.push(Error::new(span, message));
        }
        args
    }

    /// What can be seen of arguments that contradict each other, and at which of them.
    fn relations(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let mut refuse = |name, message: String| found.push((name, message));
        if !self.renew && matches!(self.on_lost, OnLost::Continue) {
            refuse(
                "on_lost",
                "`on_lost = continue` with `renew = false` holds no lock: nobody renews the lease, \
                 and the body runs on after its end\nleave out one of the two"
                    .to_owned(),
            );
        }
        let millis = |length: &Option<Length>| match length {
            Some(Length::Millis(millis)) => Some(*millis),
            _ => None,
        };
        let shown = |millis| humantime::format_duration(Duration::from_millis(millis));
        if let (Some(min), Some(max)) = (millis(&self.min_hold), millis(&self.max_hold))
            && min > max
        {
            refuse(
                "min_hold",
                format!(
                    "`min_hold` is longer than `max_hold`: the key would stay closed for {}, and \
                     the lease ends after {}",
                    shown(min),
                    shown(max)
                ),
            );
        }
        if let (false, Some(ttl), Some(max)) =
            (self.renew, millis(&self.ttl), millis(&self.max_hold))
            && max > ttl
        {
            refuse(
                "max_hold",
                format!(
                    "`max_hold` is never reached: with `renew = false` the lease ends with its ttl, \
                     after {}\nraise `ttl`, or leave out one of the two",
                    shown(ttl)
                ),
            );
        }
        if self.max_hold.is_some() && matches!(self.on_lost, OnLost::Continue) {
            refuse(
                "on_lost",
                "`on_lost = continue` with `max_hold` never ends the body: `max_hold` ends the \
                 lease, and `continue` runs on without it\nleave out one of the two"
                    .to_owned(),
            );
        }
        if self.once.is_some() && self.permits.is_some() {
            refuse(
                "permits",
                "`once` and `permits` contradict each other: work that is done is done for all \
                 holders of the key\nleave out one of the two"
                    .to_owned(),
            );
        }
        if self.keys.len() > 1 && self.permits.is_some() {
            refuse(
                "permits",
                "`permits` are of one key, and there are several\nlock the key that has several \
                 holders in a function of its own"
                    .to_owned(),
            );
        }
        found
    }

    fn set(&mut self, name: &Ident, value: Expr) -> Result<(), Error> {
        match &*name.to_string() {
            "key" => self.keys = values::keys(&value)?,
            "ttl" => self.ttl = Some(values::length("ttl", value, duration::TTL)?),
            "wait" => self.wait = Some(values::length("wait", value, duration::WAIT)?),
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
                self.min_hold = Some(values::length("min_hold", value, duration::LENGTH)?);
            }
            "max_hold" => {
                self.max_hold = Some(values::length("max_hold", value, duration::LENGTH)?);
            }
            "once" => self.once = Some(values::length("once", value, duration::LENGTH)?),
            "permits" => self.permits = Some(values::permits(value)?),
            "bind" => self.bind = Some(values::bind(&value)?),
            "client" => self.client = Some(values::client(value)?),
            "crate" => self.krate = Some(values::krate(&value)?),
            _ => return Err(unknown(name)),
        }
        Ok(())
    }
}

/// `cancel`, `cancel("2s")`, `continue` or `return EXPR`
fn on_lost(value: Expr) -> Result<OnLost, Error> {
    if let Some(grace) = values::grace(&value)? {
        let grace = values::length("cancel(…)", ungrouped(grace), duration::LENGTH)?;
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::known::{MEANINGS, example, names};

    fn parse(text: &str) -> (Args, Vec<String>) {
        let mut faults = Faults::default();
        let tokens = text.parse().unwrap();
        let args = Args::new(tokens, Span::call_site(), &mut faults);
        (args, faults.messages())
    }

    #[test]
    fn every_argument() {
        let (args, messages) = parse(
            r#"key = "a:<id>", ttl = "1.5s", wait = limits.wait, on_busy = skip,
            on_unavailable = return Err(down(id, &name)), on_lost = continue, renew = true,
            bind = r#lease, client = self.locks, crate = crate::locks,"#,
        );
        assert_eq!(messages, [""; 0]);
        assert_eq!(args.keys[0].value(), "a:<id>");
        assert!(matches!(args.ttl, Some(Length::Millis(1500))));
        assert!(matches!(args.wait, Some(Length::Expr(_))));
        assert!(matches!(args.on_busy, OnBusy::Skip));
        assert!(matches!(args.on_unavailable, OnUnavailable::Return(_)));
        assert!(matches!(args.on_lost, OnLost::Continue));
        assert!(args.renew);
        assert_eq!(args.bind.unwrap(), "r#lease");
        assert!(args.client.is_some());
        assert!(args.krate.is_some());
    }

    #[test]
    fn the_defaults() {
        let (args, messages) = parse(r#"key = "a""#);
        assert_eq!(messages, [""; 0]);
        assert!(args.ttl.is_none() && args.wait.is_none() && args.renew);
        assert!(matches!(args.on_busy, OnBusy::Error));
        assert!(matches!(args.on_unavailable, OnUnavailable::Error));
        assert!(matches!(args.on_lost, OnLost::Cancel(None)));
        assert!(args.bind.is_none() && args.client.is_none() && args.krate.is_none());
    }

    /// The first line of each error, which says what is wrong and what was meant; what is proposed is
    /// accepted.
    fn check(slips: &[(&str, &[&str])]) {
        for (text, expected) in slips {
            let (_, messages) = parse(text);
            let first: Vec<&str> = messages
                .iter()
                .filter_map(|all| all.lines().next())
                .collect();
            assert_eq!(first, *expected, "{text}");
            for advice in first.iter().flat_map(|line| line.split('`')) {
                if advice.contains(" = ") && !advice.contains(['…', 'X']) && !text.contains(advice)
                {
                    assert_eq!(parse(&advised(advice)).1, [""; 0], "{text}");
                }
            }
        }
    }

    #[test]
    fn every_slip_once() {
        check(&[
            (
                "",
                &["a key is missing: it names what is locked, as in `key = \"sync:<user_id>\"`"],
            ),
            (r#""a""#, &["arguments have names: write `key = \"a\"`"]),
            (
                r#"kye = "a""#,
                &["there is no argument `kye`: did you mean `key`?"],
            ),
            (
                r#"name = "a""#,
                &["there is no argument `name`: did you mean `key`?"],
            ),
            (r#"key = "a", key = "b""#, &["`key` is given twice"]),
            (
                r#"key = "a", renew"#,
                &["`renew` needs a value, as in `renew = true`"],
            ),
            (
                r#"key: "a""#,
                &["an argument is written `key = …`, with one `=`"],
            ),
            (
                r#"key = "a" ttl = "5s""#,
                &["expected `,` between arguments"],
            ),
            (
                r#"key = "a", ttl = "30""#,
                &["`ttl = \"30\"`: a number needs its unit; did you mean \"30s\"?"],
            ),
            (
                r#"key = "a", ttl = 30"#,
                &["a number has no unit; did you mean \"30s\"?"],
            ),
            (
                r#"key = "a", ttl = -5"#,
                &["a number has no unit; did you mean \"5s\"?"],
            ),
            (
                r#"key = "a", on_busy = "skip""#,
                &["write `on_busy = skip`, without quotes"],
            ),
            (
                r#"key = "a", on_busy = "return None""#,
                &["write `on_busy = return None`, without quotes"],
            ),
            (
                r#"key = "a", on_busy = Skip"#,
                &["did you mean `on_busy = skip`?"],
            ),
            (
                r#"key = "a", on_busy = OnBusy::Skip"#,
                &["did you mean `on_busy = skip`?"],
            ),
            (
                r#"key = "a", on_busy = None"#,
                &["a value is given back by `return`: `on_busy = return None`"],
            ),
            (
                r#"key = "a", on_busy = false"#,
                &["a value is given back by `return`: `on_busy = return false`"],
            ),
            (
                r#"key = "a", on_unavailable = runs"#,
                &["did you mean `on_unavailable = run`?"],
            ),
            (
                r#"key = "a", on_lost = cancle"#,
                &["did you mean `on_lost = cancel`?"],
            ),
            (r#"key = "a", renew = no"#, &["write `renew = false`"]),
            (r#"key = "a", bind = &lease"#, &["write `bind = lease`"]),
            (
                r#"key = "a", jitter = "5s""#,
                &["there is no argument `jitter`"],
            ),
            (
                r#"key = "a", tll = "5s", on_busy = Skip, renew = 1"#,
                &[
                    "there is no argument `tll`: did you mean `ttl`?",
                    "did you mean `on_busy = skip`?",
                    "write `renew = true`",
                ],
            ),
        ]);
    }

    #[test]
    fn durations_without_quotes() {
        check(&[
            (
                r#"key = "a", ttl = 30m"#,
                &["a duration is written in quotes: write `ttl = \"30m\"`"],
            ),
            (
                r#"key = "a", wait = 1.5h"#,
                &["a duration is written in quotes: write `wait = \"1.5h\"`"],
            ),
            (
                r#"key = "a", ttl = 30M"#,
                &["a duration is written in quotes: write `ttl = \"30m\"`"],
            ),
            (
                r#"key = "a", ttl = 30u64"#,
                &["a number has no unit; did you mean \"30s\"?"],
            ),
            (
                r#"key = "a", ttl = 30 s, renew = no"#,
                &[
                    "a duration is written in quotes: write `ttl = \"30s\"`",
                    "write `renew = false`",
                ],
            ),
        ]);
    }

    #[test]
    fn values_without_their_argument() {
        check(&[
            (
                r#"key = "a", skip"#,
                &["`skip` is a value: write `on_busy = skip`"],
            ),
            (
                r#"key = "a", local"#,
                &["`local` is a value: write `on_unavailable = local`"],
            ),
            (
                r#"key = "a", continue"#,
                &["`continue` is a value: write `on_lost = continue`"],
            ),
            (
                "user_id",
                &[
                    "there is no argument `user_id`: an argument of the function goes into the key, \
                   as in `key = \"sync:<user_id>\"`",
                ],
            ),
            (
                r#"key = "a", onbusy"#,
                &["there is no argument `onbusy`: did you mean `on_busy = skip`?"],
            ),
            (
                r#"key = "a", return None"#,
                &["a value is returned on an occasion: write `on_busy = return None`"],
            ),
            (
                r#"key = "a", on_busy = wait"#,
                &[
                    "waiting is an argument of its own: write `wait = \"5s\"`, and what follows after \
                   that time as `on_busy`",
                ],
            ),
            (
                r#"key = "a", on_busy = "retry""#,
                &[
                    "waiting is an argument of its own: write `wait = \"5s\"`, and what follows after \
                   that time as `on_busy`",
                ],
            ),
            (
                r#"key = "a", on_busy = "return ""#,
                &["`on_busy` is `skip`, `error` or `return EXPR`"],
            ),
            (r#"key = "a", on_busy = (skip)"#, &[]),
            (
                "key([])",
                &["an argument is written `key = \"sync:<user_id>\"`"],
            ),
            (
                r#"key("a", "b")"#,
                &["an argument is written `key = [\"a\", \"b\"]`"],
            ),
            (
                r#"key = "a", crate = "lockattr""#,
                &["write `crate = ::lockattr`, without quotes"],
            ),
            (
                r#"key = "a", crate = "crate::locks""#,
                &["write `crate = crate::locks`, without quotes"],
            ),
            (
                r#"key = "a", bind = &self.lease"#,
                &["`bind` is a name for the `&Lease` inside the body, such as `bind = lease`"],
            ),
        ]);
    }

    /// What is proposed, beside a key.
    fn advised(advice: &str) -> String {
        if advice.starts_with("key") {
            advice.to_owned()
        } else {
            format!("key = \"a\", {advice}")
        }
    }

    #[test]
    fn every_example_is_accepted() {
        for name in names() {
            let advised = advised(&example(name));
            let once = if name == "on_done" {
                ", once = \"1h\""
            } else {
                ""
            };
            assert_eq!(parse(&format!("{advised}{once}")).1, [""; 0], "{name}");
        }
    }

    #[test]
    fn what_holds_no_lock() {
        let (_, messages) = parse(r#"key = "a", on_lost = continue, renew = false"#);
        assert!(messages[0].contains("holds no lock"), "{messages:?}");
        let (_, messages) = parse(r#"key = "a", renew = false"#);
        assert_eq!(messages, [""; 0]);
    }

    #[test]
    fn every_name_is_an_argument() {
        for name in names() {
            let (_, messages) = parse(&format!("{name} = _"));
            let unknown = messages
                .iter()
                .any(|message| message.contains("no argument"));
            assert!(!unknown, "{messages:?}");
        }
        for (words, _) in MEANINGS {
            for word in words {
                assert!(!names().any(|name| name == *word), "{word} is offered");
            }
        }
    }

    proptest! {
        #[test]
        fn any_tokens_are_answered(words in proptest::collection::vec(word_of_a_list(), 0..12)) {
            let text = words.join(" ");
            if text.parse::<TokenStream>().is_ok() {
                let (args, messages) = parse(&text);
                prop_assert!(!args.keys.is_empty() || !messages.is_empty());
            }
        }
    }

    fn word_of_a_list() -> impl Strategy<Value = String> {
        let words = [
            "key",
            "ttl",
            "wait",
            "on_busy",
            "on_lost",
            "renew",
            "bind",
            "client",
            "crate",
            "=",
            ",",
            "==",
            ":",
            "\"a:<b>\"",
            "\"30s\"",
            "30",
            "-",
            "return",
            "continue",
            "skip",
            "Ok(())",
            "(a, b)",
            "[a]",
            "{ a }",
            "::",
            "a::<B, C>()",
            "|x| x",
            "_",
            "#",
            "'a'",
            "b\"a\"",
            "true",
        ];
        proptest::sample::select(words.to_vec()).prop_map(ToOwned::to_owned)
    }
}
