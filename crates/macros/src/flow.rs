//! A function that describes a flow becomes that flow, and a call of it for other flows.

use crate::{
    options::Options,
    task::{docs, held, label, parameter, plain, returns},
};
use proc_macro2::{Ident, TokenStream};
use quote::quote;
use syn::{Error, GenericArgument, ItemFn, PathArguments, Result, Type, spanned::Spanned};

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    plain("flow", &function.sig)?;
    if let Some(word) = &function.sig.asyncness {
        return Err(Error::new(word.span(), "a flow is described, not run, by this function: it is not `async`"));
    }
    let options = Options::flow(options)?;
    let (names, types) = inputs(&function)?;
    let name = &function.sig.ident;
    let returns = returns(&function.sig);
    let outputs = outputs(&options, &returns)?;
    let flow_name = options.name.as_ref().map_or_else(|| label(name), syn::LitStr::value);
    let labels: Vec<_> = names.iter().map(label).collect();
    let ports = match &types[..] {
        [one] => quote!(::onceflow::Port<#one>),
        several => quote!((#(::onceflow::Port<#several>,)*)),
    };
    let pattern = if let [one] = &names[..] { quote!(#one) } else { quote!((#(#names,)*)) };

    let (visible, docs, held) = (&function.vis, docs(&function.attrs), held(&function, "flow"));
    let about = format!("The flow `{flow_name}`, with those it calls.");
    Ok(quote! {
        #docs
        #[track_caller]
        #[allow(clippy::too_many_arguments, clippy::type_complexity, dead_code)]
        #visible fn #name(#(#names: impl ::onceflow::Arg<#types>),*) -> ::onceflow::Call<#returns> {
            ::onceflow::flow::call_described(
                ::core::any::TypeId::of::<#name>(),
                #flow_name,
                ::std::vec![#(::onceflow::model::Port::new(#labels, <#types as ::onceflow::Value>::ty())),*],
                &[#(#outputs),*],
                #name::draft,
                ::std::vec![#(::onceflow::Arg::<#types>::given(#names)),*],
            )
        }

        #held

        #[allow(dead_code, clippy::type_complexity)]
        impl #name {
            #[doc = #about]
            #visible fn flow() -> ::onceflow::Flow<#ports, #returns> {
                ::onceflow::Flow::from_draft(#name::draft())
            }

            fn draft() -> ::onceflow::flow::Draft {
                let id = ::core::option::Option::Some(::core::any::TypeId::of::<#name>());
                ::onceflow::flow::Draft::new::<#ports, #returns>(
                    #flow_name,
                    id,
                    [#(#labels),*],
                    [#(#outputs),*],
                    |__f, #pattern| #name::describe(__f, #(#names),*),
                )
            }
        }
    })
}

/// The names of the inputs, and the types of the values that go through them.
fn inputs(function: &ItemFn) -> Result<(Vec<Ident>, Vec<Type>)> {
    let mut arguments = function.sig.inputs.iter();
    let missing =
        || Error::new(function.sig.ident.span(), "a flow is described with a builder: take `f: &mut Builder` first");
    let (_, builder) = parameter("flow", arguments.next().ok_or_else(missing)?)?;
    if !matches!(builder, Type::Reference(reference) if reference.mutability.is_some()) {
        return Err(missing());
    }
    let mut inputs = (Vec::new(), Vec::new());
    for argument in arguments {
        let (name, ty) = parameter("flow", argument)?;
        let wrong = || Error::new(ty.span(), format!("a flow takes ports: write `{name}: Port<..>`"));
        inputs.0.push(name.clone());
        inputs.1.push(inner(ty).ok_or_else(wrong)?.clone());
    }
    Ok(inputs)
}

/// The `T` of `Port<T>`.
fn inner(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Port")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

/// The names of the outputs: those that were given, or `value` for a single one.
fn outputs(options: &Options, returns: &Type) -> Result<Vec<String>> {
    let count = match returns {
        Type::Tuple(tuple) => tuple.elems.len(),
        _ => 1,
    };
    match &options.outputs {
        Some(names) if names.len() == count => Ok(names.iter().map(label).collect()),
        Some(names) => {
            let wrong = format!("this flow names {} outputs, but it returns {count} ports", names.len());
            Err(Error::new(returns.span(), wrong))
        }
        None if count == 0 => Ok(Vec::new()),
        None if count == 1 => Ok(vec!["value".into()]),
        None => Err(Error::new(returns.span(), "name the outputs: `#[flow(outputs(a, b))]`")),
    }
}
