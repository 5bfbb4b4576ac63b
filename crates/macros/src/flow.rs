//! A function that describes a flow becomes that flow, and a call of it for other flows.

use crate::{
    options::Options,
    task::{docs, held, label, parameter, plain, returns},
};
use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Error, GenericArgument, ItemFn, PathArguments, Result, Type, spanned::Spanned};

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    plain("flow", &function.sig)?;
    if let Some(word) = &function.sig.asyncness {
        return Err(Error::new(word.span(), "a flow is described, not run, by this function: it is not `async`"));
    }
    let options = Options::flow(options)?;
    let inputs = inputs(&function)?;
    let name = &function.sig.ident;
    let returns = returns(&function.sig);
    let outputs = outputs(&options, &returns)?;
    let flow_name = options.name.as_ref().map_or_else(|| label(name), syn::LitStr::value);
    let Inputs { ports, names, pattern, parameters, arguments, given } = inputs.expand();

    let (visible, docs, held) = (&function.vis, docs(&function.attrs), held(&function, "flow"));
    let about = format!("The flow `{flow_name}`, with those it calls.");
    Ok(quote! {
        #docs
        #[track_caller]
        #[allow(clippy::too_many_arguments, clippy::type_complexity, dead_code)]
        #visible fn #name(#parameters) -> ::onceflow::Call<#returns> {
            ::onceflow::flow::call_described(
                ::core::any::TypeId::of::<#name>(),
                #flow_name,
                ::onceflow::flow::named::<#ports>(&#names),
                &#outputs,
                #name::draft,
                #given,
            )
        }

        #held

        #[allow(dead_code, clippy::type_complexity)]
        impl #name {
            #[doc = #about]
            #visible fn flow() -> ::onceflow::Flow<#ports, #returns> {
                ::onceflow::Flow::from_draft(#name::draft())
            }

            fn draft() -> ::onceflow::flow::FlowDraft {
                let id = ::core::option::Option::Some(::core::any::TypeId::of::<#name>());
                ::onceflow::flow::FlowDraft::new::<#ports, #returns>(
                    #flow_name,
                    id,
                    #names,
                    #outputs,
                    |__f, #pattern| #name::describe(__f, #arguments),
                )
            }
        }
    })
}

/// The inputs of a flow.
enum Takes {
    /// Ports, by the names of the parameters, and what goes through them.
    Ports(Vec<Ident>, Vec<Type>),
    /// A struct of ports.
    Struct(Ident, Type),
}

/// The inputs of a flow, as code.
struct Inputs {
    /// The type of them all.
    ports: TokenStream,
    /// Their names.
    names: TokenStream,
    /// The parameter of the describing closure.
    pattern: TokenStream,
    /// The parameters of the function that makes a call.
    parameters: TokenStream,
    /// The arguments of the function that describes the flow.
    arguments: TokenStream,
    /// The arguments of a call.
    given: TokenStream,
}

impl Takes {
    fn expand(&self) -> Inputs {
        match self {
            Takes::Struct(name, ty) => Inputs {
                ports: quote!(#ty),
                names: quote!(<#ty as ::onceflow::port::OwnNames>::own_names()),
                pattern: quote!(#name),
                parameters: quote!(#name: impl ::onceflow::Args<#ty>),
                arguments: quote!(#name),
                given: quote!(::onceflow::Args::<#ty>::all(#name)),
            },
            Takes::Ports(names, types) => {
                let labels = names.iter().map(label);
                Inputs {
                    ports: match &types[..] {
                        [one] => quote!(::onceflow::Port<#one>),
                        several => quote!((#(::onceflow::Port<#several>,)*)),
                    },
                    names: quote!([#(#labels),*]),
                    pattern: if let [one] = &names[..] { quote!(#one) } else { quote!((#(#names,)*)) },
                    parameters: quote!(#(#names: impl ::onceflow::Arg<#types>),*),
                    arguments: quote!(#(#names),*),
                    given: quote!(::std::vec![#(::onceflow::Arg::<#types>::given(#names)),*]),
                }
            }
        }
    }
}

/// Reads the parameters of the function, beside the builder.
fn inputs(function: &ItemFn) -> Result<Takes> {
    let mut arguments = function.sig.inputs.iter();
    let missing =
        || Error::new(function.sig.ident.span(), "a flow is described with a builder: take `f: &mut Builder` first");
    let (_, builder) = parameter("flow", arguments.next().ok_or_else(missing)?)?;
    if !matches!(builder, Type::Reference(_)) {
        return Err(missing());
    }
    let rest: Vec<_> = arguments.map(|argument| parameter("flow", argument)).collect::<Result<_>>()?;
    if let [(name, ty)] = rest[..]
        && inner(ty).is_none()
        && matches!(ty, Type::Path(path) if !is_value(path))
    {
        return Ok(Takes::Struct(name.clone(), ty.clone()));
    }
    let mut inputs = (Vec::new(), Vec::new());
    for (name, ty) in rest {
        let wrong = || Error::new(ty.span(), format!("a flow takes ports: write `{name}: Port<..>`"));
        inputs.0.push(name.clone());
        inputs.1.push(inner(ty).ok_or_else(wrong)?.clone());
    }
    Ok(Takes::Ports(inputs.0, inputs.1))
}

/// The type is surely a value and no struct of ports: it has a lower-case name, or arguments, or is well known.
fn is_value(path: &syn::TypePath) -> bool {
    path.path.segments.last().is_some_and(|last| {
        let name = last.ident.to_string();
        name.starts_with(char::is_lowercase)
            || !last.arguments.is_empty()
            || ["String", "Bytes", "File"].contains(&name.as_str())
    })
}

/// The `T` of `Port<T>`.
pub(crate) fn inner(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "Port")?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match arguments.args.first()? {
        GenericArgument::Type(ty) => Some(ty),
        _ => None,
    }
}

/// The names of the outputs, as code: those that were given, or those the ports have themselves.
fn outputs(options: &Options, returns: &Type) -> Result<TokenStream> {
    let count = match returns {
        Type::Tuple(tuple) => tuple.elems.len(),
        _ => 1,
    };
    let names = match &options.outputs {
        Some(names) if names.len() == count => names.iter().map(label).collect(),
        Some(names) => {
            let wrong = format!("this flow names {} outputs, but it returns {count} ports", names.len());
            return Err(Error::new(returns.span(), wrong));
        }
        None if count == 0 => Vec::new(),
        None if count == 1 && !matches!(returns, Type::Tuple(_)) => {
            return Ok(quote_spanned!(returns.span()=> <#returns as ::onceflow::port::OwnNames>::own_names()));
        }
        None if count == 1 => vec![String::from("value")],
        None => return Err(Error::new(returns.span(), "name the outputs: `#[flow(outputs(a, b))]`")),
    };
    Ok(quote!([#(#names),*]))
}
