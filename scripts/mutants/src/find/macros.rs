//! Macros whose arguments are expressions.

use syn::parse::{ParseStream, Parser};
use syn::punctuated::Punctuated;
use syn::visit::Visit;
use syn::{Expr, Macro, Pat, Token};

use super::Finder;

/// Macros that format text or make values of all their arguments.
const OF_EXPRESSIONS: [&str; 14] = [
    "anyhow",
    "bail",
    "ensure",
    "eprint",
    "eprintln",
    "format",
    "format_args",
    "join",
    "max",
    "print",
    "println",
    "vec",
    "write",
    "writeln",
];

/// Macros that are statements for what they do.
const WITH_EFFECT: [&str; 7] = [
    "ensure", "eprint", "eprintln", "print", "println", "write", "writeln",
];

/// Whether a macro is there for what it does, and may be left out.
pub(super) fn has_effect(call: &Macro) -> bool {
    name(call).is_some_and(|name| WITH_EFFECT.contains(&name.as_str()))
}

fn name(call: &Macro) -> Option<String> {
    call.path.segments.last().map(|last| last.ident.to_string())
}

impl Finder<'_> {
    /// Visits the arguments of the macros whose arguments are expressions.
    pub(super) fn visit_arguments(&mut self, call: &Macro) {
        let Some(name) = name(call) else { return };
        let tokens = call.tokens.clone();
        if name == "matches"
            && let Ok((matched, pattern)) = matched.parse2(tokens.clone())
        {
            self.visit_expr(&matched);
            self.visit_guard(&pattern);
        }
        if name == "vec"
            && let Ok(value) = repeated.parse2(tokens.clone())
        {
            self.visit_expr(&value[0]);
            self.visit_expr(&value[1]);
        }
        if !OF_EXPRESSIONS.contains(&name.as_str()) {
            return;
        }
        let parser = Punctuated::<Expr, Token![,]>::parse_terminated;
        for argument in parser.parse2(tokens).into_iter().flatten() {
            match &argument {
                // `name = value`
                Expr::Assign(named) => self.visit_expr(&named.right),
                _ => self.visit_expr(&argument),
            }
        }
    }
}

/// The arguments of `matches!`.
fn matched(input: ParseStream) -> syn::Result<(Expr, Pat)> {
    let expression = input.parse()?;
    input.parse::<Token![,]>()?;
    let pattern = Pat::parse_multi_with_leading_vert(input)?;
    let pattern = match input.peek(Token![if]) {
        false => pattern,
        true => Pat::Guard(syn::PatGuard {
            attrs: Vec::new(),
            pat: Box::new(pattern),
            if_token: input.parse()?,
            guard: input.parse()?,
        }),
    };
    input.parse::<Option<Token![,]>>()?;
    Ok((expression, pattern))
}

/// The arguments of `vec![value; count]`.
fn repeated(input: ParseStream) -> syn::Result<[Expr; 2]> {
    let value = input.parse()?;
    input.parse::<Token![;]>()?;
    Ok([value, input.parse()?])
}
