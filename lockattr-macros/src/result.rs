//! The return type: the type of the value, a future and the type of its output, or a stream.

use proc_macro2::Span;
use quote::quote_spanned;
use syn::spanned::Spanned as _;
use syn::visit_mut::{self, VisitMut};
use syn::{
    GenericArgument, Path, PathArguments, PathSegment, ReturnType, Token, Type, TypeInfer,
    TypeParamBound,
};

/// Input:  `-> Result<impl Iterator<Item = u8>, E>`
/// Output: `Result<_, E>`, which can stand in a body
pub(crate) fn written(output: &ReturnType) -> Type {
    match output {
        ReturnType::Default => syn::parse_quote!(()),
        ReturnType::Type(_, ty) => inferred(ty),
    }
}

/// Each `impl Trait` replaced by `_`.
fn inferred(ty: &Type) -> Type {
    let mut ty = ty.clone();
    Inferred.visit_type_mut(&mut ty);
    ty
}

struct Inferred;

impl VisitMut for Inferred {
    fn visit_type_mut(&mut self, ty: &mut Type) {
        if let Type::ImplTrait(opaque) = ty {
            let underscore_token = Token![_](opaque.impl_token.span);
            *ty = Type::Infer(TypeInfer {
                attrs: Vec::new(),
                underscore_token,
            });
        } else {
            visit_mut::visit_type_mut(self, ty);
        }
    }
}

/// A return type that is a future or a stream.
pub(crate) struct Returned {
    /// The type of its value, or of its items, where that can be written in a body.
    pub(crate) value: Option<Type>,
    pub(crate) span: Span,
    /// The return type itself, where that can be written in a body.
    pub(crate) whole: Option<Type>,
    /// It is a `Pin<Box<_>>`.
    pub(crate) boxed: bool,
}

/// Input:  `-> Pin<Box<dyn Future<Output = u8> + Send + '_>>`
/// Output: Returned { value: u8, boxed }
pub(crate) fn future(output: &ReturnType) -> Option<Returned> {
    returned(output, ["Future", "Output", "BoxFuture"], |alias| {
        // Only the compiler can resolve an alias, so the type is written as a projection.
        let at = Span::mixed_site().located_at(alias.span());
        let value = quote_spanned! {at=> <#alias as ::core::future::Future>::Output };
        syn::parse2(value).ok()
    })
}

/// Input:  `-> Pin<Box<dyn Stream<Item = u8> + Send + '_>>`
/// Output: Returned { value: u8, boxed }
pub(crate) fn stream(output: &ReturnType) -> Option<Returned> {
    returned(output, ["Stream", "Item", "BoxStream"], |_| None)
}

/// By the names of the trait, of the type that belongs to it, and of an alias for a boxed one.
fn returned(
    output: &ReturnType,
    [name, belongs, alias]: [&str; 3],
    value_of_alias: impl Fn(&Type) -> Option<Type>,
) -> Option<Returned> {
    let ReturnType::Type(_, ty) = output else {
        return None;
    };
    let ty = ungrouped(ty);
    let (value, boxed) = match ty {
        Type::ImplTrait(opaque) => (value_of(bound(&opaque.bounds, name)?, belongs), false),
        Type::Path(path) => match pinned(&path.path) {
            Some(bounds) => (value_of(bound(bounds, name)?, belongs), true),
            None if is_alias(&path.path, alias) => {
                return Some(Returned {
                    value: value_of_alias(ty),
                    span: ty.span(),
                    whole: Some(inferred(ty)),
                    boxed: true,
                });
            }
            None => return None,
        },
        _ => return None,
    };
    Some(Returned {
        span: value.map_or(ty.span(), Type::span),
        value: value.map(inferred),
        whole: boxed.then(|| inferred(ty)),
        boxed,
    })
}

fn ungrouped(mut ty: &Type) -> &Type {
    loop {
        ty = match ty {
            Type::Group(group) => &group.elem,
            Type::Paren(paren) => &paren.elem,
            _ => return ty,
        };
    }
}

/// Input:  `Send + Future<Output = u8>`, `Future`
/// Output: `Future<Output = u8>`
fn bound<'a>(
    bounds: impl IntoIterator<Item = &'a TypeParamBound>,
    wanted: &str,
) -> Option<&'a PathSegment> {
    let mut names = bounds.into_iter().filter_map(|bound| match bound {
        TypeParamBound::Trait(bound) => bound.path.segments.last(),
        _ => None,
    });
    names.find(|name| name.ident == wanted)
}

/// Input:  `Future<Output = u8>`, `Output`
/// Output: `u8`, or `None` for `Future` alone
fn value_of<'a>(bound: &'a PathSegment, name: &str) -> Option<&'a Type> {
    arguments(bound).find_map(|argument| match argument {
        GenericArgument::AssocType(assoc) if assoc.ident == name => Some(&assoc.ty),
        _ => None,
    })
}

fn arguments(segment: &PathSegment) -> impl Iterator<Item = &GenericArgument> {
    match &segment.arguments {
        PathArguments::AngleBracketed(arguments) => Some(arguments.args.iter()),
        _ => None,
    }
    .into_iter()
    .flatten()
}

fn only_type<'a>(path: &'a Path, name: &str) -> Option<&'a Type> {
    let last = path.segments.last().filter(|last| last.ident == name)?;
    arguments(last).find_map(|argument| match argument {
        GenericArgument::Type(ty) => Some(ungrouped(ty)),
        _ => None,
    })
}

/// Input:  `Pin<Box<dyn Future<Output = u8> + Send>>`
/// Output: `Future<Output = u8> + Send`
fn pinned(path: &Path) -> Option<impl Iterator<Item = &TypeParamBound>> {
    let Type::Path(boxed) = only_type(path, "Pin")? else {
        return None;
    };
    match only_type(&boxed.path, "Box")? {
        Type::TraitObject(object) => Some(object.bounds.iter()),
        _ => None,
    }
}

fn is_alias(path: &Path, ends: &str) -> bool {
    path.segments
        .last()
        .is_some_and(|last| last.ident.to_string().ends_with(ends))
}

#[cfg(test)]
mod tests {
    use quote::ToTokens as _;

    use super::*;

    fn text(ty: Option<Type>) -> Option<String> {
        ty.map(|ty| ty.into_token_stream().to_string().replace(' ', ""))
    }

    #[test]
    fn a_future_is_recognised() {
        for (output, value, boxed) in [
            ("impl Future<Output = u8> + Send", Some("u8"), false),
            (
                "impl Send + std::future::Future<Output = Result<impl Copy, E>>",
                Some("Result<_,E>"),
                false,
            ),
            ("impl Future", None, false),
            (
                "Pin<Box<dyn Future<Output = u8> + Send + '_>>",
                Some("u8"),
                true,
            ),
            (
                "std::pin::Pin<Box<dyn Future<Output = ()>>>",
                Some("()"),
                true,
            ),
            (
                "futures::future::LocalBoxFuture<'a, u8>",
                Some("<futures::future::LocalBoxFuture<'a,u8>as::core::future::Future>::Output"),
                true,
            ),
        ] {
            let output: ReturnType = syn::parse_str(&format!("-> {output}")).unwrap();
            let future = future(&output).unwrap();
            assert_eq!(text(future.value).as_deref(), value);
            assert_eq!(future.boxed, boxed);
        }
    }

    #[test]
    fn a_stream_is_recognised() {
        for (output, item, boxed) in [
            ("impl Stream<Item = u8> + Send + use<'_>", Some("u8"), false),
            (
                "impl futures_core::Stream<Item = Result<impl Copy, E>>",
                Some("Result<_,E>"),
                false,
            ),
            (
                "Pin<Box<dyn Stream<Item = u8> + Send + '_>>",
                Some("u8"),
                true,
            ),
            ("futures::stream::LocalBoxStream<'a, u8>", None, true),
        ] {
            let output: ReturnType = syn::parse_str(&format!("-> {output}")).unwrap();
            let stream = stream(&output).unwrap();
            assert_eq!(text(stream.value).as_deref(), item);
            assert_eq!(stream.boxed, boxed);
            assert!(future(&output).is_none());
        }
    }

    #[test]
    fn anything_else_is_not() {
        for output in [
            "",
            "-> u8",
            "-> impl Iterator<Item = u8>",
            "-> Pin<Box<u8>>",
            "-> Ready<u8>",
        ] {
            let output: ReturnType = syn::parse_str(output).unwrap();
            assert!(future(&output).is_none());
            assert!(stream(&output).is_none());
        }
    }
}
