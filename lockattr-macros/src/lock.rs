//! The expansion of one lock around one body.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned as _;

use crate::args::{Args, OnBusy, OnLost, OnUnavailable};
use crate::key::{KeyTemplate, Part};
use crate::locals::Locals;
use crate::tokens::{located, operand};
use crate::values::DurationValue;

/// One attribute, checked against its function.
pub(crate) struct Lock {
    pub(crate) args: Args,
    /// One, or several that are taken together.
    pub(crate) keys: Vec<KeyTemplate>,
}

/// What the expansion of one lock needs to know of its function.
pub(crate) struct LockSite<'a> {
    pub(crate) locals: &'a Locals,
    /// Gives the block of the body its type.
    pub(crate) hint: &'a TokenStream,
    /// The return type as written: errors about a policy it cannot express point here.
    pub(crate) return_type: Span,
    /// The lock's position in the order of the function's locks.
    pub(crate) index: usize,
}

impl Lock {
    /// Input:  `crate = ::my_locks`
    /// Output: `use ::my_locks::__private as private;`. All other paths go through it, so that a wrong
    ///         `crate` is one error
    pub(crate) fn import(&self, index: usize, locals: &Locals) -> TokenStream {
        let given = self.args.krate.as_ref();
        let at = given.map_or(locals.ours, |path| locals.ours.located_at(path.span()));
        let krate = krate(&self.args, at);
        let mut private = locals.nth("private", index);
        private.set_span(at);
        quote_spanned! {at=> use #krate::__private as #private; }
    }

    /// Input:  `key = "sync:<id>"` on `fn sync`
    /// Output: `static SITE: CallSite = CallSite::new(concat!(module_path!(), "::", "sync"), "sync:<id>");`
    pub(crate) fn site(&self, index: usize, locals: &Locals) -> TokenStream {
        let ours = locals.ours;
        let private = private(index, locals);
        let site = locals.nth_static("SITE", index);
        let core = quote_spanned! {ours=> #private::core };
        let function = &locals.function;
        let templates: Vec<_> = self.keys.iter().map(|key| key.written.as_str()).collect();
        let template = templates.join(", ");
        quote_spanned! {ours=>
            static #site: #private::CallSite = #private::CallSite::new(
                #core::concat!(#core::module_path!(), "::", #function),
                #template,
            );
        }
    }

    /// Input:  `key = "sync:<id>", ttl = "30s", client = self.locks`
    /// Output: `let key = …; let options = …; let client = …;`
    pub(crate) fn prepare(&self, index: usize, locals: &Locals) -> TokenStream {
        let ours = locals.ours;
        let private = private(index, locals);
        let key = locals.nth("key", index);
        let options = locals.nth("options", index);
        let client = locals.nth("client", index);
        let made_key = keys_tokens(&private, &self.keys, locals);
        let site = locals.nth_static("SITE", index);
        let set_options = option_tokens(&private, &self.args, [&options, &site], locals);
        let option = quote_spanned! {ours=> #private::core::option::Option };
        let chosen = match &self.args.client {
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
            #(#set_options)*
            let #client = #chosen;
        }
    }

    /// Input:  BODY, which ends in its value
    /// Output: statements that take the lock, run BODY under it, give it back and `return`
    pub(crate) fn guarded(&self, context: &LockSite<'_>, body: &TokenStream) -> TokenStream {
        let LockSite {
            locals,
            hint,
            index,
            ..
        } = *context;
        let ours = locals.ours;
        let private = private(index, locals);
        let key = locals.nth("key", index);
        let options = locals.nth("options", index);
        let client = locals.nth("client", index);
        let [entered, lease, error] = ["entered", "lease", "error"].map(|word| locals.name(word));
        let [pinned, leaving, ending, run] =
            ["body", "leaving", "ending", "run"].map(|word| locals.name(word));
        let bind = self.args.bind.as_ref().map(|name| {
            quote_spanned! {ours=> let #name = #private::Guarded::lease(&#lease); }
        });
        let busy = return_tokens(&private, context, "busy", not_run(&self.args.on_busy));
        // Without `once`, a done mark that another function left counts as busy.
        let (busy_or_done, done) = if self.args.once.is_some() {
            let done = return_tokens(&private, context, "done", not_run(&self.args.on_done));
            let done = quote_spanned! {ours=>
                #private::Entered::Done(#error) => { #done }
            };
            (None, Some(done))
        } else {
            let done = quote_spanned! {ours=> | #private::Entered::Done(#error) };
            (Some(done), None)
        };
        let down = return_tokens(
            &private,
            context,
            "down",
            match &self.args.on_unavailable {
                OnUnavailable::Skip => ReturnBy::Policy("skip"),
                // `run` and `local` cover outages alone: an invalid key, for example, is still an error.
                OnUnavailable::Error | OnUnavailable::Run | OnUnavailable::Local => {
                    ReturnBy::Policy("error")
                }
                OnUnavailable::Return(value) => ReturnBy::Expr(value),
            },
        );
        let method = match &self.args.on_lost {
            OnLost::Continue => "__lockattr_to_the_end",
            OnLost::Cancel(_) | OnLost::Return(_) => "__lockattr_within",
        };
        let method = Ident::new(method, ours);
        let prepared = quote_spanned! {ours=>
            #bind
            let #pinned = #private::core::pin::pin!(async move { #hint #body });
            let #leaving = #private::core::pin::pin!(#private::leave(&#lease));
            let #ending = #private::Ending::of(&#pinned);
            let #run = #ending.#method(
                &#lease,
                #pinned,
                #leaving,
                #ending.verdict().__lockattr_judge(),
            );
        };
        let end = self.end(&private, context, &prepared, &run);
        quote_spanned! {ours=>
            let #entered = #private::enter(#client, #key, #options).await;
            let #lease = match #entered {
                #private::Entered::Held(#lease) => #lease,
                #private::Entered::Busy(#error) #busy_or_done => { #busy }
                #done
                #private::Entered::Down(#error) => { #down }
            };
            #end
        }
    }

    /// Input:  `on_lost = cancel`, `…; let run = …;`
    /// Output: `…; let run = …; return unless_lost(pin!(run), lost_cancel).await;`
    ///
    /// The returned value is awaited directly wherever possible: for a reference that does not live
    /// long enough the compiler then points into the body, and not at this `return`.
    fn end(
        &self,
        private: &TokenStream,
        context: &LockSite<'_>,
        prepared: &TokenStream,
        run: &Ident,
    ) -> TokenStream {
        let ours = context.locals.ours;
        let at = ours.located_at(context.return_type);
        let pinned = quote_spanned! {ours=> #private::core::pin::pin!(#run) };
        let answered = match &self.args.on_lost {
            OnLost::Cancel(_) => {
                let there = located(private, at);
                let lost = quote_spanned! {at=> #there::lost_cancel };
                quote_spanned! {ours=> #private::unless_lost(#pinned, #lost) }
            }
            OnLost::Continue => {
                quote_spanned! {ours=> #private::answered(#pinned, #private::lost_continue) }
            }
            OnLost::Return(value) => {
                let [outcome, answer_of_body, error] =
                    ["outcome", "value", "error"].map(|word| context.locals.name(word));
                let lost = return_tokens(private, context, "lost", ReturnBy::Expr(value));
                let result = quote_spanned! {ours=> #private::core::result::Result };
                let given = context.locals.name_at("value", at);
                let give = quote_spanned! {at=> return #given };
                // The body is dropped before the user's expression is evaluated.
                return quote_spanned! {ours=>
                    let #outcome = {
                        #prepared
                        let #outcome = #run.await;
                        #outcome
                    };
                    match #outcome {
                        #result::Ok(#answer_of_body) => #give,
                        #result::Err(#error) => { #lost }
                    }
                };
            }
        };
        quote_spanned! {ours=>
            #prepared
            return #answered.await;
        }
    }
}

/// Input:  `"sync:<order.id>"`
/// Output: `{ let w = KeyWriter::new(25); let w = KeyWriter::text(w, "sync:"); … finish(w) }`
fn key_tokens(private: &TokenStream, key: &KeyTemplate, locals: &Locals) -> TokenStream {
    /// The capacity for one value. Most ids fit, and the text grows for others.
    const PER_VALUE: usize = 20;
    let ours = locals.ours;
    let writer = locals.name("writer");
    let mut capacity = 0;
    let mut steps = Vec::new();
    for part in &key.parts {
        match part {
            Part::Text(text) => {
                capacity += text.len();
                steps.push(quote_spanned! {ours=>
                    let #writer =
                        #private::KeyWriter::text(#writer, #text);
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
                    #private::KeyWriter::value(#writer, #name, #next, &#value)
                };
                steps.push(quote_spanned! {ours=> let #writer = #write; });
            }
        }
    }
    let capacity = Literal::usize_unsuffixed(capacity);
    quote_spanned! {ours=>
        {
            let #writer = #private::KeyWriter::new(#capacity);
            #(#steps)*
            #private::KeyWriter::finish(#writer)
        }
    }
}

/// Input:  `["account:<from>", "account:<to>"]`
/// Output: `Keys::all([ … first key …, … second key … ])`; a single key stays alone
fn keys_tokens(private: &TokenStream, keys: &[KeyTemplate], locals: &Locals) -> TokenStream {
    if let [key] = keys {
        return key_tokens(private, key, locals);
    }
    let keys = keys.iter().map(|key| key_tokens(private, key, locals));
    let ours = locals.ours;
    quote_spanned! {ours=> #private::Keys::all([#(#keys),*]) }
}

/// Input:  `ttl = "30s", permits = limit`
/// Output: `let options = Options::at(&SITE); let options = Options::ttl(options, …); …`
fn option_tokens(
    private: &TokenStream,
    args: &Args,
    [options, site]: [&Ident; 2],
    locals: &Locals,
) -> Vec<TokenStream> {
    let ours = locals.ours;
    let grace = match &args.on_lost {
        OnLost::Cancel(grace) => grace.as_ref(),
        OnLost::Continue | OnLost::Return(_) => None,
    };
    let durations = [
        ("ttl", args.ttl.as_ref()),
        ("wait", args.wait.as_ref()),
        ("min_hold", args.min_hold.as_ref()),
        ("max_hold", args.max_hold.as_ref()),
        ("once", args.once.as_ref()),
        ("grace", grace),
    ];
    let durations = durations.into_iter().filter_map(|(option, duration)| {
        let duration = duration_tokens(private, duration?, locals);
        Some((option, quote_spanned! {ours=> , #duration }))
    });
    let numbers = [
        ("permits", args.permits.as_ref()),
        ("weight", args.weight.as_ref()),
    ];
    let numbers = numbers.into_iter().filter_map(|(option, number)| {
        let ty = quote_spanned! {ours=> #private::core::primitive::u32 };
        let number = typed(number?, &ty, locals);
        Some((option, quote_spanned! {ours=> , #number }))
    });
    let shared = args.shared.then(|| ("shared", TokenStream::new()));
    let renew = (!args.renew).then(|| ("renew", quote_spanned! {ours=> , false }));
    let redact = args.redact.map(|redact| {
        let redact = Ident::new(if redact { "true" } else { "false" }, ours);
        ("redact", quote_spanned! {ours=> , #redact })
    });
    let when_unavailable = match &args.on_unavailable {
        OnUnavailable::Run => Some(("run_when_unavailable", TokenStream::new())),
        OnUnavailable::Local => Some(("local_when_unavailable", TokenStream::new())),
        _ => None,
    };
    let mut statements =
        vec![quote_spanned! {ours=> let #options = #private::Options::at(&#site); }];
    for (option, value) in durations
        .chain(numbers)
        .chain(shared)
        .chain(renew)
        .chain(redact)
        .chain(when_unavailable)
    {
        let option = Ident::new(option, ours);
        statements.push(quote_spanned! {ours=>
            let #options = #private::Options::#option(#options #value);
        });
    }
    statements
}

fn duration_tokens(
    private: &TokenStream,
    duration: &DurationValue,
    locals: &Locals,
) -> TokenStream {
    let ours = locals.ours;
    match duration {
        DurationValue::Millis(millis) => {
            let millis = Literal::u64_unsuffixed(*millis);
            quote_spanned! {ours=> #private::core::time::Duration::from_millis(#millis) }
        }
        DurationValue::Expr(expr) => {
            let ty = quote_spanned! {ours=> #private::core::time::Duration };
            typed(expr, &ty, locals)
        }
    }
}

/// Input:  `limit`, `u32`
/// Output: `{ let value: u32 = limit; value }`, so that a wrong type is reported at the expression
fn typed(expr: &Expr, ty: &TokenStream, locals: &Locals) -> TokenStream {
    let at = locals.ours.located_at(expr.span());
    let value = locals.name_at("value", at);
    let ty = located(ty, at);
    quote_spanned! {at=>
        {
            let #value: #ty = #expr;
            #value
        }
    }
}

/// Input:  `"busy", Policy("skip")`
/// Output: `return busy_skip(error)`, located at the return type, which has to support the policy
fn return_tokens(
    private: &TokenStream,
    context: &LockSite<'_>,
    event: &str,
    by: ReturnBy<'_>,
) -> TokenStream {
    let ours = context.locals.ours;
    match by {
        ReturnBy::Policy(policy) => {
            let at = ours.located_at(context.return_type);
            let error = context.locals.name_at("error", at);
            let private = located(private, at);
            let policy = format_ident!("{event}_{policy}", span = at);
            quote_spanned! {at=> return #private::#policy(#error); }
        }
        ReturnBy::Expr(value) => {
            let report = format_ident!("{event}_return", span = ours);
            let error = context.locals.name("error");
            // A user's own `()` is an unneeded unit to clippy where the attribute needs a value.
            let value = match value {
                Expr::Tuple(unit) if unit.elems.is_empty() => quote_spanned! {ours=> () },
                value => value.to_token_stream(),
            };
            quote_spanned! {ours=>
                #private::#report(#error);
                return #value;
            }
        }
    }
}

/// Where the return value comes from when it is not the body's.
#[derive(Clone, Copy)]
enum ReturnBy<'a> {
    Policy(&'a str),
    Expr(&'a Expr),
}

fn not_run(policy: &OnBusy) -> ReturnBy<'_> {
    match policy {
        OnBusy::Skip => ReturnBy::Policy("skip"),
        OnBusy::Error => ReturnBy::Policy("error"),
        OnBusy::Return(value) => ReturnBy::Expr(value),
    }
}

/// The path to the runtime.
pub(crate) fn krate(args: &Args, ours: Span) -> TokenStream {
    match &args.krate {
        None => quote_spanned! {ours=> ::lockattr },
        Some(path) => path.to_token_stream(),
    }
}

/// The module through which an expansion names everything else.
pub(crate) fn private(index: usize, locals: &Locals) -> TokenStream {
    locals.nth("private", index).into_token_stream()
}
