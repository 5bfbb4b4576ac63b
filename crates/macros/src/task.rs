//! A function becomes a task: a function of the same name that takes ports, and a type of the same name that holds the
//! code.

use crate::{
    digest::CodeDigest,
    options::{Effect, Options},
};
use proc_macro2::{Ident, Literal, TokenStream};
use quote::{ToTokens, format_ident, quote, quote_spanned};
use syn::{Attribute, Error, FnArg, ItemFn, Pat, PatIdent, Result, ReturnType, Signature, Type, spanned::Spanned};

/// The kind of a parameter.
enum Parameter {
    /// The step, by reference or by value.
    Step { by_reference: bool },
    /// The step, which may have work open in the store.
    OpenStep,
    /// The flow's rows.
    Tx,
    /// The engine's state of this type.
    State(Box<Type>),
    /// An input.
    Input(Ident, Box<Type>),
}

pub(crate) fn expand(options: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let function: ItemFn = syn::parse2(item)?;
    plain("task", &function.sig)?;
    let parameters = parameters(&function.sig)?;
    let options = Options::task(options)?;
    agree(&options, &function.sig, &parameters)?;
    let inputs: Vec<_> = parameters
        .iter()
        .filter_map(|parameter| match parameter {
            Parameter::Input(name, ty) => Some((name, &**ty)),
            Parameter::Step { .. } | Parameter::OpenStep | Parameter::Tx | Parameter::State(_) => None,
        })
        .collect();
    let depends = depends(&options, &inputs)?;

    let name = &function.sig.ident;
    let (names, types): (Vec<_>, Vec<_>) = inputs.into_iter().unzip();
    let labels: Vec<_> = names.iter().map(|name| label(name)).collect();
    let returns = returns(&function.sig);
    let outputs: Vec<_> = options.outputs.iter().flatten().map(label).collect();
    let count = outputs.len().max(1);
    let mut count = Literal::usize_unsuffixed(count);
    count.set_span(returns.span());
    // All that depends on the result has its place, so that a mistake there is told once.
    let ports = quote_spanned!(returns.span()=> type Ports = <#returns as ::onceflow::task::Returned<#count>>::Ports;);
    let task_name = options.name.as_ref().map_or_else(|| label(name), syn::LitStr::value);
    let settings = settings(&options, &function);
    let start = start(&function, &parameters, &options, &count);
    let undo = options.undo.as_ref().map(|undo| {
        let definition = quote_spanned!(undo.span()=> ::onceflow::task::Definition::undoing::<#name, #undo>());
        quote! {
            fn undo() -> ::core::option::Option<::onceflow::task::Definition> {
                ::core::option::Option::Some(#definition)
            }
        }
    });
    let states: Vec<_> = parameters
        .iter()
        .filter_map(|parameter| match parameter {
            Parameter::State(ty) => Some(quote_spanned!(ty.span()=> ::onceflow::task::Need::of::<#ty>())),
            Parameter::OpenStep => Some(quote!(::onceflow::task::Need::of::<::onceflow::task::EndOpenWork>())),
            _ => None,
        })
        .collect();
    let opens_work = parameters.iter().any(|parameter| matches!(parameter, Parameter::OpenStep)).then(|| {
        quote! {
            fn opens_work() -> bool {
                true
            }
        }
    });
    let needs = (!states.is_empty()).then(|| {
        quote! {
            fn needs() -> ::std::vec::Vec<::onceflow::task::Need> {
                ::std::vec![#(#states),*]
            }
        }
    });
    let compensation = options.undo.iter().map(
        |undo| quote!(spec.compensation = ::core::option::Option::Some(::std::boxed::Box::new(<#undo as ::onceflow::Task>::spec()));),
    );

    let visible = &function.vis;
    let docs = docs(&function.attrs);
    let held = held(&function, "task");
    let given = types.iter().zip(&names).map(|(ty, name)| quote!(::onceflow::Arg::<#ty>::given(#name)));
    let inputs = types.iter().map(|ty| quote_spanned!(ty.span()=> <#ty as ::onceflow::Value>::ty()));
    Ok(quote! {
        #docs
        #[track_caller]
        #[allow(clippy::too_many_arguments, clippy::type_complexity)]
        #visible fn #name(#(#names: impl ::onceflow::Arg<#types>),*)
            -> ::onceflow::Call<<#name as ::onceflow::Task>::Ports>
        {
            ::onceflow::task::call::<#name>(::std::vec![#(#given),*])
        }

        #held

        impl ::onceflow::Task for #name {
            type Inputs = (#(#types,)*);
            #ports

            fn spec() -> ::onceflow::model::TaskSpec {
                let inputs = ::std::vec![#(::onceflow::model::Port::new(#labels, #inputs)),*];
                let outputs = ::onceflow::task::outputs::<Self::Ports>(&[#(#outputs),*]);
                let mut spec = ::onceflow::model::TaskSpec::new(#task_name, inputs, outputs);
                #settings
                #depends
                #(#compensation)*
                spec
            }

            #start
            #needs
            #opens_work
            #undo
        }
    })
}

/// The type that holds the code, which is there only for its name.
pub(crate) fn held(function: &ItemFn, what: &str) -> TokenStream {
    let (name, visible, docs) = (&function.sig.ident, &function.vis, docs(&function.attrs));
    let other = function.attrs.iter().filter(|attribute| !attribute.path().is_ident("doc"));
    let mut signature = function.sig.clone();
    signature.ident = if what == "task" { format_ident!("run") } else { format_ident!("describe") };
    let block = &function.block;
    let about = format!("The {what} `{name}`, as a type.");
    let itself = format!("What the {what} `{name}` does, as it was written.");
    quote! {
        #[doc = #about]
        #[allow(non_camel_case_types, dead_code)]
        #visible struct #name {
            never: ::core::convert::Infallible,
        }

        #[allow(dead_code, clippy::type_complexity, clippy::unused_async)]
        impl #name {
            #[doc = #itself]
            #[doc = ""]
            #docs
            #(#other)*
            #visible #signature #block
        }
    }
}

/// Returns a name as users see it, without `r#` and leading underscores.
pub(crate) fn label(name: &Ident) -> String {
    name.to_string().trim_start_matches("r#").trim_start_matches('_').into()
}

pub(crate) fn docs(attributes: &[Attribute]) -> TokenStream {
    attributes.iter().filter(|attribute| attribute.path().is_ident("doc")).map(ToTokens::to_token_stream).collect()
}

pub(crate) fn returns(signature: &Signature) -> Type {
    match &signature.output {
        ReturnType::Default => syn::parse_quote!(()),
        ReturnType::Type(_, ty) => (**ty).clone(),
    }
}

/// Refuses signatures that are not those of a plain function.
pub(crate) fn plain(what: &str, signature: &Signature) -> Result<()> {
    let refuse = |span: proc_macro2::Span, why: &str| Err(Error::new(span, format!("a {what} {why}")));
    if !signature.generics.params.is_empty() || signature.generics.where_clause.is_some() {
        return refuse(signature.generics.span(), "cannot be generic: workers must find its code by its name alone");
    }
    if let Some(word) = &signature.unsafety {
        return refuse(word.span(), "cannot be unsafe: the engine, which calls it, cannot uphold its conditions");
    }
    if let Some(abi) = &signature.abi {
        return refuse(abi.span(), "is called by the engine, not by other languages");
    }
    if let Some(word) = &signature.variadic {
        return refuse(word.span(), "has a fixed number of inputs");
    }
    if let ReturnType::Type(_, ty) = &signature.output
        && let Type::ImplTrait(_) = **ty
    {
        return refuse(ty.span(), "must name the type it returns");
    }
    Ok(())
}

/// The name and type of a parameter.
pub(crate) fn parameter<'a>(what: &str, argument: &'a FnArg) -> Result<(&'a Ident, &'a Type)> {
    let FnArg::Typed(typed) = argument else {
        return Err(Error::new(argument.span(), format!("a {what} is a plain function, not a method")));
    };
    match &*typed.pat {
        Pat::Ident(PatIdent { ident, by_ref: None, subpat: None, .. }) => Ok((ident, &typed.ty)),
        other => Err(Error::new(other.span(), "give this input a name: ports are named after parameters")),
    }
}

/// The message for a parameter that is no input and stands after one.
const FIRST: &str = "this stands before the inputs";

/// The `T` of `State<T>`.
fn state_of(ty: &Type) -> Option<&Type> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident == "State")?;
    let syn::PathArguments::AngleBracketed(arguments) = &last.arguments else { return None };
    match (arguments.args.first()?, arguments.args.len()) {
        (syn::GenericArgument::Type(ty), 1) => Some(ty),
        _ => None,
    }
}

/// A state that is taken apart where it is taken: `State(pool): State<Pool>`.
fn destructured(argument: &FnArg) -> Option<Parameter> {
    let FnArg::Typed(typed) = argument else { return None };
    let Pat::TupleStruct(_) = &*typed.pat else { return None };
    state_of(&typed.ty).map(|state| Parameter::State(Box::new(state.clone())))
}

fn parameters(signature: &Signature) -> Result<Vec<Parameter>> {
    let mut inputs_began = false;
    let read = signature.inputs.iter().map(|argument| {
        if let Some(state) = destructured(argument) {
            return if inputs_began { Err(Error::new(argument.span(), FIRST)) } else { Ok(state) };
        }
        let (name, ty) = parameter("task", argument)?;
        let read = match ty {
            Type::Reference(reference) if is(&reference.elem, "Step") => Parameter::Step { by_reference: true },
            ty if is(ty, "Step") => Parameter::Step { by_reference: false },
            ty if is(ty, "OpenStep") => Parameter::OpenStep,
            ty if is(ty, "Tx") => Parameter::Tx,
            ty if let Some(state) = state_of(ty) => Parameter::State(Box::new(state.clone())),
            Type::Reference(_) => {
                let owned = owned(ty).map(|owned| format!(": take `{name}: {owned}`")).unwrap_or_default();
                return Err(Error::new(ty.span(), format!("a task owns its inputs{owned}")));
            }
            Type::ImplTrait(_) => {
                return Err(Error::new(ty.span(), "a task must name the types of its inputs"));
            }
            ty => {
                inputs_began = true;
                return Ok(Parameter::Input(name.clone(), Box::new(ty.clone())));
            }
        };
        if inputs_began {
            return Err(Error::new(ty.span(), FIRST));
        }
        Ok(read)
    });
    all(read)
}

/// Returns all values, or all errors combined.
fn all<T>(results: impl Iterator<Item = Result<T>>) -> Result<Vec<T>> {
    let (mut good, mut bad) = (Vec::new(), None::<Error>);
    for result in results {
        match (result, &mut bad) {
            (Ok(one), _) => good.push(one),
            (Err(error), Some(errors)) => errors.combine(error),
            (Err(error), bad) => *bad = Some(error),
        }
    }
    bad.map_or(Ok(good), Err)
}

/// The type has this name.
fn is(ty: &Type, name: &str) -> bool {
    matches!(ty, Type::Path(path) if path.path.segments.last().is_some_and(|last| last.ident == name && last.arguments.is_empty()))
}

/// Suggests an owned type instead of a reference.
fn owned(ty: &Type) -> Option<String> {
    let Type::Reference(reference) = ty else { return None };
    match &*reference.elem {
        Type::Path(path) if path.path.is_ident("str") => Some("String".into()),
        Type::Path(path) if path.path.is_ident("Path") => Some("File".into()),
        Type::Path(path) => Some(path.path.segments.last()?.to_token_stream().to_string().replace(' ', "")),
        Type::Slice(slice) => Some(format!("Vec<{}>", slice.elem.to_token_stream().to_string().replace(' ', ""))),
        _ => None,
    }
}

/// Refuses options that do not go together.
fn agree(options: &Options, signature: &Signature, parameters: &[Parameter]) -> Result<()> {
    let wants_tx = parameters.iter().any(|parameter| matches!(parameter, Parameter::Tx));
    if wants_tx && options.effect != Some(Effect::Transactional) {
        return Err(Error::new(signature.inputs.span(), "a task with a `Tx` says `effect = transactional`"));
    }
    if let (Some(inline), Some(_)) = (options.inline, signature.asyncness) {
        return Err(Error::new(inline, "an `async` task waits, so it cannot run where it stands"));
    }
    if let (Some(abandon), true) = (options.abandon, signature.asyncness.is_some() || options.inline.is_some()) {
        return Err(Error::new(abandon, "only a task that has a thread of its own can be abandoned on it"));
    }
    Ok(())
}

/// Which output depends on which inputs, by index.
fn depends(options: &Options, inputs: &[(&Ident, &Type)]) -> Result<TokenStream> {
    if options.depends.is_empty() {
        return Ok(TokenStream::new());
    }
    let value = vec![format_ident!("value")];
    let outputs = options.outputs.as_ref().unwrap_or(&value);
    let index = |input: &Ident| {
        let at = inputs.iter().position(|(name, _)| *name == input).and_then(|at| u16::try_from(at).ok());
        at.ok_or_else(|| Error::new(input.span(), format!("there is no input `{input}`")))
    };
    let unknown = options.depends.iter().filter(|(output, _)| !outputs.contains(output));
    all(unknown.map(|(output, _)| Err::<(), _>(Error::new(output.span(), format!("there is no output `{output}`")))))?;
    let every: Vec<_> = (0..inputs.len()).filter_map(|at| u16::try_from(at).ok()).collect();
    let rows = all(outputs.iter().map(|output| match options.depends.iter().find(|(said, _)| said == output) {
        Some((_, inputs)) => all(inputs.iter().map(index)),
        None => Ok(every.clone()),
    }))?;
    let rows = rows.iter().map(|row| quote!(::std::vec![#(#row),*]));
    Ok(quote!(spec.depends = ::core::option::Option::Some(::std::vec![#(#rows),*]);))
}

/// Returns all other settings of the task, as code.
fn settings(options: &Options, function: &ItemFn) -> TokenStream {
    let version = options.version.as_ref().map_or_else(|| version(function), syn::LitStr::value);
    let mut settings = quote!(spec.version = #version.into(););
    let mut set = |field: TokenStream, value: Option<TokenStream>| {
        settings.extend(value.map(|value| quote!(spec.#field = #value;)));
    };
    let effect = options.effect.map(|effect| match effect {
        Effect::Pure => quote!(Pure),
        Effect::Idempotent => quote!(Idempotent),
        Effect::AtMostOnce => quote!(AtMostOnce),
        Effect::Transactional => quote!(Transactional),
    });
    // A first wait longer than the longest is the longest.
    let backoff_ms_max = options.backoff_ms_max.or(options.backoff_ms.filter(|backoff| *backoff > 60_000));
    set(quote!(effect), effect.map(|effect| quote!(::onceflow::model::Effect::#effect)));
    set(quote!(retry.attempts), options.attempts.map(ToTokens::into_token_stream));
    set(quote!(retry.backoff_ms), options.backoff_ms.map(ToTokens::into_token_stream));
    set(quote!(retry.backoff_ms_max), backoff_ms_max.map(ToTokens::into_token_stream));
    set(quote!(timeout_ms), options.timeout_ms.map(|ms| quote!(::core::option::Option::Some(#ms))));
    set(quote!(class), options.class.as_ref().map(|class| quote!(#class.into())));
    set(quote!(resources.cpu_milli), options.cpu_milli.map(ToTokens::into_token_stream));
    set(quote!(resources.memory_bytes), options.memory_bytes.map(ToTokens::into_token_stream));
    settings
}

/// The digest of parameters, result and body; not of the name, nor of anything that was said about the task.
fn version(function: &ItemFn) -> String {
    let Signature { asyncness, inputs, output, .. } = &function.sig;
    let block = &function.block;
    CodeDigest::new().code(quote!(#asyncness fn (#inputs) #output #block)).finish()
}

/// How an attempt starts: read the inputs, call the function, write the outputs.
fn start(function: &ItemFn, parameters: &[Parameter], options: &Options, count: &Literal) -> TokenStream {
    let name = &function.sig.ident;
    let mut reads = TokenStream::new();
    let mut arguments = Vec::new();
    for (at, parameter) in parameters.iter().enumerate() {
        let argument = format_ident!("__argument_{at}");
        arguments.push(match parameter {
            Parameter::Step { by_reference: true } => quote!(&__step),
            Parameter::Step { by_reference: false } => quote!(::core::clone::Clone::clone(&__step)),
            Parameter::OpenStep => quote!(::onceflow::OpenStep::new(&__step)),
            Parameter::Tx => quote!(::onceflow::task::tx(&__step)?),
            Parameter::State(ty) => quote_spanned!(ty.span()=> ::onceflow::task::state::<#ty>(&__step)?),
            Parameter::Input(input, ty) => {
                let label = label(input);
                let read = quote_spanned!(ty.span()=> ::onceflow::task::input::<#ty>);
                reads.extend(quote!(let #argument = #read(#label, &mut __inputs)?;));
                quote!(#argument)
            }
        });
    }
    let wait = function.sig.asyncness.map(|_| quote!(.await));
    let returned = returns(&function.sig);
    let call = quote!(#name::run(#(#arguments),*) #wait);
    let finish = quote_spanned!(returned.span()=> <#returned as ::onceflow::task::Returned<#count>>::finish(#call));
    let work = quote! {
        let mut __inputs = ::std::iter::IntoIterator::into_iter(__inputs);
        #reads
        #finish
    };
    let attempt = if function.sig.asyncness.is_some() {
        quote_spanned!(name.span()=> ::onceflow::task::Attempt::Async(::std::boxed::Box::pin(async move { #work })))
    } else if options.inline.is_some() {
        quote!(::onceflow::task::Attempt::Done((move || { #work })()))
    } else if options.abandon.is_some() {
        quote!(::onceflow::task::Attempt::Abandonable(::std::boxed::Box::new(move || { #work })))
    } else {
        quote!(::onceflow::task::Attempt::Blocking(::std::boxed::Box::new(move || { #work })))
    };
    quote! {
        #[allow(unused_variables, unused_mut, clippy::redundant_closure_call, clippy::unit_arg)]
        fn start(
            __step: ::onceflow::Step,
            __inputs: ::std::vec::Vec<::onceflow::task::Data>,
        ) -> ::onceflow::task::Attempt {
            #attempt
        }
    }
}
