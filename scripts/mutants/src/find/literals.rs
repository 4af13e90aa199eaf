//! Numbers and truth values.

use syn::{Expr, ExprLit, Lit, LitInt};

use super::Finder;

impl Finder<'_> {
    /// An integer becomes the next, a truth value the other.
    pub(super) fn change_literal(&mut self, literal: &ExprLit) {
        let now = self.shown(literal);
        let then = match &literal.lit {
            Lit::Int(number) => match value(number) {
                Some(value) => format!("{}{}", value.saturating_add(1), number.suffix()),
                None => return,
            },
            Lit::Bool(truth) => (!truth.value).to_string(),
            _ => return,
        };
        self.replace(literal, format!("literal {now} -> {then}"), then.clone());
    }

    /// A positive integer becomes the one before.
    pub(super) fn lower_literal(&mut self, argument: &Expr) {
        let Expr::Lit(ExprLit {
            lit: Lit::Int(number),
            ..
        }) = argument
        else {
            return;
        };
        if let Some(lower) = value(number).and_then(|value| value.checked_sub(1)) {
            let then = format!("{lower}{}", number.suffix());
            let what = format!("literal {} -> {then}", self.shown(argument));
            self.replace(argument, what, then);
        }
    }
}

fn value(number: &LitInt) -> Option<u128> {
    number.base10_digits().parse().ok()
}
