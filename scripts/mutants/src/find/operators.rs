//! Operators and their neighbours.

use syn::{BinOp, Expr, ExprBinary, ExprUnary, Lit, UnOp};

use super::conditions::contains_let;
use super::{Finder, span};

impl Finder<'_> {
    /// A comparison, an arithmetic or a logical operator becomes another.
    pub(super) fn swap_operator(&mut self, binary: &ExprBinary, is_statement: bool) {
        let others = others(&binary.op);
        if others.is_empty() || is_text(&binary.left) || is_text(&binary.right) {
            return;
        }
        // The halves of a condition with `let` are no expressions.
        if contains_let(&binary.left) || contains_let(&binary.right) {
            return;
        }
        let now = self.code(&span(&binary.op));
        let whole = self.shown(binary);
        let (left, right) = (self.operand(&binary.left), self.operand(&binary.right));
        for &other in others {
            let what = format!("`{whole}`: {now} -> {other}");
            self.replace(binary, what, format!("{left} {other} {right}"));
        }
        if changes(&binary.op) && !is_statement {
            self.replace(binary, format!("delete `{whole}`"), "{}");
        }
    }

    /// `!x` and `-x` become `x`.
    pub(super) fn drop_negation(&mut self, unary: &ExprUnary) {
        let sign = match (&unary.op, &*unary.expr) {
            (UnOp::Not(_), _) => '!',
            // The literal changes.
            (UnOp::Neg(_), Expr::Lit(_)) => return,
            (UnOp::Neg(_), _) => '-',
            _ => return,
        };
        let what = format!("`{}`: drop {sign}", self.shown(unary));
        let positive = self.operand(&unary.expr);
        self.replace(unary, what, positive);
    }

    /// An assignment where an expression stands, such as an arm of a match.
    pub(super) fn delete_assignment(&mut self, assignment: &Expr) {
        let what = format!("delete `{}`", self.shown(assignment));
        self.replace(assignment, what, "{}");
    }
}

fn is_text(operand: &Expr) -> bool {
    match operand {
        Expr::Lit(literal) => matches!(literal.lit, Lit::Str(_)),
        Expr::Macro(call) => call.mac.path.is_ident("format"),
        Expr::Paren(inner) => is_text(&inner.expr),
        Expr::Reference(inner) => is_text(&inner.expr),
        _ => false,
    }
}

/// Whether an operator assigns.
pub(super) fn changes(operator: &BinOp) -> bool {
    matches!(
        operator,
        BinOp::AddAssign(_)
            | BinOp::SubAssign(_)
            | BinOp::MulAssign(_)
            | BinOp::DivAssign(_)
            | BinOp::RemAssign(_)
            | BinOp::BitXorAssign(_)
            | BinOp::BitAndAssign(_)
            | BinOp::BitOrAssign(_)
            | BinOp::ShlAssign(_)
            | BinOp::ShrAssign(_)
    )
}

fn others(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) => &["+"],
        BinOp::Mul(_) => &["+"],
        BinOp::Div(_) => &["*"],
        BinOp::Rem(_) => &["/"],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::BitXor(_) => &["&"],
        BinOp::BitAnd(_) => &["|"],
        BinOp::BitOr(_) => &["&"],
        BinOp::Shl(_) => &[">>"],
        BinOp::Shr(_) => &["<<"],
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::Lt(_) => &["<=", ">="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        BinOp::MulAssign(_) => &["+="],
        BinOp::DivAssign(_) => &["*="],
        BinOp::RemAssign(_) => &["/="],
        BinOp::BitXorAssign(_) => &["&="],
        BinOp::BitAndAssign(_) => &["|="],
        BinOp::BitOrAssign(_) => &["&="],
        BinOp::ShlAssign(_) => &[">>="],
        BinOp::ShrAssign(_) => &["<<="],
        _ => &[],
    }
}
