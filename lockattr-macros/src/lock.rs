//! One lock around one body.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned as _;

use crate::args::{Args, OnBusy, OnLost, OnUnavailable};
use crate::key::{Key, Part};
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
    /// Our names are seen by our code alone.
    pub(crate) ours: Span,
    /// Tells the block of the body its type.
    pub(crate) hint: &'a TokenStream,
    /// Where the type is written that has to have the answers.
    pub(crate) answers: Span,
    /// One for each lock of a function.
    pub(crate) index: usize,
}

impl Lock {
    /// Input:  `key = "sync:<id>", ttl = "30s", client = self.locks`
    /// Output: `let key = …; let options = …; let client = …;`
    pub(crate) fn prepare(&self, index: usize, ours: Span) -> TokenStream {
        let private = private(&self.args, ours);
        let Names {
            key,
            options,
            client,
        } = Names::new(index, ours);
        let made_key = keys_tokens(&private, &self.keys, ours);
        let settings = settings(&private, &self.args, &options, ours);
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
            ours, hint, index, ..
        } = *place;
        let private = private(&self.args, ours);
        let Names {
            key,
            options,
            client,
        } = Names::new(index, ours);
        let bind = self.args.bind.as_ref().map(|name| {
            quote_spanned! {ours=> let #name = &lockattr_lease; }
        });
        let busy = answer(&private, place, "busy", not_run(&self.args.on_busy));
        // A mark that another function has left keeps this one from its key like any holder.
        let (busy_or_done, done) = if self.args.once.is_some() {
            let done = answer(&private, place, "done", not_run(&self.args.on_done));
            let done = quote_spanned! {ours=>
                #private::Entered::Done(lockattr_error) => { #done }
            };
            (None, Some(done))
        } else {
            let done = quote_spanned! {ours=> | #private::Entered::Done(lockattr_error) };
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
        let lost = match &self.args.on_lost {
            OnLost::Continue => None,
            OnLost::Cancel(_) => Some(answer(&private, place, "lost", Answer::Policy("cancel"))),
            OnLost::Return(value) => Some(answer(&private, place, "lost", Answer::Return(value))),
        };
        let run = if lost.is_some() {
            "__lockattr_within"
        } else {
            "__lockattr_to_the_end"
        };
        let run = Ident::new(run, ours);
        let end = end(&private, lost.as_ref(), ours);
        quote_spanned! {ours=>
            let lockattr_entered = #private::enter(#client, #key, #options).await;
            let lockattr_lease = match lockattr_entered {
                #private::Entered::Held(lockattr_lease) => lockattr_lease,
                #private::Entered::Busy(lockattr_error) #busy_or_done => { #busy }
                #done
                #private::Entered::Down(lockattr_error) => { #down }
            };
            let lockattr_outcome = {
                #bind
                let lockattr_body = #private::core::pin::pin!(async move { #hint #body });
                let lockattr_leaving =
                    #private::core::pin::pin!(#private::leave(&lockattr_lease));
                let lockattr_ending = #private::Ending::of(&lockattr_body);
                let lockattr_run = lockattr_ending.#run(
                    &lockattr_lease,
                    lockattr_body,
                    lockattr_leaving,
                    lockattr_ending.verdict().__lockattr_judge(),
                );
                let lockattr_outcome = lockattr_run.await;
                lockattr_outcome
            };
            #end
        }
    }
}

/// Input:  `"sync:<order.id>"`
/// Output: `{ let w = KeyWriter::new(25); let w = KeyWriter::text(w, "sync:"); … finish(w) }`
fn key_tokens(private: &TokenStream, key: &Key, ours: Span) -> TokenStream {
    /// What a placeholder may take, most ids fit in; the text grows where it is more.
    const PER_VALUE: usize = 20;
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
    let capacity = Literal::usize_unsuffixed(capacity);
    quote_spanned! {ours=>
        {
            let lockattr_writer = #private::KeyWriter::new(#capacity);
            #(#steps)*
            #private::KeyWriter::finish(lockattr_writer)
        }
    }
}

/// Input:  `["account:<from>", "account:<to>"]`
/// Output: `Keys::all([ … first key …, … second key … ])`, or one key as it is
fn keys_tokens(private: &TokenStream, keys: &[Key], ours: Span) -> TokenStream {
    if let [key] = keys {
        return key_tokens(private, key, ours);
    }
    let keys = keys.iter().map(|key| key_tokens(private, key, ours));
    quote_spanned! {ours=> #private::Keys::all([#(#keys),*]) }
}

/// Input:  `ttl = "30s", permits = limit`
/// Output: `let options = Options::new(); let options = Options::ttl(options, …); …`
fn settings(private: &TokenStream, args: &Args, options: &Ident, ours: Span) -> Vec<TokenStream> {
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
        let length = length_tokens(private, length?, ours);
        Some((setting, quote_spanned! {ours=> , #length }))
    });
    let permits = args.permits.as_ref().map(|permits| {
        let ty = quote_spanned! {ours=> #private::core::primitive::u32 };
        let permits = typed(permits, &ty);
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

fn length_tokens(private: &TokenStream, length: &Length, ours: Span) -> TokenStream {
    match length {
        Length::Millis(millis) => {
            let millis = Literal::u64_unsuffixed(*millis);
            quote_spanned! {ours=> #private::core::time::Duration::from_millis(#millis) }
        }
        Length::Expr(expr) => {
            let ty = quote_spanned! {ours=> #private::core::time::Duration };
            typed(expr, &ty)
        }
    }
}

/// Input:  `limit`, `u32`
/// Output: `{ let value: u32 = limit; value }`, so that a wrong type is told at the expression
fn typed(expr: &Expr, ty: &TokenStream) -> TokenStream {
    let at = Span::mixed_site().located_at(expr.span());
    let ty = located(ty, at);
    quote_spanned! {at=>
        {
            let lockattr_value: #ty = #expr;
            lockattr_value
        }
    }
}

/// Input:  what to answer when the lease was lost, unless the body runs on
/// Output: `match outcome { Ok(value) => return value, … }`
fn end(private: &TokenStream, lost: Option<&TokenStream>, ours: Span) -> TokenStream {
    let Some(lost) = lost else {
        let option = quote_spanned! {ours=> #private::core::option::Option };
        return quote_spanned! {ours=>
            let (lockattr_value, lockattr_ended) = lockattr_outcome;
            if let #option::Some(lockattr_error) = lockattr_ended {
                #private::lost_continue(lockattr_error);
            }
            return lockattr_value;
        };
    };
    let result = quote_spanned! {ours=> #private::core::result::Result };
    quote_spanned! {ours=>
        match lockattr_outcome {
            #result::Ok(lockattr_value) => return lockattr_value,
            #result::Err(lockattr_error) => { #lost }
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
    let ours = place.ours;
    match answer {
        Answer::Policy(policy) => {
            let at = ours.located_at(place.answers);
            let private = located(private, at);
            let answer = format_ident!("{event}_{policy}", span = at);
            quote_spanned! {at=> return #private::#answer(lockattr_error); }
        }
        Answer::Return(value) => {
            let told = format_ident!("{event}_return", span = ours);
            // Where the attribute needs a value, the compiler's lints find a user's `()` idle.
            let value = match value {
                Expr::Tuple(unit) if unit.elems.is_empty() => quote_spanned! {ours=> () },
                value => value.to_token_stream(),
            };
            quote_spanned! {ours=>
                #private::#told(lockattr_error);
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
pub(crate) fn private(args: &Args, ours: Span) -> TokenStream {
    let krate = krate(args, ours);
    quote_spanned! {ours=> #krate::__private }
}
