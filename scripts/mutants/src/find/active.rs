//! Which code the tests run: attributes `#[cfg(…)]`.

use syn::meta::ParseNestedMeta;
use syn::{Attribute, Expr, Lit, Token};

/// Whether the code with these attributes is part of the programs that the tests run, and is no test itself.
pub(super) fn is_active(attributes: &[Attribute]) -> bool {
    attributes.iter().all(|attribute| {
        let path = attribute.path();
        if path.is_ident("test") {
            return false;
        }
        if !path.is_ident("cfg") {
            return true;
        }
        let mut holds = true;
        let parsed = attribute.parse_nested_meta(|meta| {
            holds = condition(&meta)?;
            Ok(())
        });
        parsed.is_ok() && holds
    })
}

fn condition(meta: &ParseNestedMeta) -> syn::Result<bool> {
    let is = |name| meta.path.is_ident(name);
    if is("not") || is("all") || is("any") {
        let mut inner = Vec::new();
        meta.parse_nested_meta(|meta| {
            inner.push(condition(&meta)?);
            Ok(())
        })?;
        return Ok(match () {
            () if is("not") => !inner.contains(&true),
            () if is("all") => !inner.contains(&false),
            () => inner.contains(&true),
        });
    }
    let value = match meta.input.peek(Token![=]) {
        true => match meta.value()?.parse::<Expr>()? {
            Expr::Lit(literal) => match literal.lit {
                Lit::Str(text) => Some(text.value()),
                _ => None,
            },
            _ => None,
        },
        false => None,
    };
    Ok(match value.as_deref() {
        None => is("unix") || is("debug_assertions"),
        Some("linux") => is("target_os"),
        Some("unix") => is("target_family"),
        Some("cuda") => is("feature"),
        Some(_) => false,
    })
}

/// Whether an attribute is a `#[cfg(…)]`.
pub(super) fn is_conditional(attribute: &Attribute) -> bool {
    attribute.path().is_ident("cfg")
}
