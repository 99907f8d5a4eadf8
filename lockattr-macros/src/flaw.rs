//! What can be wrong with a key template, worded as advice.

use std::ops::Range;

use crate::names::list;
use crate::template::LONGEST;

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Flaw {
    /// Bytes of the template.
    pub(crate) range: Range<usize>,
    pub(crate) problem: Problem,
}

impl Flaw {
    pub(crate) fn new(range: Range<usize>, problem: Problem) -> Self {
        Self { range, problem }
    }
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Problem {
    Blank,
    TooLong(usize),
    Control(char),
    /// The path that is meant by what is between the braces, where there is one.
    Brace(Option<String>),
    /// Another language's placeholder, and the path that is meant by it, where there is one.
    Foreign(String, Option<String>),
    /// The path that is meant by what follows the `<`, where there is one.
    Unclosed(Option<String>),
    /// The path that is meant by what the `>` follows, where there is one.
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
    /// No argument has this name; the nearest that there is.
    Unknown(String, Option<String>),
    /// `self` in a function without a receiver.
    NoReceiver,
    /// No argument has this name, and `#[async_trait]` has taken the names of patterns away.
    Destructured(String),
}

/// The names a placeholder may start with.
pub(crate) struct Here<'a> {
    pub(crate) names: &'a [String],
    pub(crate) receiver: bool,
}

impl Here<'_> {
    /// Every name there is, `self` last.
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

impl Problem {
    /// What is wrong, and what was probably meant.
    pub(crate) fn what(&self) -> String {
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

    /// What would be right, and the reason where it is not plain; empty where that has been said.
    pub(crate) fn rule(&self, here: &Here<'_>) -> String {
        match self {
            Self::Spaces(_) | Self::Reference(_) => "",
            Self::Unknown(name, None) if here.receiver => {
                let names = here.text();
                return format!("{names}; a field of `self` is written `<self.{name}>`");
            }
            Self::Empty | Self::Called(_) | Self::Unknown(..) | Self::NoReceiver => {
                return here.text();
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
                let here = path.is_none().then(|| here.text() + "\n");
                let here = here.unwrap_or_default();
                return format!("{here}for the characters themselves write `<'{written}'>`");
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
