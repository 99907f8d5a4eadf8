//! The expansion of one lock around a body that blocks its thread.

use proc_macro2::TokenStream;
use quote::quote_spanned;

use crate::args::OnLost;
use crate::lock::{Lock, LockSite, ReturnBy, private, return_tokens};
use crate::tokens::located;

impl Lock {
    /// Input:  BODY, which ends in its value; the hint of the context is `-> T`
    /// Output: statements that take the lock, run BODY under it, give it back and `return`
    ///
    /// The body is a closure, which keeps `.await` out of it.
    pub(crate) fn guarded_blocking(
        &self,
        context: &LockSite<'_>,
        body: &TokenStream,
    ) -> TokenStream {
        let LockSite {
            locals,
            hint: returns,
            return_type,
            index,
            ..
        } = *context;
        let ours = locals.ours;
        let private = private(index, locals);
        let [lease, to_run, judge] = ["lease", "body", "judge"].map(|word| locals.name(word));
        let bind = self.bind(context);
        let entered = self.entered(context, "enter_blocking", &TokenStream::new());
        let judged = self.judge(&private, context, "body");
        let at = ours.located_at(return_type);
        let end = match &self.args.on_lost {
            OnLost::Cancel(_) => {
                let there = located(&private, at);
                let lost = quote_spanned! {at=> #there::lost_cancel };
                quote_spanned! {ours=>
                    return #private::unless_lost_blocking(#to_run, &#lease, #judge, #lost);
                }
            }
            OnLost::Continue => quote_spanned! {ours=>
                return #private::lost_continue(
                    #private::Body::run_to_the_end(#to_run, &#lease, #judge),
                );
            },
            OnLost::Return(value) => {
                let [answer, error] = ["value", "error"].map(|word| locals.name(word));
                let lost = return_tokens(&private, context, "lost", ReturnBy::Expr(value));
                let result = quote_spanned! {ours=> #private::core::result::Result };
                let given = locals.name_at("value", at);
                let give = quote_spanned! {at=> return #given };
                quote_spanned! {ours=>
                    match #private::Body::run_within(#to_run, &#lease, #judge) {
                        #result::Ok(#answer) => #give,
                        #result::Err(#error) => { #lost }
                    }
                }
            }
        };
        quote_spanned! {ours=>
            #entered
            #bind
            let #to_run = #private::Body::of(move || #returns { #body });
            let #judge = #judged;
            #end
        }
    }
}
