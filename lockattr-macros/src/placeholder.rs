//! One placeholder of a key template: an argument and the steps from it to the value.

use std::ops::Range;

use unicode_ident::{is_xid_continue, is_xid_start};

use crate::template_error::{TemplateError, TemplateErrorKind};

/// `<order.owner.id()>`
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Placeholder {
    /// The source text, without the brackets.
    pub(crate) written: String,
    /// The range of `written` in the template.
    pub(crate) range: Range<usize>,
    /// The argument, without `r#`.
    pub(crate) root: String,
    pub(crate) steps: Vec<Step>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Field(String),
    Index(u32),
    Call(String),
}

/// Input:  `"order.id()", 6`
/// Output: `Placeholder { root: "order", steps: [Call("id")], range: 6..16 }`
pub(crate) fn parse(written: &str, start: usize) -> Result<Placeholder, TemplateError> {
    let range = start..start + written.len();
    let trimmed = written.trim();
    if trimmed.is_empty() {
        return Err(TemplateError::new(
            start - 1..range.end + 1,
            TemplateErrorKind::Empty,
        ));
    }
    if let Some(error) = foreign_syntax(written, start) {
        return Err(error);
    }
    if trimmed != written {
        return Err(TemplateError::new(
            range,
            TemplateErrorKind::Spaces(trimmed.to_owned()),
        ));
    }
    let mut root = None;
    let mut steps = Vec::new();
    let mut at = start;
    for part in written.split('.') {
        let here = at..at + part.len();
        at = here.end + 1;
        let error = |kind| TemplateError::new(here.clone(), kind);
        let (name, called) = match part.strip_suffix("()") {
            Some(name) => (name, true),
            None => (part, false),
        };
        let bare = name.strip_prefix("r#").unwrap_or(name);
        if part.is_empty() {
            return Err(TemplateError::new(range, TemplateErrorKind::Dot));
        } else if bare == "_" {
            return Err(error(TemplateErrorKind::Underscore));
        } else if root.is_none() && called {
            return Err(error(TemplateErrorKind::Called(name.to_owned())));
        } else if root.is_some() && bare == "await" {
            return Err(error(TemplateErrorKind::Await));
        } else if let Some(index) = index(part).filter(|_| root.is_some()) {
            steps.push(Step::Index(index));
        } else if !is_word(bare) {
            return Err(error(TemplateErrorKind::NotAName(part.to_owned())));
        } else if root.is_none() {
            root = Some(bare.to_owned());
        } else if called {
            steps.push(Step::Call(bare.to_owned()));
        } else {
            steps.push(Step::Field(bare.to_owned()));
        }
    }
    let Some(root) = root else {
        return Err(TemplateError::new(range, TemplateErrorKind::Empty));
    };
    Ok(Placeholder {
        written: written.to_owned(),
        range,
        root,
        steps,
    })
}

/// The error for syntax that other template languages have in their placeholders.
fn foreign_syntax(written: &str, start: usize) -> Option<TemplateError> {
    let at = |index: usize, kind| {
        Some(TemplateError::new(
            start + index..start + written.len(),
            kind,
        ))
    };
    if let Some(open) = written.find('(')
        && !written[open..].starts_with("()")
    {
        return at(open, TemplateErrorKind::MethodArguments);
    }
    if written.contains("::") {
        return at(0, TemplateErrorKind::Path);
    }
    if let Some(colon) = written.find(':') {
        return at(colon, TemplateErrorKind::Format);
    }
    if let Some(open) = written.find('[') {
        return at(open, TemplateErrorKind::Indexed);
    }
    if written.starts_with(['&', '*']) {
        return at(
            0,
            TemplateErrorKind::Reference(written.trim_start_matches(['&', '*', ' ']).to_owned()),
        );
    }
    None
}

fn index(part: &str) -> Option<u32> {
    let plain = part.bytes().all(|b| b.is_ascii_digit());
    let leading_zero = part.len() > 1 && part.starts_with('0');
    (plain && !leading_zero).then(|| part.parse().ok())?
}

fn is_word(text: &str) -> bool {
    let mut chars = text.chars();
    chars.next().is_some_and(|c| is_xid_start(c) || c == '_') && chars.all(in_word)
}

/// Whether the compiler accepts the character in a name. Some are no letters, such as `\u{93f}`.
pub(crate) fn in_word(c: char) -> bool {
    is_xid_continue(c)
}

pub(crate) fn is_path(text: &str) -> bool {
    parse(text, 1).is_ok()
}

/// Input:  `"user_id:more"`
/// Output: `"user_id"`
pub(crate) fn leading_path(text: &str) -> &str {
    let end = text
        .find(|c: char| !in_word(c) && c != '.')
        .unwrap_or(text.len());
    &text[..end]
}

/// Input:  `"sync:user_id"`
/// Output: `"user_id"`
pub(crate) fn trailing_path(text: &str) -> &str {
    let start = text
        .char_indices()
        .rev()
        .take_while(|(_, c)| in_word(*c) || *c == '.')
        .last()
        .map_or(text.len(), |(at, _)| at);
    &text[start..]
}
