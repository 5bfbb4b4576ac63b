//! A struct of ports becomes ports: of its fields come the structs of their values, lists, options and typed names.

use crate::{flow::inner, task::label};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote};
use syn::{
    Data, DeriveInput, Error, Fields, Path, Result, Token, Type, Visibility, punctuated::Punctuated, spanned::Spanned,
};

/// A field that is a port.
struct Field<'a> {
    name: &'a Ident,
    visible: &'a Visibility,
    /// The type of its values.
    of: &'a Type,
}

pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let item: DeriveInput = syn::parse2(item)?;
    if !item.generics.params.is_empty() {
        return Err(Error::new(item.generics.span(), "a struct of ports cannot be generic"));
    }
    let fields = fields(&item)?;
    let derives = derives(&item)?;
    let (name, visible) = (&item.ident, &item.vis);
    let [values, lists, options, inputs, outputs] =
        ["Values", "Lists", "Options", "Inputs", "Outputs"].map(|what| format_ident!("{name}{what}"));
    let names: Vec<_> = fields.iter().map(|field| field.name).collect();
    let types: Vec<_> = fields.iter().map(|field| field.of).collect();
    let labels: Vec<_> = names.iter().map(|name| label(name)).collect();
    let at: Vec<_> = (0..fields.len()).collect();
    let made = |about: &str, name: &Ident, derive: TokenStream, of: &dyn Fn(&Type) -> TokenStream| {
        let about = format!("{about} [`{}`].", item.ident);
        let fields = fields.iter().map(|field| {
            let (name, visible, ty) = (field.name, field.visible, of(field.of));
            let about = format!("Of `{name}`.");
            quote!(#[doc = #about] #visible #name: #ty)
        });
        quote! {
            #[doc = #about]
            #derive
            #[allow(dead_code)]
            #visible struct #name { #(#fields,)* }
        }
    };
    let copied = quote!(#[derive(Clone, Copy)]);
    let structs = [
        made("The values that go through", &values, derives, &|ty| quote!(#ty)),
        made("A list of each of", &lists, copied.clone(), &|ty| quote!(::onceflow::Port<::std::vec::Vec<#ty>>)),
        made("An option of each of", &options, copied, &|ty| quote!(::onceflow::Port<::core::option::Option<#ty>>)),
        made("The names of inputs", &inputs, quote!(), &|ty| quote!(::onceflow::Input<#ty>)),
        made("The names of outputs", &outputs, quote!(), &|ty| quote!(::onceflow::Output<#ty>)),
    ];
    let from_handles = [name, &lists, &options].map(|name| {
        quote! {
            impl ::onceflow::port::FromHandles for #name {
                #[allow(unused_variables)]
                fn from_handles(handles: &mut dyn ::core::iter::Iterator<Item = ::onceflow::builder::PortHandle>) -> Self {
                    #name { #(#names: ::onceflow::port::FromHandles::from_handles(handles),)* }
                }
            }
        }
    });
    Ok(quote! {
        #(#structs)*
        #(#from_handles)*

        impl ::onceflow::Ports for #name {
            type Values = #values;
            type Names = ::onceflow::port::FieldNames;
            type Lists = #lists;
            type Options = #options;
            type Outputs = #outputs;
            type Inputs = #inputs;

            fn types() -> ::std::vec::Vec<::onceflow::model::Type> {
                ::std::vec![#(<#types as ::onceflow::Value>::ty()),*]
            }

            fn names(_: &Self::Names) -> ::std::vec::Vec<&'static str> {
                ::std::vec![#(#labels),*]
            }

            fn handles(self) -> ::std::vec::Vec<::onceflow::builder::PortHandle> {
                let all: ::std::vec::Vec<::std::vec::Vec<_>> = ::std::vec![#(::onceflow::Ports::handles(self.#names)),*];
                ::std::iter::IntoIterator::into_iter(all).flatten().collect()
            }

            #[allow(unused_variables)]
            fn outputs(names: &[::std::string::String]) -> Self::Outputs {
                #outputs { #(#names: <::onceflow::Port<#types> as ::onceflow::Ports>::outputs(&names[#at..]),)* }
            }

            #[allow(unused_variables)]
            fn inputs(names: &[::std::string::String]) -> Self::Inputs {
                #inputs { #(#names: <::onceflow::Port<#types> as ::onceflow::Ports>::inputs(&names[#at..]),)* }
            }

            #[allow(unused_variables)]
            fn encode(
                values: Self::Values,
            ) -> ::core::result::Result<::std::vec::Vec<::onceflow::task::Data>, ::onceflow::value::Error> {
                ::core::result::Result::Ok(::std::vec![#(::onceflow::Value::encode(values.#names)?),*])
            }

            #[allow(unused_variables)]
            fn decode(
                data: &mut dyn ::core::iter::Iterator<Item = ::onceflow::task::Data>,
            ) -> ::core::result::Result<Self::Values, ::onceflow::value::Error> {
                ::core::result::Result::Ok(#values {
                    #(#names: <::onceflow::Port<#types> as ::onceflow::Ports>::decode(data)?,)*
                })
            }
        }

        impl ::onceflow::port::OwnNames for #name {
            fn own_names() -> ::onceflow::port::FieldNames {
                ::onceflow::port::FieldNames
            }
        }

        impl ::onceflow::Args<#name> for #name {
            fn all(self) -> ::std::vec::Vec<::onceflow::arg::Argument> {
                ::std::vec![#(::onceflow::Arg::<#types>::given(self.#names)),*]
            }
        }

        impl ::onceflow::builder::Lists for #lists {
            type Elements = #name;

            fn lists(self) -> ::std::vec::Vec<(::onceflow::builder::PortHandle, ::onceflow::model::Type)> {
                let all: ::std::vec::Vec<::std::vec::Vec<_>> = ::std::vec![#(::onceflow::builder::Lists::lists(self.#names)),*];
                ::std::iter::IntoIterator::into_iter(all).flatten().collect()
            }
        }
    })
}

fn fields(item: &DeriveInput) -> Result<Vec<Field<'_>>> {
    let Data::Struct(syn::DataStruct { fields: Fields::Named(named), .. }) = &item.data else {
        return Err(Error::new(item.ident.span(), "only a struct with named fields can be a struct of ports"));
    };
    let mut fields = Vec::with_capacity(named.named.len());
    for field in &named.named {
        let wrong = || Error::new(field.ty.span(), "every field of a struct of ports is a `Port<..>`");
        let of = inner(&field.ty).ok_or_else(wrong)?;
        fields.extend(field.ident.as_ref().map(|name| Field { name, visible: &field.vis, of }));
    }
    Ok(fields)
}

/// Returns the derives of `#[ports(derive(..))]`, for the struct of values.
fn derives(item: &DeriveInput) -> Result<TokenStream> {
    let mut wanted = TokenStream::new();
    for attribute in item.attrs.iter().filter(|attribute| attribute.path().is_ident("ports")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("derive") {
                return Err(meta.error("`#[ports(derive(..))]` is all there is to say"));
            }
            let list;
            syn::parenthesized!(list in meta.input);
            let traits = Punctuated::<Path, Token![,]>::parse_terminated(&list)?;
            wanted.extend(quote!(#[derive(#traits)]));
            Ok(())
        })?;
    }
    Ok(wanted)
}
