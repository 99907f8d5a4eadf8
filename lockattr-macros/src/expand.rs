//! Expands a checked function and its locks to tokens. Nothing here can fail.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::Type;

use crate::body::{self, Tail};
use crate::function::{Function, Shape};
use crate::locals::Locals;
use crate::lock::{Lock, LockSite, private};
use crate::pattern::Rebind;
use crate::tokens::located;

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
        locals: Locals::of(&sig),
    };
    let body = match shape {
        Shape::Blocking { body, rebinds } => guard.in_blocking(&body, &rebinds),
        Shape::Async { body, rebinds } => guard.in_async(&body, &rebinds),
        Shape::Tail(tail) => guard.in_tail(tail),
        Shape::Made {
            body,
            future,
            boxed,
        } => guard.in_made(&body, future.as_ref(), boxed),
        Shape::Stream {
            body,
            stream,
            boxed,
        } => guard.in_stream(&body, stream.as_ref(), boxed),
    };
    // The span of the user's braces: errors about the whole function point there.
    let mut body = Group::new(Delimiter::Brace, body);
    body.set_span(braces);
    quote! { #(#attrs)* #vis #sig #body }
}

struct Guard<'a> {
    locks: &'a [Lock],
    output: Option<Type>,
    output_span: Span,
    locals: Locals,
}

impl Guard<'_> {
    /// Input:  `{ BODY }`
    /// Output: `let key = …; … async move { let mut a = a; match () { () => { BODY } } } …`
    fn in_async(&self, body: &Group, rebinds: &[Rebind]) -> TokenStream {
        let ours = self.locals.ours;
        let keys = self.keys();
        let rebinds = rebinds.iter().map(|rebind| rebind.tokens(ours));
        let body = self.apart(body);
        let run = self.run(&quote_spanned! {ours=> #(#rebinds)* #body });
        let ours_first = self.items();
        quote_spanned! {ours=> #ours_first #keys #run }
    }

    /// Input:  `{ BODY }`
    /// Output: `let key = …; … Body::of(move || -> T { let mut a = a; match () { () => { BODY } } }) …`
    fn in_blocking(&self, body: &Group, rebinds: &[Rebind]) -> TokenStream {
        let ours = self.locals.ours;
        let keys = self.keys();
        let rebinds = rebinds.iter().map(|rebind| rebind.tokens(ours));
        let body = self.apart(body);
        let returns = self.returns();
        let mut body = quote_spanned! {ours=> #(#rebinds)* #body };
        for (index, lock) in self.locks.iter().enumerate().rev() {
            let context = LockSite {
                locals: &self.locals,
                hint: &returns,
                return_type: self.output_span,
                items: None,
                index,
            };
            body = lock.guarded_blocking(&context, &body);
        }
        let ours_first = self.items();
        quote_spanned! {ours=> #ours_first #keys #body }
    }

    /// Input:  T, where it is written
    /// Output: `-> T`
    fn returns(&self) -> TokenStream {
        let ours = self.locals.ours;
        match &self.output {
            // A user's own `()` is an unneeded unit to clippy.
            Some(Type::Tuple(unit)) if unit.elems.is_empty() => quote_spanned! {ours=> -> () },
            Some(ty) => quote_spanned! {ours=> -> #ty },
            None => TokenStream::new(),
        }
    }

    /// The user's block, to be the last expression of a generated block.
    ///
    /// Nothing may follow it: a body that always returns would make that unreachable. It is a match
    /// arm for two reasons: the compiler does not call its braces unnecessary, and the temporaries
    /// of its last expression drop before the variables around it, which they may borrow.
    fn apart(&self, block: &Group) -> TokenStream {
        let ours = self.locals.ours;
        quote_spanned! {ours=> match () { () => #block } }
    }

    /// Input:  `STATEMENTS Box::pin(async move { BODY })`
    /// Output: `let key = …; STATEMENTS Box::pin(async move { … { BODY } … })`
    ///
    /// The keys come first, because the statements may move the arguments. The statements stay
    /// outside of the lock, because a function that returns a future runs them when it is called.
    /// The future stays the last expression, where `#[instrument]` below looks for it.
    fn in_tail(&self, tail: Tail) -> TokenStream {
        let ours = self.locals.ours;
        let Tail {
            items,
            before,
            pin,
            block,
            after,
        } = tail;
        let keys = self.keys();
        let hint = self.hint(self.output.as_ref());
        let run = self.run(&self.apart(&block));
        let future = self.future(&quote_spanned! {ours=> #hint #run }, block.span());
        let future = match pin {
            Some((path, parentheses)) => {
                let mut pinned = Group::new(parentheses.delimiter(), future);
                pinned.set_span(parentheses.span());
                quote_spanned! {ours=> #path #pinned }
            }
            None => future,
        };
        let ours_first = self.items();
        quote_spanned! {ours=> #ours_first #items #keys #before #future #after }
    }

    /// Input:  `{ if short { return Box::pin(async { 0 }); } Box::pin(f()) }`
    /// Output: `let key = …; let future = { … }; Box::pin(async move { … future.await … })`
    ///
    /// The body runs when the function is called and outside of the lock, as it would without the
    /// attribute. The lock is held while the future runs that the body returns. The body is put in
    /// an `async` block and not in a closure, because only a block can return what it borrows
    /// through an argument.
    fn in_made(&self, body: &Group, future: Option<&Type>, boxed: bool) -> TokenStream {
        let ours = self.locals.ours;
        let private = private(0, &self.locals);
        let keys = self.keys();
        let making = self.making(body, future);
        let hint = self.hint(self.output.as_ref());
        let made = self.locals.name("made");
        let run = self.run(&quote_spanned! {ours=> #made.await });
        let guarded = self.future(&quote_spanned! {ours=> #hint #run }, body.span());
        let guarded = self.boxed(boxed, guarded);
        let ours_first = self.items();
        quote_spanned! {ours=>
            #ours_first
            #keys
            let #made = #private::at_once(async move { #making });
            #guarded
        }
    }

    /// Input:  `{ rows(a).map(b) }`
    /// Output: `let key = …; let stream = { … }; locked_stream(slot, async move { … pass_on(stream, slot).await … })`
    ///
    /// The body runs when the function is called and outside of the lock, as with a function that returns a
    /// future.
    fn in_stream(&self, body: &Group, stream: Option<&Type>, boxed: bool) -> TokenStream {
        let ours = self.locals.ours;
        let private = private(0, &self.locals);
        let keys = self.keys();
        let making = self.making(body, stream);
        let [made, items, slot, taken, never] =
            ["made", "items", "slot", "taken", "never"].map(|word| self.locals.name(word));
        let option = quote_spanned! {ours=> #private::core::option::Option };
        let hint = quote_spanned! {ours=>
            if let #option::Some(#never) = #private::Items::none(#items) {
                return #never;
            }
        };
        let fails = quote_spanned! {ours=>
            #private::Items::verdict(#items).__lockattr_fails()
        };
        let run = self.run_with(
            &hint,
            Some(&items),
            &quote_spanned! {ours=> #private::pass_on(#made, #slot, #fails).await },
        );
        let call = self.future(&quote_spanned! {ours=> #hint #run }, body.span());
        let locked = quote_spanned! {ours=> #private::locked_stream(#taken, #call) };
        let locked = self.boxed(boxed, locked);
        // Of this type for the rest of the expansion, so that another one is told once.
        let at = ours.located_at(self.output_span);
        let of_type = self.output.as_ref();
        let of_type = of_type.map(|item| quote_spanned! {at=> ::<#item, _> });
        let there = located(&private, at);
        let stream = quote_spanned! {at=> #there::at_once(async move { #making }) };
        let stream = quote_spanned! {at=> #there::stream_of #of_type(#stream) };
        let ours_first = self.items();
        quote_spanned! {ours=>
            #ours_first
            #keys
            let #made = #stream;
            let #items = #private::Items::of(&#made);
            let #slot = #private::Slot::of(&#made);
            let #taken = #private::core::clone::Clone::clone(&#slot);
            #locked
        }
    }

    /// Input:  `{ if short { return Box::pin(async { 0 }); } Box::pin(f()) }`, the type of what it makes
    /// Output: the inside of an `async` block that makes the same
    fn making(&self, body: &Group, whole: Option<&Type>) -> TokenStream {
        let ours = self.locals.ours;
        let whole = self.hint(whole);
        let apart = self.apart(body);
        // A `return` in place of a last expression, which clippy would take for a future that is
        // not awaited. A body that ends in a `return` gets no second one, which is unreachable.
        if body::ends_in_return(body) {
            quote_spanned! {ours=> #whole #apart; }
        } else {
            quote_spanned! {ours=> #whole return #apart; }
        }
    }

    fn boxed(&self, boxed: bool, made: TokenStream) -> TokenStream {
        let ours = self.locals.ours;
        let private = private(0, &self.locals);
        if boxed {
            quote_spanned! {ours=> #private::std::boxed::Box::pin(#made) }
        } else {
            made
        }
    }

    /// Input:  `…`, the span of the user's braces
    /// Output: `async move { … }`, whose braces have that span: an attribute below takes it as the
    ///         hygiene of its own variables
    fn future(&self, inside: &TokenStream, braces: Span) -> TokenStream {
        let at = self.locals.ours.located_at(braces);
        let mut block = Group::new(Delimiter::Brace, inside.clone());
        block.set_span(braces);
        quote_spanned! {at=> async move #block }
    }

    /// Gives a block its type before its first `return`, so that the compiler coerces values and
    /// reports errors as in a function.
    ///
    /// Input:  T
    /// Output: `if let Some(never) = None::<T> { return never; }`
    fn hint(&self, ty: Option<&Type>) -> TokenStream {
        let Some(ty) = ty.filter(|ty| !matches!(ty, Type::Infer(_))) else {
            return TokenStream::new();
        };
        let at = self.locals.ours.located_at(self.output_span);
        let never = self.locals.name_at("never", at);
        let option = located(&private(0, &self.locals), at);
        let option = quote_spanned! {at=> #option::core::option::Option };
        quote_spanned! {at=>
            if let #option::Some(#never) = #option::None::<#ty> {
                return #never;
            }
        }
    }

    /// What the statements of all locks name, and which function each lock is of.
    fn items(&self) -> TokenStream {
        let locks = self.locks.iter().enumerate();
        let items = locks.flat_map(|(index, lock)| {
            let import = lock.import(index, &self.locals);
            [import, lock.site(index, &self.locals)]
        });
        items.collect()
    }

    /// Every key is rendered before anything is awaited or moved.
    fn keys(&self) -> TokenStream {
        let locks = self.locks.iter().enumerate();
        let keys = locks.map(|(index, lock)| lock.prepare(index, &self.locals));
        keys.collect()
    }

    /// Input:  `[lock a, lock b], BODY`
    /// Output: a { b { BODY } }
    fn run(&self, body: &TokenStream) -> TokenStream {
        self.run_with(&self.hint(self.output.as_ref()), None, body)
    }

    fn run_with(
        &self,
        hint: &TokenStream,
        items: Option<&Ident>,
        body: &TokenStream,
    ) -> TokenStream {
        let mut body = body.clone();
        for (index, lock) in self.locks.iter().enumerate().rev() {
            let context = LockSite {
                locals: &self.locals,
                hint,
                return_type: self.output_span,
                items,
                index,
            };
            body = lock.guarded(&context, &body);
        }
        body
    }
}
