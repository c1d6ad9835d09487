//! What `#[module(…)]` says about a field.

use syn::{Error, Field, LitStr, Result};

/// A field that is visited.
pub struct Visited<'a> {
    /// How Rust calls it: an identifier, or an index in a tuple struct.
    pub member: syn::Member,
    /// How parameter paths call it.
    pub name: String,
    /// Its type.
    pub ty: &'a syn::Type,
}

/// The field with its name, or `None` if it is skipped.
pub fn visited(index: usize, field: &Field) -> Result<Option<Visited<'_>>> {
    let mut skip = false;
    let mut rename = None;
    for attribute in field.attrs.iter().filter(|a| a.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("skip") {
                skip = true;
                return Ok(());
            }
            if meta.path.is_ident("rename") {
                let name: LitStr = meta.value()?.parse()?;
                check_name(&name)?;
                rename = Some(name.value());
                return Ok(());
            }
            Err(meta.error("unknown option; known are `skip` and `rename = \"…\"`"))
        })?;
    }
    if skip && rename.is_some() {
        return Err(Error::new_spanned(field, "a skipped field has no name: `skip` or `rename`, not both"));
    }
    if skip {
        return Ok(None);
    }
    let (member, name) = match &field.ident {
        Some(ident) => {
            let name = ident.to_string();
            let name = name.strip_prefix("r#").map(str::to_string).unwrap_or(name);
            (syn::Member::Named(ident.clone()), name)
        }
        None => (syn::Member::Unnamed(index.into()), index.to_string()),
    };
    Ok(Some(Visited { member, name: rename.unwrap_or(name), ty: &field.ty }))
}

/// Names are joined by dots into paths.
fn check_name(name: &LitStr) -> Result<()> {
    let value = name.value();
    if value.is_empty() || value.contains('.') {
        return Err(Error::new_spanned(name, "the name of a field is not empty and has no dot"));
    }
    Ok(())
}
