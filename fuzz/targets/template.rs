//! Any text is a template or has flaws, and each flaw has a place that can be drawn.

#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../lockattr-macros/src/flaw.rs"]
mod flaw;
#[path = "../../lockattr-macros/src/foreign.rs"]
mod foreign;
#[path = "../../lockattr-macros/src/names.rs"]
mod names;
#[path = "../../lockattr-macros/src/place.rs"]
mod place;
#[path = "../../lockattr-macros/src/template.rs"]
mod template;

use template::{Piece, parse};

fuzz_target!(|text: &str| {
    let (pieces, flaws) = parse(text, |path| path.starts_with('i').then(|| path.to_owned()));
    let here = flaw::Here {
        names: &["id".to_owned()],
        receiver: true,
    };
    let source = format!("{text:?}");
    for flaw in &flaws {
        assert!(!flaw.problem.what().is_empty());
        let _ = flaw.problem.rule(&here);
        assert!(text.get(flaw.range.clone()).is_some(), "{flaw:?}");
        assert!(place::draw(text, &flaw.range).contains('^'));
        let found = place::in_source(&source, text, &flaw.range).expect("one literal's text");
        assert!(source.get(found).is_some(), "{flaw:?}");
    }
    // Text in quotes may be written without them as well.
    if flaws.is_empty() && !text.contains("<'") {
        let again: String = pieces.iter().map(written).collect();
        assert_eq!(again, text);
    }
});

/// A piece as it stands in the template.
fn written(piece: &Piece) -> String {
    match piece {
        Piece::Text(text) => text.replace('<', "<<").replace('>', ">>"),
        Piece::Value(value) => format!("<{}>", value.written),
    }
}
