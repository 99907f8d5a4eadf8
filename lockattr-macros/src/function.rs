//! The functions that the attribute can be put on, by the shape of their body and return type.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, FnArg, Result, ReturnType, Signature, Type, Visibility};

use crate::body::{self, Tail};
use crate::errors;
use crate::item::Item;
use crate::pattern::{self, Rebind};
use crate::result;

pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) shape: Shape,
    /// The type of the body's value, or of a stream's items, where the signature has it. Each `impl Trait` is replaced by `_`.
    pub(crate) output: Option<Type>,
    /// The span of that type.
    pub(crate) output_span: Span,
    pub(crate) braces: Span,
}

pub(crate) enum Shape {
    /// `fn f() { … }` on a thread that may wait.
    Blocking { body: Group, rebinds: Vec<Rebind> },
    /// `async fn f() { … }`
    Async { body: Group, rebinds: Vec<Rebind> },
    /// `fn f() -> impl Future { …; async move { … } }`, also in `Box::pin( … )`, which is what
    /// `#[async_trait]` makes.
    Tail(Tail),
    /// `fn f() -> impl Future { … }` with any other body: only running it makes its future.
    Made {
        body: Group,
        /// The return type, where it can be written in a body.
        future: Option<Type>,
        boxed: bool,
    },
    /// `fn f() -> impl Stream { … }`: only running the body makes the stream.
    Stream {
        body: Group,
        /// The return type, where it can be written in a body.
        stream: Option<Type>,
        boxed: bool,
    },
}

/// The names that a key may use.
pub(crate) struct Scope {
    /// The `self` of the signature.
    pub(crate) receiver: Option<Ident>,
    pub(crate) bound: Vec<Ident>,
    /// `#[async_trait]` has replaced a pattern by `__arg1`.
    pub(crate) patterns_taken: bool,
}

impl Scope {
    pub(crate) fn of(sig: &Signature) -> Self {
        let mut receiver = None;
        let mut bound = Vec::new();
        for input in &sig.inputs {
            match input {
                FnArg::Receiver(this) => receiver = Some(Ident::new("self", this.self_token.span)),
                FnArg::Typed(typed) => bound.extend(pattern::names(&typed.pat)),
            }
        }
        let replaced = |ident: &Ident| ident.to_string().starts_with("__arg");
        let patterns_taken = is_async_trait(sig) && bound.iter().any(replaced);
        Self {
            receiver,
            bound,
            patterns_taken,
        }
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Ident> {
        if name == "self" {
            return self.receiver.as_ref();
        }
        self.bound.iter().find(|ident| plain(ident) == name)
    }

    /// The token that resolves to the argument: its own, also where a macro made the template.
    /// Where hygiene keeps two arguments of one name apart, the template's span decides.
    pub(crate) fn token(&self, name: &str, template: Span) -> Option<Ident> {
        let mut found = self.find(name)?.clone();
        let same = self.bound.iter().filter(|ident| plain(ident) == name);
        if same.count() > 1 {
            found.set_span(template);
        }
        Some(found)
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let shown = |name: &String| !(self.patterns_taken && name.starts_with("__arg"));
        self.bound.iter().map(plain).filter(shown).collect()
    }
}

/// A name without `r#`.
pub(crate) fn plain(ident: &Ident) -> String {
    let name = ident.to_string();
    name.strip_prefix("r#")
        .map_or(name.clone(), ToOwned::to_owned)
}

impl Function {
    /// Input:  `#[a] pub async fn f(mut id: u8) -> T { … }`
    /// Output: its parts, to be assembled around another body
    ///
    /// `blocking` is where the attribute has that word.
    pub(crate) fn new(item: Item, blocking: Option<Span>) -> Result<Self> {
        let Item {
            mut attrs,
            vis,
            mut sig,
            body,
        } = item;
        let body = body::hoist(accept(&attrs, &sig, body, blocking)?, &mut attrs);
        let braces = body.span();
        let (shape, output, output_span);
        if sig.asyncness.is_some() || blocking.is_some() {
            let rebinds = pattern::strip_mut(&mut sig.inputs);
            output = Some(result::written(&sig.output));
            output_span = match &sig.output {
                ReturnType::Default => sig.ident.span(),
                ReturnType::Type(_, ty) => ty.span(),
            };
            shape = match blocking {
                None => Shape::Async { body, rebinds },
                Some(_) => Shape::Blocking { body, rebinds },
            };
        } else if let Some(stream) = result::stream(&sig.output) {
            output = stream.value;
            output_span = stream.span;
            shape = Shape::Stream {
                body,
                stream: stream.whole,
                boxed: stream.boxed,
            };
        } else {
            let Some(future) = result::future(&sig.output) else {
                return Err(body::not_async(&attrs, &sig, &body));
            };
            output = future.value;
            output_span = future.span;
            shape = match body::tail(&body) {
                Some(tail) => Shape::Tail(tail),
                None => Shape::Made {
                    body,
                    future: future.whole,
                    boxed: future.boxed,
                },
            };
        }
        Ok(Self {
            attrs,
            vis,
            sig,
            shape,
            output,
            output_span,
            braces,
        })
    }
}

fn is_async_trait(sig: &Signature) -> bool {
    sig.generics
        .lifetimes()
        .any(|param| param.lifetime.ident == "async_trait")
}

/// The body, or every reason why the attribute cannot be on this function.
fn accept(
    attrs: &[Attribute],
    sig: &Signature,
    body: Option<Group>,
    blocking: Option<Span>,
) -> Result<Group> {
    let mut errors: Vec<Error> = Vec::new();
    if sig.asyncness.is_some() && body::is_main(sig) && body::has(attrs, "main") {
        errors.push(Error::new(sig.ident.span(), body::MAIN));
    }
    if let Some(word) = blocking {
        if body::is_main(sig) {
            errors.push(Error::new(sig.ident.span(), body::MAIN));
        }
        let what = if sig.asyncness.is_some() {
            Some("is `async`")
        } else if result::future(&sig.output).is_some() {
            Some("returns a future")
        } else {
            result::stream(&sig.output).map(|_| "returns a stream")
        };
        if let Some(what) = what {
            errors.push(Error::new(
                word,
                format!(
                    "`blocking` is for functions that block their thread, and this one {what}: leave \
                     it out, for the lock is awaited here"
                ),
            ));
        }
    }
    if let Some(constness) = &sig.constness {
        let message = match blocking {
            None => "a `const fn` cannot take a lock, which is awaited: make it an `async fn`",
            Some(_) => {
                "a `const fn` cannot take a lock, which is asked of a store: leave out the `const`"
            }
        };
        errors.push(Error::new(constness.span, message));
    }
    if let (Some(variadic), None) = (&sig.variadic, blocking) {
        errors.push(Error::new(
            variadic.span(),
            "a function with `...` cannot be `async`, and a lock is awaited",
        ));
    }
    if let ReturnType::Type(_, ty) = &sig.output
        && let Type::Never(never) = &**ty
    {
        errors.push(Error::new(
            never.span(),
            "a function that never returns would hold its lock for ever, and has no value for \
             when it is busy: lock the work of one round, in a function of its own",
        ));
    }
    let Some(body) = body else {
        errors.push(Error::new(
            sig.ident.span(),
            "this function has no body to put under the lock: the attribute goes on the \
             functions that implement it, or on a default body",
        ));
        return errors::combined(errors, Group::new(Delimiter::Brace, TokenStream::new()));
    };
    errors::combined(errors, body)
}
