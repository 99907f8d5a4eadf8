//! Any text is a template or has errors, and each error has a range that can be underlined.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lockattr-macros/src/foreign.rs"]
mod foreign;
#[path = "../../lockattr-macros/src/literal.rs"]
mod literal;
#[path = "../../lockattr-macros/src/placeholder.rs"]
mod placeholder;
#[path = "../../lockattr-macros/src/suggest.rs"]
mod suggest;
#[path = "../../lockattr-macros/src/template.rs"]
mod template;
#[path = "../../lockattr-macros/src/template_error.rs"]
mod template_error;

use template::{Piece, parse};

fuzz_target!(|text: &str| {
    let (pieces, errors) = parse(text, |path| path.starts_with('i').then(|| path.to_owned()));
    let candidates = template_error::Candidates {
        names: &["id".to_owned()],
        receiver: true,
    };
    let source = format!("{text:?}");
    for error in &errors {
        assert!(!error.kind.message().is_empty());
        let _ = error.kind.rule(&candidates);
        assert!(text.get(error.range.clone()).is_some(), "{error:?}");
        assert!(literal::underlined(text, &error.range).contains('^'));
        let found = literal::in_source(&source, text, &error.range).expect("one literal's text");
        assert!(source.get(found).is_some(), "{error:?}");
    }
    // Text in quotes may be written without them as well.
    if errors.is_empty() && !text.contains("<'") {
        let again: String = pieces.iter().map(written).collect();
        assert_eq!(again, text);
    }
});

/// A piece in the syntax of the template.
fn written(piece: &Piece) -> String {
    match piece {
        Piece::Text(text) => text.replace('<', "<<").replace('>', ">>"),
        Piece::Value(value) => format!("<{}>", value.written),
    }
}
