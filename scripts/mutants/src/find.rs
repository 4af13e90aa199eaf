//! Finds the mutants of a file.
//!
//! Left alone are tests, code for other systems, constants and `const` functions (a program cannot choose there),
//! patterns, types, attributes, declarations of macros, and the arguments of macros other than those in [`macros`].

mod active;
mod conditions;
mod functions;
mod literals;
mod macros;
mod methods;
mod operators;
mod returns;
mod statements;

use std::collections::HashMap;

use anyhow::Context;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Expr, File};

use crate::site::{Form, Mutable, Mutant, Site, Span, shortened};

/// Finds the mutants of a file. They get the numbers from 0 on.
///
/// # Errors
/// If the file is not Rust.
pub fn find(file: &str, text: &str) -> anyhow::Result<Mutable> {
    let syntax = syn::parse_file(text).with_context(|| format!("{file} cannot be parsed"))?;
    let mut finder = Finder::new(text);
    finder.visit_file(&syntax);
    Ok(finder.finish(file))
}

/// The files of modules that a file declares for tests or for other systems: their paths without `.rs`, relative to the
/// folder of the file's modules.
///
/// # Errors
/// If the file is not Rust.
pub fn inactive_modules(file: &str, text: &str) -> anyhow::Result<Vec<String>> {
    let syntax: File = syn::parse_file(text).with_context(|| format!("{file} cannot be parsed"))?;
    let modules = syntax.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() => Some(module),
        _ => None,
    });
    let inactive = modules.filter(|module| !active::is_active(&module.attrs));
    Ok(inactive.map(|module| module.ident.to_string()).collect())
}

/// Goes through a file and notes the mutants.
struct Finder<'a> {
    text: &'a str,
    /// Where each line starts.
    lines: Vec<usize>,
    sites: Vec<Site>,
    /// The site that chooses between expressions, for the range of each that has mutants.
    expressions: HashMap<Span, usize>,
    functions: Vec<Span>,
    /// The modules, types and functions around.
    names: Vec<String>,
    /// The expression of the statement that is visited next, which is deleted as a statement.
    statement: Option<Span>,
}

impl<'a> Finder<'a> {
    fn new(text: &'a str) -> Self {
        let starts = text.match_indices('\n').map(|(at, _)| at + 1);
        Self {
            text,
            lines: [0].into_iter().chain(starts).collect(),
            sites: Vec::new(),
            expressions: HashMap::new(),
            functions: Vec::new(),
            names: Vec::new(),
            statement: None,
        }
    }

    /// The code in a range.
    fn code(&self, span: &Span) -> &'a str {
        &self.text[span.clone()]
    }

    /// The code of a part of the syntax, as the name of a mutant shows it.
    fn shown(&self, part: &impl Spanned) -> String {
        shortened(self.code(&span(part)))
    }

    /// The code of an operand: in parentheses, if it has an operator itself.
    fn operand(&self, expression: &Expr) -> String {
        let code = self.code(&span(expression));
        match expression {
            Expr::Array(_)
            | Expr::Call(_)
            | Expr::Field(_)
            | Expr::Index(_)
            | Expr::Lit(_)
            | Expr::Macro(_)
            | Expr::MethodCall(_)
            | Expr::Paren(_)
            | Expr::Path(_)
            | Expr::Try(_)
            | Expr::Tuple(_) => code.to_owned(),
            _ => format!("({code})"),
        }
    }

    fn mutant(&self, what: String, replaced: Span, with: impl Into<String>) -> Mutant {
        Mutant {
            what,
            function: self.names.join("::"),
            line: self.lines.partition_point(|&start| start <= replaced.start),
            replaced,
            with: with.into(),
        }
    }

    /// Notes a site with one mutant.
    fn add(
        &mut self,
        span: Span,
        form: Form,
        what: String,
        replaced: Span,
        with: impl Into<String>,
    ) {
        let mutants = vec![self.mutant(what, replaced, with)];
        self.sites.push(Site {
            span,
            form,
            mutants,
        });
    }

    /// Notes that another expression may stand in place of one.
    fn replace(&mut self, expression: &impl Spanned, what: String, with: impl Into<String>) {
        let span = span(expression);
        let mutant = self.mutant(what, span.clone(), with);
        if let Some(&site) = self.expressions.get(&span) {
            self.sites[site].mutants.push(mutant);
            return;
        }
        self.expressions.insert(span.clone(), self.sites.len());
        self.sites.push(Site {
            span,
            form: Form::Expression,
            mutants: vec![mutant],
        });
    }

    /// Orders the sites and numbers mutants that have the same words.
    fn finish(mut self, file: &str) -> Mutable {
        self.sites
            .sort_by_key(|site| (site.span.start, usize::MAX - site.span.end));
        self.functions
            .sort_by_key(|span| (span.start, usize::MAX - span.end));
        let mut seen: HashMap<(String, String), u32> = HashMap::new();
        for mutant in self.sites.iter_mut().flat_map(|site| &mut site.mutants) {
            let name = (mutant.function.clone(), mutant.what.clone());
            let count = seen.entry(name).or_default();
            *count += 1;
            if *count > 1 {
                mutant.what += &format!(" #{count}");
            }
        }
        Mutable {
            file: file.to_owned(),
            text: self.text.to_owned(),
            sites: self.sites,
            functions: self.functions,
            first: 0,
        }
    }
}

/// The bytes of a part of the syntax.
fn span(part: &impl Spanned) -> Span {
    part.span().byte_range()
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_expr(&mut self, expression: &'ast Expr) {
        let is_statement = self.statement.take() == Some(span(expression));
        if self.code(&span(expression)).starts_with('#') {
            return;
        }
        match expression {
            Expr::Assign(_) if !is_statement => self.delete_assignment(expression),
            Expr::Binary(binary) => self.swap_operator(binary, is_statement),
            Expr::Call(call) => self.swap_function(call),
            Expr::If(branch) => return self.visit_branch(branch),
            Expr::Lit(literal) => self.change_literal(literal),
            Expr::Macro(call) => return self.visit_arguments(&call.mac),
            Expr::Match(choice) => self.skip_arms(choice),
            Expr::MethodCall(call) => self.change_call(call),
            Expr::Unary(unary) => self.drop_negation(unary),
            Expr::While(repeat) => return self.visit_while(repeat),
            Expr::ForLoop(repeat) => return self.visit_for(repeat),
            Expr::Loop(repeat) => {
                return self.visit_statements(&repeat.body, statements::Block::Loop);
            }
            _ => {}
        }
        visit::visit_expr(self, expression);
    }

    fn visit_block(&mut self, block: &'ast syn::Block) {
        self.visit_statements(block, statements::Block::Other);
    }

    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        if active::is_active(&arm.attrs) {
            self.visit_guard(&arm.pat);
            self.visit_expr(&arm.body);
        }
    }

    fn visit_expr_let(&mut self, condition: &'ast syn::ExprLet) {
        self.visit_expr(&condition.expr);
    }

    fn visit_expr_repeat(&mut self, array: &'ast syn::ExprRepeat) {
        self.visit_expr(&array.expr);
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.visit_function(&item.attrs, &item.sig, Some(&item.block));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.visit_function(&item.attrs, &item.sig, Some(&item.block));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.visit_function(&item.attrs, &item.sig, item.default.as_ref());
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if active::is_active(&item.attrs) {
            let name = functions::name_of(&item.self_ty);
            self.within(name, |finder| visit::visit_item_impl(finder, item));
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if active::is_active(&item.attrs) {
            let name = item.ident.to_string();
            self.within(name, |finder| visit::visit_item_trait(finder, item));
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if active::is_active(&item.attrs) {
            let name = item.ident.to_string();
            self.within(name, |finder| visit::visit_item_mod(finder, item));
        }
    }

    // What a program cannot choose, and what is no code.
    fn visit_attribute(&mut self, _: &'ast syn::Attribute) {}
    fn visit_expr_const(&mut self, _: &'ast syn::ExprConst) {}
    fn visit_generic_argument(&mut self, _: &'ast syn::GenericArgument) {}
    fn visit_generics(&mut self, _: &'ast syn::Generics) {}
    fn visit_impl_item_const(&mut self, _: &'ast syn::ImplItemConst) {}
    fn visit_item_const(&mut self, _: &'ast syn::ItemConst) {}
    fn visit_item_enum(&mut self, _: &'ast syn::ItemEnum) {}
    fn visit_item_macro(&mut self, _: &'ast syn::ItemMacro) {}
    fn visit_item_static(&mut self, _: &'ast syn::ItemStatic) {}
    fn visit_pat(&mut self, _: &'ast syn::Pat) {}
    fn visit_trait_item_const(&mut self, _: &'ast syn::TraitItemConst) {}
    fn visit_type(&mut self, _: &'ast syn::Type) {}
}

#[cfg(test)]
mod tests;
