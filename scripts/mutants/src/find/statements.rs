//! Statements that are left out.

use syn::visit::Visit;
use syn::{Expr, Local, Stmt};

use super::{Finder, active, macros, operators, span};
use crate::site::{Effect, Form};

/// What a block is part of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Block {
    /// A function that returns nothing.
    Function,
    /// An `if` without an `else`.
    If,
    /// A loop.
    Loop,
    /// Something else.
    Other,
}

impl Finder<'_> {
    pub(super) fn visit_statements(&mut self, block: &syn::Block, kind: Block) {
        let count = block.stmts.len();
        for (index, statement) in block.stmts.iter().enumerate() {
            // That the function returns at once, or the condition does not hold, is the same.
            let is_all = count == 1 && matches!(kind, Block::Function | Block::If);
            let is_last = index + 1 == count;
            match statement {
                Stmt::Expr(expression, semicolon) => {
                    let has_value = semicolon.is_none() && kind == Block::Other;
                    let may_leave = is_last && kind == Block::If;
                    let can_go = has_effect(expression) || may_leave && leaves(expression);
                    if can_go && !is_all && !(is_last && has_value) {
                        self.delete(statement, effect(expression));
                        self.statement = Some(span(expression));
                    }
                    self.visit_expr(expression);
                }
                Stmt::Macro(call) => {
                    let has_value = call.semi_token.is_none() && is_last && kind == Block::Other;
                    if macros::has_effect(&call.mac) && !is_all && !has_value {
                        self.delete(statement, Effect::Other);
                    }
                    self.visit_arguments(&call.mac);
                }
                Stmt::Local(local) => {
                    if let (syn::Pat::Wild(_), Some(_), false) = (&local.pat, &local.init, is_all) {
                        self.delete(statement, Effect::Other);
                    }
                    self.visit_binding(local);
                }
                Stmt::Item(item) => self.visit_item(item),
            }
        }
    }

    fn visit_binding(&mut self, local: &Local) {
        if !active::is_active(&local.attrs) {
            return;
        }
        if let Some(init) = &local.init {
            self.visit_expr(&init.expr);
            if let Some((_, otherwise)) = &init.diverge {
                self.visit_expr(otherwise);
            }
        }
    }

    fn delete(&mut self, statement: &Stmt, effect: Effect) {
        let place = span(statement);
        if self.code(&place).starts_with('#') {
            return;
        }
        let what = format!("delete `{}`", self.shown(statement));
        self.add(place.clone(), Form::Statement(effect), what, place, "");
    }
}

/// Whether an expression is there for what it does.
fn has_effect(expression: &Expr) -> bool {
    match expression {
        Expr::Assign(_) | Expr::Call(_) | Expr::MethodCall(_) | Expr::Try(_) => true,
        Expr::Binary(binary) => operators::changes(&binary.op),
        Expr::Macro(call) => macros::has_effect(&call.mac),
        _ => false,
    }
}

fn effect(expression: &Expr) -> Effect {
    match expression {
        Expr::Assign(_) => Effect::Assigns,
        _ if leaves(expression) => Effect::Leaves,
        _ => Effect::Other,
    }
}

/// Whether an expression leaves a loop or the function.
fn leaves(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::Break(_) | Expr::Continue(_) | Expr::Return(_)
    )
}
