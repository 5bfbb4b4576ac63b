//! A type becomes one that travels: serde writes it, and its fields, where they are known, become a record.

use crate::task::label;
use proc_macro2::TokenStream;
use quote::{ToTokens, quote};
use syn::{Attribute, Data, DeriveInput, Error, Fields, Result, spanned::Spanned};

pub(crate) fn expand(item: TokenStream) -> Result<TokenStream> {
    let mut item: DeriveInput = syn::parse2(item)?;
    if let Some(lifetime) = item.generics.lifetimes().next() {
        return Err(Error::new(lifetime.span(), "a value owns all it is made of: it cannot borrow"));
    }
    let ty = describe(&item);
    let parameters: Vec<_> = item.generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    let bounds = item.generics.make_where_clause();
    for parameter in &parameters {
        bounds.predicates.push(syn::parse_quote!(#parameter: ::onceflow::value::Element));
    }
    let name = &item.ident;
    let (generics, arguments, bounds) = item.generics.split_for_impl();
    Ok(quote! {
        impl #generics ::onceflow::Value for #name #arguments #bounds {
            fn ty() -> ::onceflow::model::Type {
                #ty
            }

            fn encode(self) -> ::core::result::Result<::onceflow::task::Data, ::onceflow::value::Error> {
                ::onceflow::value::encode_serde(&self)
            }

            fn decode(
                data: ::onceflow::task::Data,
            ) -> ::core::result::Result<Self, ::onceflow::value::Error> {
                ::onceflow::value::decode_serde(data)
            }
        }

        impl #generics ::onceflow::value::Literal for #name #arguments #bounds {}
    })
}

/// Returns the kernel's type, as code. Only a plain struct that serde writes field by field is a record.
fn describe(item: &DeriveInput) -> TokenStream {
    let name = label(&item.ident);
    let parameters: Vec<_> = item.generics.type_params().map(|parameter| &parameter.ident).collect();
    match &item.data {
        Data::Struct(data) if item.generics.params.is_empty() && !reshaped(&item.attrs) => match &data.fields {
            Fields::Named(fields) if !fields.named.iter().any(|field| reshaped(&field.attrs)) => {
                let names = fields.named.iter().filter_map(|field| field.ident.as_ref()).map(field_name);
                let types = fields.named.iter().map(|field| field.ty.to_token_stream());
                return quote! {{
                    #[allow(unused_imports)]
                    use ::onceflow::value::UnknownType as _;
                    ::onceflow::value::described(#name, || {
                        ::std::vec![#((#names, ::onceflow::value::TypeOf::<#types>::new().ty())),*]
                    })
                }};
            }
            _ => {}
        },
        _ => {}
    }
    quote!(::onceflow::value::named(#name, &[#(<#parameters as ::onceflow::Value>::ty()),*]))
}

/// A serde attribute changes how the type is written.
fn reshaped(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| attribute.path().is_ident("serde"))
}

/// Returns serde's name of a field.
fn field_name(name: &syn::Ident) -> String {
    name.to_string().trim_start_matches("r#").into()
}
