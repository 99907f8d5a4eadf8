//! The expansion of one lock around one body.

use proc_macro2::{Ident, Literal, Span, TokenStream};
use quote::{ToTokens as _, format_ident, quote_spanned};
use syn::Expr;
use syn::spanned::Spanned as _;

use crate::args::{Args, OnBusy, OnDone, OnLost, OnUnavailable};
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
    /// Of a function that returns a stream, the name of what knows its items.
    pub(crate) items: Option<&'a Ident>,
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
        let made_key = keys_tokens(&private, &self.keys, self.args.is_list, locals);
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
        let lease = locals.name("lease");
        let [pinned, leaving, ending, run] =
            ["body", "leaving", "ending", "run"].map(|word| locals.name(word));
        let bind = self.bind(context);
        let method = match &self.args.on_lost {
            OnLost::Continue => "__lockattr_to_the_end",
            OnLost::Cancel(_) | OnLost::Return(_) => "__lockattr_within",
        };
        let method = Ident::new(method, ours);
        let judge = self.judge(&private, context, "ending");
        let prepared = quote_spanned! {ours=>
            #bind
            let #pinned = #private::core::pin::pin!(async move { #hint #body });
            let #leaving = #private::core::pin::pin!(#private::leave(&#lease));
            let #ending = #private::Ending::of(&#pinned);
            let #run = #ending.#method(
                &#lease,
                #pinned,
                #leaving,
                #judge,
            );
        };
        let end = self.end(&private, context, &prepared, &run);
        let entered = self.entered(context, "enter", &quote_spanned! {ours=> .await });
        quote_spanned! {ours=> #entered #end }
    }

    /// Input:  `bind = lease`
    /// Output: `let lease = Guarded::lease(&guarded);`
    pub(crate) fn bind(&self, context: &LockSite<'_>) -> Option<TokenStream> {
        let name = self.args.bind.as_ref()?;
        let ours = context.locals.ours;
        let private = private(context.index, context.locals);
        let lease = context.locals.name("lease");
        Some(quote_spanned! {ours=> let #name = #private::Guarded::lease(&#lease); })
    }

    /// Input:  `"enter"`, `.await`
    /// Output: statements that take the lock by that function, or answer why there is none
    pub(crate) fn entered(
        &self,
        context: &LockSite<'_>,
        enter: &str,
        awaited: &TokenStream,
    ) -> TokenStream {
        let LockSite { locals, index, .. } = *context;
        let ours = locals.ours;
        let private = private(index, locals);
        let enter = Ident::new(enter, ours);
        let [client, key, options] =
            ["client", "key", "options"].map(|word| locals.nth(word, index));
        let [entered, lease, error] = ["entered", "lease", "error"].map(|word| locals.name(word));
        let busy = return_tokens(&private, context, "busy", not_run(&self.args.on_busy));
        // Without `once`, a done mark that another function left counts as busy.
        let (busy_or_done, done) = if self.args.once.is_some() {
            let done = return_tokens(&private, context, "done", done(&self.args.on_done));
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
        quote_spanned! {ours=>
            let #entered = #private::#enter(#client, #key, #options) #awaited;
            let #lease = match #entered {
                #private::Entered::Held(#lease) => #lease,
                #private::Entered::Busy(#error) #busy_or_done => { #busy }
                #done
                #private::Entered::Down(#error) => { #down }
            };
        }
    }

    /// Input:  `on_done = replay`
    /// Output: `keep_replay(&ending)`, located at the return type, which has to support it
    pub(crate) fn judge(
        &self,
        private: &TokenStream,
        context: &LockSite<'_>,
        ending: &str,
    ) -> TokenStream {
        let ours = context.locals.ours;
        let keep = match self.args.on_done {
            OnDone::Replay { errors: false } => "keep_replay",
            OnDone::Replay { errors: true } => "keep_replay_errors",
            OnDone::Skip | OnDone::Error | OnDone::Return(_) => {
                let ending = context.locals.name(ending);
                return quote_spanned! {ours=> #ending.verdict().__lockattr_judge() };
            }
        };
        let at = ours.located_at(context.return_type);
        let there = located(private, at);
        let keep = Ident::new(keep, at);
        let ending = context.locals.name_at(ending, at);
        quote_spanned! {at=> #there::#keep(&#ending) }
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
                let lost = if let Some(items) = context.items {
                    let mut items = items.clone();
                    items.set_span(at);
                    quote_spanned! {at=> #items.__lockattr_lost() }
                } else {
                    let there = located(private, at);
                    quote_spanned! {at=> #there::lost_cancel }
                };
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
/// Output: `{ let w = KeyWriter::new(25); let w = KeyWriter::text(w, "sync:"); … finish(w) }`; in a list, its own
///         writer, and `ListValue::of(&order.id).__lockattr_write(w, …)` for a value
fn key_tokens(
    private: &TokenStream,
    key: &KeyTemplate,
    in_list: bool,
    locals: &Locals,
) -> TokenStream {
    /// The capacity for one value. Most ids fit, and the text grows for others.
    const PER_VALUE: usize = 20;
    let ours = locals.ours;
    let writer = locals.name("writer");
    let writer_type = Ident::new(
        if in_list {
            "KeyListWriter"
        } else {
            "KeyWriter"
        },
        ours,
    );
    let mut capacity = 0;
    let mut steps = Vec::new();
    for part in &key.parts {
        match part {
            Part::Text(text) => {
                capacity += text.len();
                steps.push(quote_spanned! {ours=>
                    let #writer =
                        #private::#writer_type::text(#writer, #text);
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
                let write = if in_list {
                    quote_spanned! {at=>
                        #private::ListValue::of(&#value).__lockattr_write(#writer, #name, #next)
                    }
                } else {
                    quote_spanned! {at=>
                        #private::KeyWriter::value(#writer, #name, #next, &#value)
                    }
                };
                steps.push(quote_spanned! {ours=> let #writer = #write; });
            }
        }
    }
    let capacity = Literal::usize_unsuffixed(capacity);
    quote_spanned! {ours=>
        {
            let #writer = #private::#writer_type::new(#capacity);
            #(#steps)*
            #private::#writer_type::finish(#writer)
        }
    }
}

/// Input:  `["account:<from>", "account:<to>"]`
/// Output: `Keys::of_templates([ … first key …, … second key … ])`; a single key without brackets stays alone
fn keys_tokens(
    private: &TokenStream,
    keys: &[KeyTemplate],
    is_list: bool,
    locals: &Locals,
) -> TokenStream {
    if let ([key], false) = (keys, is_list) {
        return key_tokens(private, key, false, locals);
    }
    let keys = keys
        .iter()
        .map(|key| key_tokens(private, key, true, locals));
    let ours = locals.ours;
    quote_spanned! {ours=> #private::Keys::of_templates([#(#keys),*]) }
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
    let once_from = args.once_from_begin.then(|| {
        let from = quote_spanned! {ours=> , #private::OnceFrom::Begin };
        ("once_from", from)
    });
    let redact = args.redact.map(|redact| {
        let redact = Ident::new(if redact { "true" } else { "false" }, ours);
        ("redact", quote_spanned! {ours=> , #redact })
    });
    // First: it has a wait of its own, which `wait` replaces.
    let rerun = matches!(args.on_busy, OnBusy::Rerun);
    let rerun = rerun.then(|| ("rerun", quote_spanned! {ours=> , #private::core::line!() }));
    let when_unavailable = match &args.on_unavailable {
        OnUnavailable::Run => Some(("run_when_unavailable", TokenStream::new())),
        OnUnavailable::Local => Some(("local_when_unavailable", TokenStream::new())),
        _ => None,
    };
    let mut statements =
        vec![quote_spanned! {ours=> let #options = #private::Options::at(&#site); }];
    for (option, value) in rerun
        .into_iter()
        .chain(durations)
        .chain(numbers)
        .chain(shared)
        .chain(renew)
        .chain(once_from)
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
pub(crate) fn return_tokens(
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
            let answer = match context.items {
                Some(items) if policy == "error" && event == "down" => {
                    let mut items = items.clone();
                    items.set_span(at);
                    quote_spanned! {at=> #items.__lockattr_down()(#error) }
                }
                Some(_) if policy == "error" => {
                    let policy = format_ident!("{event}_error_item", span = at);
                    quote_spanned! {at=> #private::#policy(#error) }
                }
                _ => {
                    let policy = format_ident!("{event}_{policy}", span = at);
                    quote_spanned! {at=> #private::#policy(#error) }
                }
            };
            quote_spanned! {at=> return #answer; }
        }
        ReturnBy::Expr(value) => {
            let report = format_ident!("{event}_return", span = ours);
            let error = context.locals.name("error");
            // A user's own `()` is an unneeded unit to clippy where the attribute needs a value.
            let value = match value {
                Expr::Tuple(unit) if unit.elems.is_empty() => quote_spanned! {ours=> () },
                value => value.to_token_stream(),
            };
            let value = match context.items {
                Some(_) => quote_spanned! {ours=> #private::Ended::with(#value) },
                None => value,
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
pub(crate) enum ReturnBy<'a> {
    Policy(&'a str),
    Expr(&'a Expr),
}

fn not_run(policy: &OnBusy) -> ReturnBy<'_> {
    match policy {
        OnBusy::Skip => ReturnBy::Policy("skip"),
        OnBusy::Error => ReturnBy::Policy("error"),
        OnBusy::Rerun => ReturnBy::Policy("rerun"),
        OnBusy::Return(value) => ReturnBy::Expr(value),
    }
}

fn done(policy: &OnDone) -> ReturnBy<'_> {
    match policy {
        OnDone::Skip => ReturnBy::Policy("skip"),
        OnDone::Error => ReturnBy::Policy("error"),
        OnDone::Replay { errors: false } => ReturnBy::Policy("replay"),
        OnDone::Replay { errors: true } => ReturnBy::Policy("replay_errors"),
        OnDone::Return(value) => ReturnBy::Expr(value),
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
