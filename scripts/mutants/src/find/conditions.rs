//! Conditions of `if`, `while`, `match` and its guards become `true` or `false`.

use syn::visit::Visit;
use syn::{Arm, BinOp, Expr, ExprForLoop, ExprIf, ExprMatch, ExprWhile, Lit, Pat};

use super::{Finder, active, span, statements};
use crate::site::{Form, shortened};

impl Finder<'_> {
    pub(super) fn visit_branch(&mut self, branch: &ExprIf) {
        self.decide_condition(&branch.cond, "if", &["true", "false"]);
        self.visit_expr(&branch.cond);
        let kind = match &branch.else_branch {
            None => statements::Block::If,
            Some(_) => statements::Block::Other,
        };
        self.visit_statements(&branch.then_branch, kind);
        if let Some((_, otherwise)) = &branch.else_branch {
            self.visit_expr(otherwise);
        }
    }

    pub(super) fn visit_while(&mut self, repeat: &ExprWhile) {
        // With `true`, most loops would not end.
        self.decide_condition(&repeat.cond, "while", &["false"]);
        self.visit_expr(&repeat.cond);
        self.visit_statements(&repeat.body, statements::Block::Loop);
    }

    pub(super) fn visit_for(&mut self, repeat: &ExprForLoop) {
        self.visit_expr(&repeat.expr);
        self.visit_statements(&repeat.body, statements::Block::Loop);
    }

    /// The guard of an arm.
    pub(super) fn visit_guard(&mut self, pattern: &Pat) {
        if let Pat::Guard(pattern) = pattern {
            self.decide_condition(&pattern.guard, "guard", &["true", "false"]);
            self.visit_expr(&pattern.guard);
        }
    }

    /// Adds a mutant of the condition for each of `truths`.
    fn decide_condition(&mut self, condition: &Expr, word: &str, truths: &[&str]) {
        let shown = self.shown(condition);
        if contains_let(condition) {
            let end = span(condition).end;
            let what = format!("{word} `{shown}` -> false");
            let form = Form::Condition("&&");
            self.add(end..end, form, what, end..end, " && false");
            if truths.contains(&"true") {
                self.drop_operands(condition, word);
            }
            return;
        }
        if matches!(condition, Expr::Lit(_)) {
            return;
        }
        for truth in truths {
            let what = format!("{word} `{shown}` -> {truth}");
            self.replace(condition, what, *truth);
        }
    }

    /// Each condition that is joined with a `let` becomes `true`.
    fn drop_operands(&mut self, condition: &Expr, word: &str) {
        match condition {
            Expr::Let(_) => {}
            Expr::Binary(both) if contains_let(condition) => {
                self.drop_operands(&both.left, word);
                self.drop_operands(&both.right, word);
            }
            _ => {
                let what = format!("{word} `{}` -> true", self.shown(condition));
                self.replace(condition, what, "true");
            }
        }
    }

    /// Each arm of a `match` is skipped, if the last arm accepts everything. A `match` on a condition gets `true` or `false`.
    pub(super) fn skip_arms(&mut self, choice: &ExprMatch) {
        if choice.arms.iter().any(|arm| is_truth(&arm.pat)) {
            self.decide_condition(&choice.expr, "match", &["true", "false"]);
            return;
        }
        let Some((last, arms)) = choice.arms.split_last() else {
            return;
        };
        if !accepts_everything(&last.pat) || choice.arms.iter().any(is_conditional) {
            return;
        }
        let otherwise = shortened(self.code(&span(&last.body)));
        for arm in arms {
            let is_same = shortened(self.code(&span(&arm.body))) == otherwise;
            if is_same || matches!(arm.pat, Pat::Guard(_)) {
                continue;
            }
            let end = span(&arm.pat).end;
            let what = format!(
                "arm `{}` -> {}",
                self.shown(&arm.pat),
                self.shown(&last.pat)
            );
            let form = Form::Condition(" if");
            self.add(end..end, form, what, end..end, " if false");
        }
    }
}

fn is_conditional(arm: &Arm) -> bool {
    arm.attrs.iter().any(active::is_conditional)
}

/// Whether a condition is a `let`, or several conditions with one.
pub(super) fn contains_let(condition: &Expr) -> bool {
    match condition {
        Expr::Let(_) => true,
        Expr::Binary(both) => {
            matches!(both.op, BinOp::And(_))
                && (contains_let(&both.left) || contains_let(&both.right))
        }
        _ => false,
    }
}

fn is_truth(pattern: &Pat) -> bool {
    match pattern {
        Pat::Guard(guarded) => is_truth(&guarded.pat),
        Pat::Lit(literal) => matches!(literal.lit, Lit::Bool(_)),
        _ => false,
    }
}

/// Whether a pattern is `_` or a name.
fn accepts_everything(pattern: &Pat) -> bool {
    match pattern {
        Pat::Wild(_) => true,
        // Capitals name a constant or a variant.
        Pat::Ident(name) => {
            name.subpat.is_none() && !name.ident.to_string().starts_with(char::is_uppercase)
        }
        _ => false,
    }
}
