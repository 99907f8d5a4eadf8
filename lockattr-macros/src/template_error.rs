//! The errors of a key template, and the advice for each.

use std::ops::Range;

use crate::suggest::list;
use crate::template::LONGEST;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TemplateError {
    /// Bytes of the template.
    pub(crate) range: Range<usize>,
    pub(crate) kind: TemplateErrorKind,
}

impl TemplateError {
    pub(crate) fn new(range: Range<usize>, kind: TemplateErrorKind) -> Self {
        Self { range, kind }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum TemplateErrorKind {
    Blank,
    TooLong(usize),
    Control(char),
    /// The path that the text between the braces suggests, if it is one.
    Brace(Option<String>),
    /// A placeholder of another template language, and the path that it suggests, if it is one.
    Foreign(String, Option<String>),
    /// The path that follows the `<`, if there is one.
    Unclosed(Option<String>),
    /// The path that precedes the `>`, if there is one.
    Stray(Option<String>),
    Empty,
    Spaces(String),
    Adjacent,
    Percent,
    Dot,
    Underscore,
    NotAName(String),
    Called(String),
    MethodArguments,
    Indexed,
    Path,
    Format,
    Reference(String),
    Await,
    /// No argument has this name. The second is the nearest name that exists.
    Unknown(String, Option<String>),
    /// `self` in a function without a receiver.
    NoReceiver,
    /// No argument has this name, and `#[async_trait]` has replaced the patterns of arguments.
    Destructured(String),
}

/// The names a placeholder may start with.
pub(crate) struct Candidates<'a> {
    pub(crate) names: &'a [String],
    pub(crate) receiver: bool,
}

impl Candidates<'_> {
    /// Every name, `self` last.
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        let receiver = self.receiver.then_some("self");
        self.names.iter().map(String::as_str).chain(receiver)
    }

    fn text(&self) -> String {
        let names = list(self.all());
        if names.is_empty() {
            "this function has no arguments, so its key has no placeholders".into()
        } else {
            format!(
                "a placeholder is an argument or a name bound by an argument's pattern, here {names}"
            )
        }
    }
}

impl TemplateErrorKind {
    /// The first line of the message: what is wrong, and what was probably meant.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::Blank => "the key is empty".into(),
            Self::TooLong(length) => format!("the key is {length} bytes long"),
            Self::Control(c) => {
                let c = c.escape_default();
                format!("there is a control character in the key, {c}")
            }
            Self::Brace(Some(path)) => {
                format!("a placeholder has angle brackets: write `<{path}>`")
            }
            Self::Brace(None) => "a lock key has no braces".into(),
            Self::Foreign(written, Some(path)) => {
                format!("`{written}` is a placeholder of another language: write `<{path}>`")
            }
            Self::Foreign(written, None) => {
                format!("`{written}` is a placeholder of another language")
            }
            Self::Unclosed(None) => "this `<` opens a placeholder that is never closed".into(),
            Self::Unclosed(Some(path)) => {
                format!("this placeholder is never closed: write `<{path}>`")
            }
            Self::Stray(None) => "this `>` closes nothing".into(),
            Self::Stray(Some(path)) => {
                format!("this `>` closes nothing: write `<{path}>` for a placeholder")
            }
            Self::Empty => "this placeholder has no name between its brackets".into(),
            Self::Spaces(path) => {
                format!("there is white space in a placeholder: write `<{path}>`")
            }
            Self::Adjacent => "two placeholders stand side by side".into(),
            Self::Percent => "a placeholder is followed by `%`".into(),
            Self::Dot => "there is a dot without a name beside it".into(),
            Self::Underscore => "`_` has no value".into(),
            Self::NotAName(part) => format!("`{part}` is not a name"),
            Self::Called(name) => {
                format!("a placeholder starts with an argument, and `{name}()` is a call")
            }
            Self::MethodArguments => "a method in a key takes no arguments".into(),
            Self::Indexed => "a placeholder has no `[…]`".into(),
            Self::Path => "a placeholder is not a path".into(),
            Self::Format => "a placeholder has no format".into(),
            Self::Reference(path) => {
                format!("values are borrowed as they are: write `<{path}>`")
            }
            Self::Await => "nothing can be awaited in a key".into(),
            Self::Unknown(name, Some(nearest)) => {
                format!("there is no argument `{name}`: did you mean `<{nearest}>`?")
            }
            Self::Unknown(name, None) | Self::Destructured(name) => {
                format!("there is no argument `{name}`")
            }
            Self::NoReceiver => "there is no `self` in this function".into(),
        }
    }

    /// The further lines of the message: the rule and its reason. Empty where the first line says
    /// enough.
    pub(crate) fn rule(&self, candidates: &Candidates<'_>) -> String {
        match self {
            Self::Spaces(_) | Self::Reference(_) => "",
            Self::Unknown(name, None) if candidates.receiver => {
                let names = candidates.text();
                return format!("{names}; a field of `self` is written `<self.{name}>`");
            }
            Self::Empty | Self::Called(_) | Self::Unknown(..) | Self::NoReceiver => {
                return candidates.text();
            }
            Self::Blank => "a key names what is locked, such as \"sync:<user_id>\"",
            Self::TooLong(_) => return format!("a key has at most {LONGEST} bytes"),
            Self::Control(_) => "a key is one line of readable text",
            Self::Brace(Some(_)) => {
                "a lock key has no braces, because Redis Cluster reads them as hash tags"
            }
            Self::Brace(None) => {
                "a placeholder is written `<name>`; braces are refused because Redis Cluster \
                 reads them as hash tags"
            }
            Self::Foreign(written, path) => {
                let list = path.is_none().then(|| candidates.text() + "\n");
                let list = list.unwrap_or_default();
                return format!("{list}for the characters themselves write `<'{written}'>`");
            }
            Self::Unclosed(None) => "a placeholder is written `<name>`, a plain angle bracket `<<`",
            Self::Unclosed(_) => "a plain angle bracket is written `<<`",
            Self::Stray(None) => "a placeholder is written `<name>`, a plain angle bracket `>>`",
            Self::Stray(_) => "a plain angle bracket is written `>>`",
            Self::Adjacent => {
                "put text between them, such as `:`; without it \"1\", \"23\" and \"12\", \"3\" \
                 would be one key"
            }
            Self::Percent => {
                "put another character between them: `%` escapes what would be ambiguous in a \
                 value, so it cannot mark where the value ends"
            }
            Self::Dot => {
                "after a dot comes a field, a tuple index or a method: `<order.id>`, `<pair.0>`, \
                 `<user.id()>`"
            }
            Self::Underscore => {
                "give the argument a name to use it in the key; being used there, it is not unused"
            }
            Self::NotAName(_) | Self::Indexed | Self::Path => {
                "a placeholder is an argument, then any number of `.field`, `.0` and `.method()`"
            }
            Self::MethodArguments => {
                "compute the value in a method of its own, or pass it to the function as an \
                 argument"
            }
            Self::Format => {
                "values are written by `Display`; for another form call a method that returns it, \
                 or pass it to the function as an argument"
            }
            Self::Await => {
                "the key is made before anything is awaited: await the value before the call and \
                 pass it as an argument"
            }
            Self::Destructured(_) => {
                "`#[async_trait]` takes away the names that an argument's pattern binds: name the \
                 argument itself, use its fields in the key, and take it apart in the body"
            }
        }
        .into()
    }
}
