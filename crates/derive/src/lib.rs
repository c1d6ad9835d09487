//! `#[derive(Module)]`, which `meshwork::nn` exports beside the trait of that name.

mod field;
mod module;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Implements `meshwork::nn::Module` for a struct: every field is visited under its name (`0`, `1`, … in a tuple
/// struct), in the order of declaration.
///
/// Fields that hold no parameters, such as numbers and strings, contribute nothing. `#[module(skip)]` leaves a
/// field out, so that its type need not be a module; `#[module(rename = "…")]` gives it another name.
#[proc_macro_derive(Module, attributes(module))]
pub fn derive_module(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    module::expand(&input).unwrap_or_else(|e| e.to_compile_error()).into()
}
