//! One lock around one body.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned as _;

use crate::args::{Args, OnBusy, OnLost, OnUnavailable};
use crate::key::{Key, Part};
use crate::locals::Locals;
use crate::tokens::{located, operand};
use crate::values::Length;

/// One attribute, checked against its function.
pub(crate) struct Lock {
    pub(crate) args: Args,
    /// One, or several that are taken together.
    pub(crate) keys: Vec<Key>,
}

/// What the code around a lock knows.
pub(crate) struct Place<'a> {
    pub(crate) locals: &'a Locals,
    /// Tells the block of the body its type.
    pub(crate) hint: &'a TokenStream,
    /// Where the type is written that has to have the answers.
    pub(crate) answers: Span,
    /// One for each lock of a function.
    pub(crate) index: usize,
}

impl Lock {
    /// Input:  `crate = ::my_locks`
    /// Output: `use ::my_locks::__private as private;`, through which everything else is named, so
    ///         that a wrong path is one error
    pub(crate) fn import(&self, index: usize, locals: &Locals) -> TokenStream {
        let given = self.args.krate.as_ref();
        let at = given.map_or(locals.ours, |path| locals.ours.located_at(path.span()));
        let krate = krate(&self.args, at);
        let mut private = locals.nth("private", index);
        private.set_span(at);
        quote_spanned! {at=> use #krate::__private as #private; }
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
        let settings = settings(&private, &self.args, &options, locals);
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
            #(#settings)*
            let #client = #chosen;
        }
    }

    /// Input:  BODY, which ends in its value
    /// Output: statements that take the lock, run BODY under it, give it back and `return`
    pub(crate) fn guarded(&self, place: &Place<'_>, body: &TokenStream) -> TokenStream {
        let Place {
            locals,
            hint,
            index,
            ..
        } = *place;
        let ours = locals.ours;
        let private = private(index, locals);
        let key = locals.nth("key", index);
        let options = locals.nth("options", index);
        let client = locals.nth("client", index);
        let [entered, lease, error] = ["entered", "lease", "error"].map(|word| locals.name(word));
        let [pinned, leaving, ending, run] =
            ["body", "leaving", "ending", "run"].map(|word| locals.name(word));
        let bind = self.args.bind.as_ref().map(|name| {
            quote_spanned! {ours=> let #name = &#lease; }
        });
        let busy = answer(&private, place, "busy", not_run(&self.args.on_busy));
        // A mark that another function has left keeps this one from its key like any holder.
        let (busy_or_done, done) = if self.args.once.is_some() {
            let done = answer(&private, place, "done", not_run(&self.args.on_done));
            let done = quote_spanned! {ours=>
                #private::Entered::Done(#error) => { #done }
            };
            (None, Some(done))
        } else {
            let done = quote_spanned! {ours=> | #private::Entered::Done(#error) };
            (Some(done), None)
        };
        let down = answer(
            &private,
            place,
            "down",
            match &self.args.on_unavailable {
                OnUnavailable::Skip => Answer::Policy("skip"),
                // What has another cause than an outage is told in these cases as well.
                OnUnavailable::Error | OnUnavailable::Run | OnUnavailable::Local => {
                    Answer::Policy("error")
                }
                OnUnavailable::Return(value) => Answer::Return(value),
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
        let end = self.end(&private, place, &prepared, &run);
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
    /// What is awaited is the value itself, wherever it can be: the compiler then blames the body's
    /// own line, and not this `return`, for a reference that does not live long enough.
    fn end(
        &self,
        private: &TokenStream,
        place: &Place<'_>,
        prepared: &TokenStream,
        run: &Ident,
    ) -> TokenStream {
        let ours = place.locals.ours;
        let at = ours.located_at(place.answers);
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
                    ["outcome", "value", "error"].map(|word| place.locals.name(word));
                let lost = answer(private, place, "lost", Answer::Return(value));
                let result = quote_spanned! {ours=> #private::core::result::Result };
                let given = place.locals.name_at("value", at);
                let give = quote_spanned! {at=> return #given };
                // The body is gone before the user's expression is evaluated.
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
fn key_tokens(private: &TokenStream, key: &Key, locals: &Locals) -> TokenStream {
    /// What a placeholder may take, most ids fit in; the text grows where it is more.
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
/// Output: `Keys::all([ … first key …, … second key … ])`, or one key as it is
fn keys_tokens(private: &TokenStream, keys: &[Key], locals: &Locals) -> TokenStream {
    if let [key] = keys {
        return key_tokens(private, key, locals);
    }
    let keys = keys.iter().map(|key| key_tokens(private, key, locals));
    let ours = locals.ours;
    quote_spanned! {ours=> #private::Keys::all([#(#keys),*]) }
}

/// Input:  `ttl = "30s", permits = limit`
/// Output: `let options = Options::new(); let options = Options::ttl(options, …); …`
fn settings(
    private: &TokenStream,
    args: &Args,
    options: &Ident,
    locals: &Locals,
) -> Vec<TokenStream> {
    let ours = locals.ours;
    let grace = match &args.on_lost {
        OnLost::Cancel(grace) => grace.as_ref(),
        OnLost::Continue | OnLost::Return(_) => None,
    };
    let lengths = [
        ("ttl", args.ttl.as_ref()),
        ("wait", args.wait.as_ref()),
        ("min_hold", args.min_hold.as_ref()),
        ("max_hold", args.max_hold.as_ref()),
        ("once", args.once.as_ref()),
        ("grace", grace),
    ];
    let lengths = lengths.into_iter().filter_map(|(setting, length)| {
        let length = length_tokens(private, length?, locals);
        Some((setting, quote_spanned! {ours=> , #length }))
    });
    let permits = args.permits.as_ref().map(|permits| {
        let ty = quote_spanned! {ours=> #private::core::primitive::u32 };
        let permits = typed(permits, &ty, locals);
        ("permits", quote_spanned! {ours=> , #permits })
    });
    let renew = (!args.renew).then(|| ("renew", quote_spanned! {ours=> , false }));
    let when_unavailable = match &args.on_unavailable {
        OnUnavailable::Run => Some(("run_when_unavailable", TokenStream::new())),
        OnUnavailable::Local => Some(("local_when_unavailable", TokenStream::new())),
        _ => None,
    };
    let mut settings = vec![quote_spanned! {ours=> let #options = #private::Options::new(); }];
    for (setting, value) in lengths.chain(permits).chain(renew).chain(when_unavailable) {
        let setting = Ident::new(setting, ours);
        settings.push(quote_spanned! {ours=>
            let #options = #private::Options::#setting(#options #value);
        });
    }
    settings
}

fn length_tokens(private: &TokenStream, length: &Length, locals: &Locals) -> TokenStream {
    let ours = locals.ours;
    match length {
        Length::Millis(millis) => {
            let millis = Literal::u64_unsuffixed(*millis);
            quote_spanned! {ours=> #private::core::time::Duration::from_millis(#millis) }
        }
        Length::Expr(expr) => {
            let ty = quote_spanned! {ours=> #private::core::time::Duration };
            typed(expr, &ty, locals)
        }
    }
}

/// Input:  `limit`, `u32`
/// Output: `{ let value: u32 = limit; value }`, so that a wrong type is told at the expression
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
/// Output: `return busy_skip(error)`, located at the return type, which has to have the answer
fn answer(
    private: &TokenStream,
    place: &Place<'_>,
    event: &str,
    answer: Answer<'_>,
) -> TokenStream {
    let ours = place.locals.ours;
    match answer {
        Answer::Policy(policy) => {
            let at = ours.located_at(place.answers);
            let error = place.locals.name_at("error", at);
            let private = located(private, at);
            let answer = format_ident!("{event}_{policy}", span = at);
            quote_spanned! {at=> return #private::#answer(#error); }
        }
        Answer::Return(value) => {
            let told = format_ident!("{event}_return", span = ours);
            let error = place.locals.name("error");
            // Where the attribute needs a value, the compiler's lints find a user's `()` idle.
            let value = match value {
                Expr::Tuple(unit) if unit.elems.is_empty() => quote_spanned! {ours=> () },
                value => value.to_token_stream(),
            };
            quote_spanned! {ours=>
                #private::#told(#error);
                return #value;
            }
        }
    }
}

#[derive(Clone, Copy)]
enum Answer<'a> {
    Policy(&'a str),
    Return(&'a Expr),
}

fn not_run(policy: &OnBusy) -> Answer<'_> {
    match policy {
        OnBusy::Skip => Answer::Policy("skip"),
        OnBusy::Error => Answer::Policy("error"),
        OnBusy::Return(value) => Answer::Return(value),
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
pub(crate) fn private(index: usize, locals: &Locals) -> TokenStream {
    locals.nth("private", index).into_token_stream()
}
