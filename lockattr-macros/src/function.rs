//! The functions the attribute goes on, by the shape of what they return.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned as _;
use syn::{Attribute, Error, FnArg, Result, ReturnType, Signature, Token, Type, Visibility};

use crate::body::{self, Tail};
use crate::pattern::{self, Rebind};
use crate::result;

pub(crate) struct Function {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) shape: Shape,
    /// What the body evaluates to, where the signature says it, each `impl Trait` replaced by `_`.
    pub(crate) output: Option<Type>,
    /// Where that is written.
    pub(crate) output_span: Span,
    pub(crate) braces: Span,
}

pub(crate) enum Shape {
    /// `async fn f() { … }`
    Async { body: Group, rebinds: Vec<Rebind> },
    /// `fn f() -> impl Future { …; async move { … } }`, also in `Box::pin( … )`, which is what
    /// `#[async_trait]` makes.
    Tail(Tail),
    /// `fn f() -> impl Future { … }` with any other body, which has to be run to have its future.
    Made {
        body: Group,
        /// What the function returns, as far as it can be written in a body.
        future: Option<Type>,
        boxed: bool,
    },
}

/// What a key may name.
pub(crate) struct Names {
    /// The `self` of the signature.
    pub(crate) receiver: Option<Ident>,
    pub(crate) bound: Vec<Ident>,
    /// `#[async_trait]` has replaced a pattern by `__arg1`.
    pub(crate) patterns_taken: bool,
}

impl Names {
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

    /// The token that means the argument: its own, wherever the template came from. Where a macro
    /// has given two arguments one name, it is the one that the template's macro can see.
    pub(crate) fn token(&self, name: &str, template: Span) -> Option<Ident> {
        let mut found = self.find(name)?.clone();
        if self
            .bound
            .iter()
            .filter(|ident| plain(ident) == name)
            .count()
            > 1
        {
            found.set_span(template);
        }
        Some(found)
    }

    pub(crate) fn here(&self) -> Vec<String> {
        let shown = |name: &String| !name.starts_with("__arg");
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
    /// Every error there is to tell about the function, not the first one.
    pub(crate) fn new(item: Item) -> Result<Self> {
        let Item {
            mut attrs,
            vis,
            mut sig,
            body,
        } = item;
        refuse(&sig, body.as_ref())?;
        let Some(body) = body else {
            return Err(Error::new(sig.span(), "this function has no body"));
        };
        let body = body::hoist(body, &mut attrs);
        let braces = body.span();
        let (shape, output, output_span);
        if sig.asyncness.is_some() {
            let rebinds = pattern::strip_mut(&mut sig.inputs);
            output = Some(result::written(&sig.output));
            output_span = match &sig.output {
                ReturnType::Default => sig.ident.span(),
                ReturnType::Type(_, ty) => ty.span(),
            };
            shape = Shape::Async { body, rebinds };
        } else {
            let Some(future) = result::future(&sig.output) else {
                return Err(body::not_async(&attrs, &sig, &body));
            };
            output = future.output;
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

/// What no shape can be made of.
fn refuse(sig: &Signature, body: Option<&Group>) -> Result<()> {
    let mut errors: Vec<Error> = Vec::new();
    if let Some(constness) = &sig.constness {
        errors.push(Error::new(
            constness.span,
            "a `const fn` cannot take a lock, which is awaited: make it an `async fn`",
        ));
    }
    if let Some(variadic) = &sig.variadic {
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
    if body.is_none() {
        errors.push(Error::new(
            sig.ident.span(),
            "this function has no body to put under the lock: the attribute goes on the \
             functions that implement it, or on a default body",
        ));
    }
    match errors.into_iter().reduce(|mut all, one| {
        all.combine(one);
        all
    }) {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// A function as it was written, its body not read.
pub(crate) struct Item {
    pub(crate) attrs: Vec<Attribute>,
    pub(crate) vis: Visibility,
    pub(crate) sig: Signature,
    pub(crate) body: Option<Group>,
}

impl Parse for Item {
    fn parse(input: ParseStream<'_>) -> Result<Self> {
        let attrs = input.call(Attribute::parse_outer)?;
        let vis: Visibility = input.parse()?;
        if !starts_function(input) {
            return Err(Error::new(input.span(), not_a_function(input)));
        }
        let sig: Signature = input.parse()?;
        let body = if input.peek(Token![;]) {
            input.parse::<Token![;]>()?;
            None
        } else {
            Some(brace_group(input)?)
        };
        Ok(Self {
            attrs,
            vis,
            sig,
            body,
        })
    }
}

fn starts_function(input: ParseStream<'_>) -> bool {
    let ahead = input.fork();
    loop {
        if ahead.peek(Token![fn]) {
            return true;
        }
        let qualifier = ahead.peek(Token![async])
            || ahead.peek(Token![unsafe])
            || ahead.peek(Token![const])
            || ahead.peek(Token![extern])
            || ahead.peek(syn::LitStr);
        if !qualifier || ahead.parse::<TokenTree>().is_err() {
            return false;
        }
    }
}

fn not_a_function(input: ParseStream<'_>) -> String {
    let ahead = input.fork();
    while ahead.peek(Token![unsafe]) || ahead.peek(Token![default]) || ahead.peek(Token![auto]) {
        if ahead.parse::<TokenTree>().is_err() {
            break;
        }
    }
    let what = if ahead.peek(Token![impl]) {
        return "the attribute goes on an `async fn`, not on an `impl` block: put it on each \
                function in the block that takes the lock"
            .into();
    } else if ahead.peek(Token![trait]) {
        return "the attribute goes on an `async fn`, not on a trait: put it on the default \
                bodies in the trait, and on the functions that implement it"
            .into();
    } else if ahead.peek(Token![struct]) {
        "a struct"
    } else if ahead.peek(Token![enum]) {
        "an enum"
    } else if ahead.peek(Token![mod]) {
        "a module"
    } else if ahead.peek(Token![static]) || ahead.peek(Token![const]) {
        "a value"
    } else if ahead.peek(Token![type]) {
        "a type"
    } else {
        return "the attribute goes on an `async fn`".into();
    };
    format!("the attribute goes on an `async fn`, not on {what}")
}

/// The body as it stands, out of the invisible groups that `macro_rules!` put around it.
fn brace_group(input: ParseStream<'_>) -> Result<Group> {
    input.step(|cursor| {
        if let Some((TokenTree::Group(group), rest)) = cursor.token_tree()
            && let Some(body) = peel(&group)
        {
            return Ok((body, rest));
        }
        Err(cursor.error("expected the body of the function"))
    })
}

/// Input:  an invisible group around `{ … }`, however deep
/// Output: `{ … }`
fn peel(group: &Group) -> Option<Group> {
    if group.delimiter() == Delimiter::Brace {
        return Some(group.clone());
    }
    if group.delimiter() != Delimiter::None {
        return None;
    }
    let mut inside = group.stream().into_iter();
    match (inside.next(), inside.next()) {
        (Some(TokenTree::Group(only)), None) => peel(&only),
        _ => None,
    }
}

impl Item {
    /// The function without a lock, for the build that reports the errors.
    pub(crate) fn unguarded(&self, before_body: &TokenStream) -> TokenStream {
        let Self {
            attrs,
            vis,
            sig,
            body,
        } = self;
        let Some(body) = body else {
            return quote! { #(#attrs)* #vis #sig ; };
        };
        let mut attrs = attrs.clone();
        let body = body::hoist(body.clone(), &mut attrs);
        let used = self.used();
        quote! { #(#attrs)* #vis #sig { #used #before_body #body } }
    }

    /// An argument that only a wrong key names is not unused as well.
    fn used(&self) -> TokenStream {
        let mut names = Vec::new();
        for input in &self.sig.inputs {
            if let FnArg::Typed(typed) = input
                && typed.attrs.is_empty()
            {
                names.extend(pattern::names(&typed.pat));
            }
        }
        let ours = Span::mixed_site();
        quote_spanned! {ours=> #(let _ = &#names;)* }
    }
}
