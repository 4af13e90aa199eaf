//! Calls: methods with a counterpart, adaptors of iterators, and conditions that are closures or receivers.

use syn::spanned::Spanned;
use syn::{Expr, ExprCall, ExprMethodCall};

use super::{Finder, span};
use crate::site::Form;

/// Methods that take the same arguments and do something similar, or the opposite.
const COUNTERPARTS: [(&str, &str); 34] = [
    ("all", "any"),
    ("back", "front"),
    ("back_mut", "front_mut"),
    ("ceil", "floor"),
    ("checked_add", "checked_sub"),
    ("ends_with", "starts_with"),
    ("find", "rfind"),
    ("first", "last"),
    ("first_entry", "last_entry"),
    ("first_key_value", "last_key_value"),
    ("first_mut", "last_mut"),
    ("is_err", "is_ok"),
    ("is_err_and", "is_ok_and"),
    ("is_none", "is_some"),
    ("is_none_or", "is_some_and"),
    ("is_lt", "is_le"),
    ("is_gt", "is_ge"),
    ("leading_zeros", "trailing_zeros"),
    ("max", "min"),
    ("max_by", "min_by"),
    ("max_by_key", "min_by_key"),
    ("next", "next_back"),
    ("overflowing_add", "overflowing_sub"),
    ("pop_back", "pop_front"),
    ("pop_first", "pop_last"),
    ("position", "rposition"),
    ("push_back", "push_front"),
    ("rsplit_once", "split_once"),
    ("saturating_add", "saturating_sub"),
    ("split_first", "split_last"),
    ("strip_prefix", "strip_suffix"),
    ("trim_end", "trim_start"),
    ("trim_end_matches", "trim_start_matches"),
    ("wrapping_add", "wrapping_sub"),
];

/// Methods with a counterpart that is not exchanged back.
const ONE_WAY: [(&str, &str); 4] = [
    ("checked_mul", "checked_add"),
    ("saturating_mul", "saturating_add"),
    ("wrapping_mul", "wrapping_add"),
    ("swap_remove", "remove"),
];

/// Methods whose last argument is a condition.
const CONDITIONAL: [&str; 18] = [
    "all",
    "any",
    "extract_if",
    "filter",
    "find",
    "is_err_and",
    "is_none_or",
    "is_ok_and",
    "is_some_and",
    "partition",
    "partition_point",
    "position",
    "retain",
    "retain_mut",
    "rposition",
    "skip_while",
    "take_while",
    "trim_matches",
];

/// Methods that take a number of elements.
const COUNTING: [&str; 4] = ["nth", "skip", "step_by", "take"];

impl Finder<'_> {
    /// All changes of the call of a method.
    pub(super) fn change_call(&mut self, call: &ExprMethodCall) {
        let method = call.method.to_string();
        let arguments = call.args.len();
        if let Some(other) = counterpart(&method) {
            self.swap_name(call, &call.method, other);
        }
        if CONDITIONAL.contains(&method.as_str())
            && let Some(Expr::Closure(closure)) = call.args.last()
        {
            self.decide(&closure.body, &method);
        }
        if matches!(method.as_str(), "then" | "then_some") {
            self.decide(&call.receiver, &method);
        }
        if COUNTING.contains(&method.as_str())
            && let (1, Some(count)) = (arguments, call.args.first())
        {
            self.change_count(count);
        }
        if method == "rev" && arguments == 0 {
            self.drop_call(call, "reversed", &call.receiver);
        }
        if method == "chain"
            && let (1, Some(more)) = (arguments, call.args.first())
        {
            self.drop_call(call, "kept", more);
        }
    }

    /// `min(a, b)` becomes `max(a, b)` and the other way round.
    pub(super) fn swap_function(&mut self, call: &ExprCall) {
        if let Expr::Path(path) = &*call.func
            && let Some(last) = path.path.segments.last()
            && call.args.len() == 2
        {
            match last.ident.to_string().as_str() {
                "min" => self.swap_name(call, &last.ident, "max"),
                "max" => self.swap_name(call, &last.ident, "min"),
                _ => {}
            }
        }
    }

    fn swap_name(&mut self, call: &impl Spanned, name: &syn::Ident, other: &str) {
        let (whole, name) = (span(call), span(name));
        let what = format!("`{}`: {} -> {other}", self.shown(call), self.code(&name));
        let before = self.code(&(whole.start..name.start));
        let after = self.code(&(name.end..whole.end));
        self.replace(call, what, format!("{before}{other}{after}"));
    }

    /// A condition that the argument or the receiver of a method is always holds, or never.
    fn decide(&mut self, condition: &Expr, method: &str) {
        if matches!(condition, Expr::Lit(_)) {
            return;
        }
        let shown = self.shown(condition);
        for truth in ["true", "false"] {
            let what = format!("{method} `{shown}` -> {truth}");
            self.replace(condition, what, truth);
        }
    }

    fn change_count(&mut self, count: &Expr) {
        if let Expr::Lit(_) = count {
            self.lower_literal(count);
            return;
        }
        let what = format!("`{0}` -> {0} + 1", self.shown(count));
        let more = format!("{} + 1", self.operand(count));
        self.replace(count, what, more);
    }

    fn drop_call(&mut self, call: &ExprMethodCall, function: &'static str, argument: &Expr) {
        let what = format!("`{}`: drop {}", self.shown(call), call.method);
        let (whole, receiver) = (span(call), span(&call.receiver));
        let argument = span(argument);
        let site = match argument == receiver {
            true => whole.clone(),
            false => argument.clone(),
        };
        let form = Form::Call { function, argument };
        self.add(site, form, what, receiver.end..whole.end, "");
    }
}

fn counterpart(method: &str) -> Option<&'static str> {
    let mut both = COUNTERPARTS.iter().chain(&ONE_WAY);
    let (one, other) = both.find(|(one, other)| {
        method == *one || method == *other && !ONE_WAY.contains(&(one, other))
    })?;
    Some(if method == *one { other } else { one })
}
