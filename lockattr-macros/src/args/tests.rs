//! What is accepted, and the advice for what is not.

use proptest::prelude::*;

use super::*;
use crate::known::{MEANINGS, example, names};

fn parse(text: &str) -> (Args, Vec<String>) {
    let mut errors = CollectedErrors::default();
    let tokens = text.parse().unwrap();
    let args = Args::new(tokens, Span::call_site(), &mut errors);
    (args, errors.messages())
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
    assert!(matches!(args.ttl, Some(DurationValue::Millis(1500))));
    assert!(matches!(args.wait, Some(DurationValue::Expr(_))));
    assert!(matches!(args.on_busy, OnBusy::Skip));
    assert!(matches!(args.on_unavailable, OnUnavailable::Return(_)));
    assert!(matches!(args.on_lost, OnLost::Continue));
    assert!(args.renew);
    assert_eq!(args.bind.unwrap(), "r#lease");
    assert!(args.client.is_some());
    assert!(args.krate.is_some());
    let (args, messages) = parse(r#"key = "a", permits = 1_000_000, weight = units"#);
    assert_eq!(messages, [""; 0]);
    assert!(args.permits.is_some() && args.weight.is_some() && !args.shared);
    for text in [r#"key = "a", shared"#, r#"shared, key = "a","#] {
        let (args, messages) = parse(text);
        assert_eq!(messages, [""; 0]);
        assert!(args.shared);
    }
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
            if advice.contains(" = ") && !advice.contains(['…', 'X']) && !text.contains(advice) {
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
            r#"key = "a", "30s""#,
            &["arguments have names: write `ttl = \"30s\"`"],
        ),
        (
            r#"key = "a", on_busy = Error::Busy"#,
            &["a value is given back by `return`: `on_busy = return Error::Busy`"],
        ),
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
        let beside = match name {
            "on_done" => ", once = \"1h\"",
            "weight" => ", permits = 3",
            _ => "",
        };
        assert_eq!(parse(&format!("{advised}{beside}")).1, [""; 0], "{name}");
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
