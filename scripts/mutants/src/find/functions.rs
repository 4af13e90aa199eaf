//! Functions: their names, and returning at once.

use syn::{Attribute, Block, ReturnType, Signature, Type};

use super::{Finder, active, returns, statements};
use crate::site::{Form, shortened};

impl Finder<'_> {
    /// Notes what a part of the file contains, below a name.
    pub(super) fn within(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.names.push(name);
        visit(self);
        self.names.pop();
    }

    pub(super) fn visit_function(
        &mut self,
        attributes: &[Attribute],
        signature: &Signature,
        body: Option<&Block>,
    ) {
        let Some(body) = body else { return };
        let cannot_choose = signature.constness.is_some() || signature.asyncness.is_some();
        if cannot_choose || !active::is_active(attributes) {
            return;
        }
        self.within(signature.ident.to_string(), |finder| {
            finder.return_at_once(signature, body);
            finder.functions.push(super::span(body));
            let kind = match returns_nothing(&signature.output) {
                true => statements::Block::Function,
                false => statements::Block::Other,
            };
            finder.visit_statements(body, kind);
        });
    }

    fn return_at_once(&mut self, signature: &Signature, body: &Block) {
        let opened = body.brace_token.span.open().byte_range().end;
        let closed = body.brace_token.span.close().byte_range().start;
        let code = shortened(self.code(&(opened..closed)));
        // A default that is the default of itself would not end.
        let is_default = signature.ident == "default";
        let values = match &signature.output {
            ReturnType::Default => vec![String::new()],
            ReturnType::Type(_, returned) => returns::values(returned),
        };
        let new = values.into_iter().filter(|value| {
            value.split_whitespace().collect::<String>()
                != code.split_whitespace().collect::<String>()
                && !(is_default && value.contains("default()"))
        });
        let mutants: Vec<_> = new
            .map(|value| {
                let what = match value.as_str() {
                    "" | "()" => "returns at once".to_owned(),
                    value => format!("returns {value} at once"),
                };
                self.mutant(what, opened..opened, format!(" return {value};"))
            })
            .collect();
        if !mutants.is_empty() {
            self.sites.push(crate::site::Site {
                span: opened..opened,
                form: Form::Entry,
                mutants,
            });
        }
    }
}

fn returns_nothing(output: &ReturnType) -> bool {
    match output {
        ReturnType::Default => true,
        ReturnType::Type(_, returned) => {
            matches!(&**returned, Type::Tuple(tuple) if tuple.elems.is_empty())
        }
    }
}

/// The name of the type that an `impl` is for.
pub(super) fn name_of(of: &Type) -> String {
    match of {
        Type::Path(path) => path
            .path
            .segments
            .last()
            .map_or_else(String::new, |last| last.ident.to_string()),
        Type::Reference(reference) => name_of(&reference.elem),
        _ => "impl".to_owned(),
    }
}
