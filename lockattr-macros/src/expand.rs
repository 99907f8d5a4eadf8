//! From a function and its locks to tokens; nothing can fail here.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens as _, format_ident, quote, quote_spanned};
use syn::spanned::Spanned as _;
use syn::{Expr, Type};

use crate::args::{Args, Length, OnBusy, OnLost, OnUnavailable};
use crate::body::{self, Tail};
use crate::function::{Function, Shape};
use crate::key::{Key, Part};
use crate::pattern::Rebind;

/// One attribute, checked against its function.
pub(crate) struct Lock {
    pub(crate) args: Args,
    pub(crate) key: Key,
}

/// Input:  `async fn f(id: u8) -> T { BODY }`, its locks from the outermost to the innermost
/// Output: `async fn f(id: u8) -> T { make the keys; take the first lock; … BODY …; answer }`
pub(crate) fn expand(function: Function, locks: &[Lock]) -> TokenStream {
    let Function {
        attrs,
        vis,
        sig,
        shape,
        output,
        output_span,
        braces,
    } = function;
    let guard = Guard {
        locks,
        output,
        output_span,
        ours: Span::mixed_site(),
    };
    let body = match shape {
        Shape::Async { body, rebinds } => guard.in_async(&body, &rebinds),
        Shape::Tail(tail) => guard.in_tail(tail),
        Shape::Made {
            body,
            future,
            boxed,
        } => guard.in_made(&body, future.as_ref(), boxed),
    };
    // The user's braces, so that what is said of the whole function is said in its place.
    let mut body = Group::new(Delimiter::Brace, body);
    body.set_span(braces);
    quote! { #(#attrs)* #vis #sig #body }
}

struct Guard<'a> {
    locks: &'a [Lock],
    output: Option<Type>,
    output_span: Span,
    /// Our names are seen by our code alone.
    ours: Span,
}

impl Guard<'_> {
    /// Input:  `{ BODY }`
    /// Output: `let key = …; … async move { let mut a = a; match () { () => { BODY } } } …`
    fn in_async(&self, body: &Group, rebinds: &[Rebind]) -> TokenStream {
        let ours = self.ours;
        let keys = self.keys();
        let rebinds = rebinds.iter().map(|rebind| rebind.tokens(ours));
        let body = self.apart(body);
        let run = self.run(&quote_spanned! {ours=> #(#rebinds)* #body });
        quote_spanned! {ours=> #keys #run }
    }

    /// A user's block as the last expression of one of ours.
    ///
    /// Nothing may follow it, because it may always return. As a match arm its braces are not
    /// unnecessary, and it drops its last temporaries before what stands around it, which they
    /// may borrow.
    fn apart(&self, block: &Group) -> TokenStream {
        let ours = self.ours;
        quote_spanned! {ours=> match () { () => #block } }
    }

    /// Input:  `STATEMENTS Box::pin(async move { BODY })`
    /// Output: `let key = …; STATEMENTS Box::pin(async move { … { BODY } … })`
    ///
    /// The keys come first because the statements may use up the arguments. The statements stay
    /// outside of the lock: a function that returns a future does at once what it does before.
    fn in_tail(&self, tail: Tail) -> TokenStream {
        let ours = self.ours;
        let Tail {
            before,
            pin,
            block,
            after,
        } = tail;
        let keys = self.keys();
        let hint = self.hint(self.output.as_ref());
        let run = self.run(&self.apart(&block));
        let future = quote_spanned! {ours=> async move { #hint #run } };
        let future = match pin {
            Some((path, parentheses)) => {
                let mut pinned = Group::new(parentheses.delimiter(), future);
                pinned.set_span(parentheses.span());
                quote_spanned! {ours=> #path #pinned }
            }
            None => future,
        };
        quote_spanned! {ours=> #keys #before #future #after }
    }

    /// Input:  `{ if short { return Box::pin(async { 0 }); } Box::pin(f()) }`
    /// Output: `let key = …; let future = { … }; Box::pin(async move { … future.await … })`
    ///
    /// The body runs at once and outside of the lock, as it did; the future it makes is what the
    /// lock is held for. It runs in an `async` block and not in a closure, because only a block
    /// can give away what it borrows through an argument.
    fn in_made(&self, body: &Group, future: Option<&Type>, boxed: bool) -> TokenStream {
        let ours = self.ours;
        let private = self.outermost_private();
        let keys = self.keys();
        let whole = self.hint(future);
        let apart = self.apart(body);
        // With a `return` there is no last expression, which clippy would take for a future that
        // somebody forgot to await. After a body that ends in one itself it would be unreachable.
        let body = if body::ends_in_return(body) {
            apart
        } else {
            quote_spanned! {ours=> return #apart; }
        };
        let hint = self.hint(self.output.as_ref());
        let run = self.run(&quote_spanned! {ours=> lockattr_future.await });
        let guarded = quote_spanned! {ours=> async move { #hint #run } };
        let guarded = if boxed {
            quote_spanned! {ours=> #private::std::boxed::Box::pin(#guarded) }
        } else {
            guarded
        };
        quote_spanned! {ours=>
            #keys
            let lockattr_future = #private::at_once(async move { #whole #body });
            #guarded
        }
    }

    /// Tells a block its type before its first `return`, so that values are coerced, and errors
    /// placed, as in a function.
    ///
    /// Input:  T
    /// Output: `if let Some(never) = None::<T> { return never; }`
    fn hint(&self, ty: Option<&Type>) -> TokenStream {
        let Some(ty) = ty.filter(|ty| !matches!(ty, Type::Infer(_))) else {
            return TokenStream::new();
        };
        let at = self.ours.located_at(self.output_span);
        let option = located(&self.outermost_private(), at);
        let option = quote_spanned! {at=> #option::core::option::Option };
        quote_spanned! {at=>
            if let #option::Some(lockattr_never) = #option::None::<#ty> {
                return lockattr_never;
            }
        }
    }

    fn outermost_private(&self) -> TokenStream {
        match self.locks.first() {
            Some(lock) => private(&lock.args, self.ours),
            None => TokenStream::new(),
        }
    }

    /// All keys are made before anything is awaited or moved.
    fn keys(&self) -> TokenStream {
        let prepare = |(index, lock)| self.prepare(&Names::new(index, self.ours), lock);
        self.locks.iter().enumerate().map(prepare).collect()
    }

    /// Input:  `[lock a, lock b], BODY`
    /// Output: a { b { BODY } }
    fn run(&self, body: &TokenStream) -> TokenStream {
        let mut body = body.clone();
        for (index, lock) in self.locks.iter().enumerate().rev() {
            let names = Names::new(index, self.ours);
            body = self.guarded(&names, lock, &body);
        }
        body
    }

    /// Input:  `key = "sync:<id>", ttl = "30s", client = self.locks`
    /// Output: `let key = …; let options = …; let client = …;`
    fn prepare(&self, names: &Names, lock: &Lock) -> TokenStream {
        let ours = self.ours;
        let private = private(&lock.args, ours);
        let Names {
            key,
            options,
            client,
        } = names;
        let made_key = self.key(&private, &lock.key);
        let mut settings = vec![quote_spanned! {ours=>
            let #options = #private::Options::new();
        }];
        let lengths = [("ttl", &lock.args.ttl), ("wait", &lock.args.wait)];
        for (setting, length) in lengths {
            let Some(length) = length else { continue };
            let setting = Ident::new(setting, ours);
            let length = length_tokens(&private, length, ours);
            settings.push(quote_spanned! {ours=>
                let #options = #private::Options::#setting(#options, #length);
            });
        }
        if !lock.args.renew {
            settings.push(quote_spanned! {ours=>
                let #options = #private::Options::renew(#options, false);
            });
        }
        let option = quote_spanned! {ours=> #private::core::option::Option };
        let chosen = match &lock.args.client {
            None => quote_spanned! {ours=> #option::None },
            Some(expr) => {
                let expr = operand(expr);
                let at = ours.located_at(expr.span());
                let choose = located(&private, at);
                let choose = quote_spanned! {at=> #choose::client(&#expr) };
                quote_spanned! {ours=> #option::Some(#choose) }
            }
        };
        quote_spanned! {ours=>
            let #key = #made_key;
            #(#settings)*
            let #client = #chosen;
        }
    }

    /// Input:  `"sync:<order.id>"`
    /// Output: `{ let w = KeyWriter::new(25); let w = KeyWriter::text(w, "sync:"); … finish(w) }`
    fn key(&self, private: &TokenStream, key: &Key) -> TokenStream {
        /// What a placeholder may take, most ids fit in; the text grows where it is more.
        const PER_VALUE: usize = 20;
        let ours = self.ours;
        let mut capacity = 0;
        let mut steps = Vec::new();
        for part in &key.parts {
            match part {
                Part::Text(text) => {
                    capacity += text.len();
                    steps.push(quote_spanned! {ours=>
                        let lockattr_writer =
                            #private::KeyWriter::text(lockattr_writer, #text);
                    });
                }
                Part::Value {
                    name,
                    next,
                    value,
                    span,
                } => {
                    capacity += PER_VALUE;
                    let option = quote_spanned! {ours=> #private::core::option::Option };
                    let next = next.map_or_else(
                        || quote_spanned! {ours=> #option::None },
                        |next| quote_spanned! {ours=> #option::Some(#next) },
                    );
                    let at = ours.located_at(*span);
                    let private = located(private, at);
                    let write = quote_spanned! {at=>
                        #private::KeyWriter::value(lockattr_writer, #name, #next, &#value)
                    };
                    steps.push(quote_spanned! {ours=> let lockattr_writer = #write; });
                }
            }
        }
        let capacity = proc_macro2::Literal::usize_unsuffixed(capacity);
        quote_spanned! {ours=>
            {
                let lockattr_writer = #private::KeyWriter::new(#capacity);
                #(#steps)*
                #private::KeyWriter::finish(lockattr_writer)
            }
        }
    }

    /// Input:  BODY, which ends in its value
    /// Output: statements that take the lock, run BODY under it, give it back and `return`
    fn guarded(&self, names: &Names, lock: &Lock, body: &TokenStream) -> TokenStream {
        let ours = self.ours;
        let private = private(&lock.args, ours);
        let Names {
            key,
            options,
            client,
        } = names;
        let hint = self.hint(self.output.as_ref());
        let bind = lock.args.bind.as_ref().map(|name| {
            quote_spanned! {ours=> let #name = &lockattr_lease; }
        });
        let busy = self.answer(
            &private,
            "busy",
            match &lock.args.on_busy {
                OnBusy::Skip => Answer::Policy("skip"),
                OnBusy::Error => Answer::Policy("error"),
                OnBusy::Return(value) => Answer::Return(value),
            },
        );
        let down = self.answer(
            &private,
            "down",
            match &lock.args.on_unavailable {
                OnUnavailable::Skip => Answer::Policy("skip"),
                OnUnavailable::Error => Answer::Policy("error"),
                OnUnavailable::Return(value) => Answer::Return(value),
            },
        );
        let lost = match &lock.args.on_lost {
            OnLost::Continue => None,
            OnLost::Cancel => Some(self.answer(&private, "lost", Answer::Policy("cancel"))),
            OnLost::Return(value) => Some(self.answer(&private, "lost", Answer::Return(value))),
        };
        let runner = if lost.is_some() {
            "Guarded"
        } else {
            "ToTheEnd"
        };
        let runner = Ident::new(runner, ours);
        let end = self.end(&private, lost.as_ref());
        quote_spanned! {ours=>
            let lockattr_entered = #private::enter(#client, #key, #options).await;
            let lockattr_lease = match lockattr_entered {
                #private::Entered::Held(lockattr_lease) => lockattr_lease,
                #private::Entered::Busy(lockattr_error) => { #busy }
                #private::Entered::Down(lockattr_error) => { #down }
            };
            let lockattr_outcome = {
                #bind
                let lockattr_body = #private::core::pin::pin!(async move { #hint #body });
                let lockattr_outcome =
                    #private::#runner::new(&lockattr_lease, lockattr_body).await;
                lockattr_outcome
            };
            #end
        }
    }

    /// Input:  what to answer when the lease was lost, unless the body runs on
    /// Output: `match outcome { Done(value) => … leave …, Lost(error) => … }`
    fn end(&self, private: &TokenStream, lost: Option<&TokenStream>) -> TokenStream {
        let ours = self.ours;
        let option = quote_spanned! {ours=> #private::core::option::Option };
        let Some(lost) = lost else {
            return quote_spanned! {ours=>
                if let #option::Some(lockattr_error) = #private::leave(lockattr_lease).await {
                    #private::lost_continue(lockattr_error);
                }
                return lockattr_outcome;
            };
        };
        quote_spanned! {ours=>
            match lockattr_outcome {
                #private::Outcome::Done(lockattr_value) => {
                    let lockattr_failed =
                        #private::Verdict(&lockattr_value).__lockattr_is_err();
                    match #private::leave(lockattr_lease).await {
                        #option::Some(lockattr_error) if !lockattr_failed => { #lost }
                        _ => return lockattr_value,
                    }
                }
                #private::Outcome::Lost(lockattr_error) => { #lost }
            }
        }
    }

    /// Input:  `"busy", Policy("skip")`
    /// Output: `return busy_skip(error)`, located at the return type, which has to have the answer
    fn answer(&self, private: &TokenStream, event: &str, answer: Answer<'_>) -> TokenStream {
        let ours = self.ours;
        match answer {
            Answer::Policy(policy) => {
                let at = ours.located_at(self.output_span);
                let private = located(private, at);
                let answer = format_ident!("{event}_{policy}", span = at);
                quote_spanned! {at=> return #private::#answer(lockattr_error); }
            }
            Answer::Return(value) => {
                let told = format_ident!("{event}_return", span = ours);
                quote_spanned! {ours=>
                    #private::#told(lockattr_error);
                    return #value;
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Answer<'a> {
    Policy(&'a str),
    Return(&'a Expr),
}

/// The locals of one lock that live while those of the others do.
struct Names {
    key: Ident,
    options: Ident,
    client: Ident,
}

impl Names {
    fn new(index: usize, ours: Span) -> Self {
        Self {
            key: format_ident!("lockattr_key_{index}", span = ours),
            options: format_ident!("lockattr_options_{index}", span = ours),
            client: format_ident!("lockattr_client_{index}", span = ours),
        }
    }
}

/// The path to the runtime.
pub(crate) fn krate(args: &Args, ours: Span) -> TokenStream {
    match &args.krate {
        None => quote_spanned! {ours=> ::lockattr },
        Some(path) => path.to_token_stream(),
    }
}

/// Everything an expansion names is in here.
fn private(args: &Args, ours: Span) -> TokenStream {
    let krate = krate(args, ours);
    quote_spanned! {ours=> #krate::__private }
}

fn length_tokens(private: &TokenStream, length: &Length, ours: Span) -> TokenStream {
    match length {
        Length::Millis(millis) => {
            let millis = proc_macro2::Literal::u64_unsuffixed(*millis);
            quote_spanned! {ours=> #private::core::time::Duration::from_millis(#millis) }
        }
        Length::Expr(expr) => {
            let at = ours.located_at(expr.span());
            let private = located(private, at);
            quote_spanned! {at=>
                {
                    let lockattr_length: #private::core::time::Duration = #expr;
                    lockattr_length
                }
            }
        }
    }
}

/// An expression that `&` can stand before.
fn operand(expr: &Expr) -> TokenStream {
    match expr {
        Expr::Path(_)
        | Expr::Field(_)
        | Expr::MethodCall(_)
        | Expr::Call(_)
        | Expr::Index(_)
        | Expr::Macro(_)
        | Expr::Paren(_)
        | Expr::Reference(_)
        | Expr::Unary(_)
        | Expr::Await(_)
        | Expr::Try(_)
        | Expr::Block(_) => expr.to_token_stream(),
        _ => quote_spanned! {expr.span()=> (#expr) },
    }
}

/// The same tokens, with the same meaning, at another place.
fn located(tokens: &TokenStream, at: Span) -> TokenStream {
    tokens
        .clone()
        .into_iter()
        .map(|mut token| {
            if let TokenTree::Group(group) = &token {
                let mut moved = Group::new(group.delimiter(), located(&group.stream(), at));
                moved.set_span(group.span().located_at(at));
                return TokenTree::Group(moved);
            }
            token.set_span(token.span().located_at(at));
            token
        })
        .collect()
}
