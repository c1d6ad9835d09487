//! From a struct to its implementation of `Module`.

use crate::field::{Visited, visited};
use proc_macro2::{Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote, quote_spanned};
use std::collections::HashMap;
use syn::spanned::Spanned;
use syn::{Data, DeriveInput, Error, GenericParam, Result, parse_quote};

/// The `impl` block.
pub fn expand(input: &DeriveInput) -> Result<TokenStream> {
    let fields = match &input.data {
        Data::Struct(data) => &data.fields,
        Data::Enum(_) => {
            let message = "Module can be derived for structs only: which parameters an enum has changes with its \
                           variant. Implement `Module::visit` by hand, with a `match`.";
            return Err(Error::new_spanned(&input.ident, message));
        }
        Data::Union(_) => {
            let message = "Module can be derived for structs only: the fields of a union cannot be visited";
            return Err(Error::new_spanned(&input.ident, message));
        }
    };
    let mut all: Vec<Visited> = Vec::new();
    for (index, field) in fields.iter().enumerate() {
        all.extend(visited(index, field)?);
    }
    check_distinct(&all)?;

    let parameters: Vec<&Ident> = input
        .generics
        .params
        .iter()
        .filter_map(|p| match p {
            GenericParam::Type(t) => Some(&t.ident),
            _ => None,
        })
        .collect();
    let mut generics = input.generics.clone();
    let bounds = &mut generics.make_where_clause().predicates;
    for field in all.iter().filter(|f| mentions(f.ty.to_token_stream(), &parameters)) {
        let ty = field.ty;
        bounds.push(parse_quote!(#ty: ::meshwork::nn::Module));
    }

    let name = &input.ident;
    let (of, arguments, conditions) = generics.split_for_impl();
    let visits = all.iter().map(|field| {
        let (member, name) = (&field.member, &field.name);
        // A type that is no module is reported where the field says it.
        let span = field.ty.span().resolved_at(Span::call_site());
        quote_spanned!(span=> visitor.field(#name, &self.#member);)
    });
    // A struct without fields to visit does not use its visitor.
    let unused = all.is_empty().then(|| quote!(let _ = visitor;));
    Ok(quote! {
        #[automatically_derived]
        impl #of ::meshwork::nn::Module for #name #arguments #conditions {
            fn visit(&self, visitor: &mut ::meshwork::nn::Visitor<'_>) {
                #unused
                #(#visits)*
            }
        }
    })
}

fn check_distinct(fields: &[Visited]) -> Result<()> {
    let mut seen: HashMap<&str, ()> = HashMap::new();
    for field in fields {
        if seen.insert(&field.name, ()).is_some() {
            let message = format!("two fields are called `{}`", field.name);
            return Err(Error::new_spanned(&field.member, message));
        }
    }
    Ok(())
}

/// Whether a type names one of the struct's type parameters, so that it is a module only for some of them.
fn mentions(ty: TokenStream, parameters: &[&Ident]) -> bool {
    ty.into_iter().any(|token| match token {
        TokenTree::Ident(ident) => parameters.contains(&&ident),
        TokenTree::Group(group) => mentions(group.stream(), parameters),
        _ => false,
    })
}
