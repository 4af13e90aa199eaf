//! Puts all mutants into the text of a file, each behind the switch.

use std::collections::HashSet;
use std::iter::Peekable;
use std::ops::Range;

use crate::site::{Effect, Form, Mutable, Site, Span};

/// A file with mutants.
#[derive(Debug, Default)]
pub struct Rewritten {
    /// Its text.
    pub text: String,
    /// What lies where, to tell which mutants an error is about.
    pub parts: Vec<Part>,
}

/// A part of a file with mutants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Part {
    /// Its range in the new text.
    pub span: Span,
    /// What it is.
    pub kind: Kind,
    /// The numbers of the mutants in it: one, those of the place, or those of the function.
    pub mutants: Range<u32>,
}

/// What a part is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// The code that a mutant has in place of the original.
    Mutant,
    /// The original code of a place, and that of its mutants.
    Site,
    /// A place with a statement that leaves a loop or the function.
    Leaves,
    /// A place with a statement that assigns a value.
    Assigns,
    /// The body of a function.
    Function,
}

/// Puts the mutants into the text of their file, but those that are left out.
#[must_use]
pub fn rewrite(file: &Mutable, left_out: &HashSet<u32>) -> Rewritten {
    let mut first = file.first;
    let sites = file.sites.iter().map(|site| {
        let numbers = first..first + u32::try_from(site.mutants.len()).unwrap_or(0);
        first = numbers.end;
        Piece {
            span: site.span.clone(),
            numbers,
            site: Some(site),
        }
    });
    let functions = file.functions.iter().map(|span| Piece {
        span: span.clone(),
        numbers: 0..0,
        site: None,
    });
    let mut pieces: Vec<Piece> = sites.chain(functions).collect();
    pieces.sort_by_key(|piece| (piece.span.start, usize::MAX - piece.span.end));
    let mut writer = Writer {
        original: &file.text,
        left_out,
        pieces: pieces.into_iter().peekable(),
        new: Rewritten::default(),
    };
    writer.copy(0..file.text.len());
    writer.new
}

/// A place that can be changed, or the body of a function.
struct Piece<'a> {
    span: Span,
    numbers: Range<u32>,
    site: Option<&'a Site>,
}

struct Writer<'a, P: Iterator<Item = Piece<'a>>> {
    original: &'a str,
    left_out: &'a HashSet<u32>,
    pieces: Peekable<P>,
    new: Rewritten,
}

impl<'a, P: Iterator<Item = Piece<'a>>> Writer<'a, P> {
    /// Copies a range with all the pieces in it.
    fn copy(&mut self, range: Span) {
        let mut at = range.start;
        let is_within = |piece: &Piece| piece.span.start < range.end && piece.span.end <= range.end;
        while let Some(piece) = self.pieces.next_if(is_within) {
            self.push(&self.original[at..piece.span.start]);
            at = piece.span.end;
            self.piece(&piece);
        }
        self.push(&self.original[at..range.end]);
    }

    fn push(&mut self, text: &str) {
        self.new.text.push_str(text);
    }

    /// Notes what was written since `start`.
    fn note(&mut self, start: usize, kind: Kind, mutants: Range<u32>) {
        let span = start..self.new.text.len();
        self.new.parts.push(Part {
            span,
            kind,
            mutants,
        });
    }

    fn piece(&mut self, piece: &Piece) {
        let start = self.new.text.len();
        let Some(site) = piece.site else {
            let before = self.new.parts.len();
            self.copy(piece.span.clone());
            let inside = self.new.parts[before..].iter();
            let inside = inside.filter(|part| part.kind == Kind::Site);
            let first = inside.clone().map(|part| part.mutants.start).min();
            let end = inside.map(|part| part.mutants.end).max();
            let mutants = first.unwrap_or(0)..end.unwrap_or(0);
            self.note(start, Kind::Function, mutants);
            return;
        };
        let kept: Vec<u32> = piece
            .numbers
            .clone()
            .filter(|number| !self.left_out.contains(number))
            .collect();
        if kept.is_empty() {
            self.copy(piece.span.clone());
            return;
        }
        let (first, count) = (piece.numbers.start, piece.numbers.len());
        let switch = format!("::mutation_switch::at({first}, {count})");
        match &site.form {
            Form::Expression => {
                self.push(&format!("(match {switch} {{ 0 => "));
                self.copy(piece.span.clone());
                self.arms(piece, site, &kept);
                self.push(" })");
            }
            Form::Statement(effect) => {
                self.push(&format!("match {switch} {{ 0 => {{ "));
                self.copy(piece.span.clone());
                self.push(" }");
                let arm = self.new.text.len();
                self.push(" _ => {} }");
                self.note(arm, Kind::Mutant, piece.numbers.clone());
                let kind = match effect {
                    Effect::Leaves => Some(Kind::Leaves),
                    Effect::Assigns => Some(Kind::Assigns),
                    Effect::Other => None,
                };
                if let Some(kind) = kind {
                    self.note(start, kind, piece.numbers.clone());
                }
            }
            Form::Entry => {
                self.push(&format!(" match {switch} {{ 0 => {{}}"));
                self.arms(piece, site, &kept);
                self.push(" }");
            }
            Form::Condition(word) => {
                self.push(&format!(" {} {switch} == 0", word.trim()));
                self.note(start, Kind::Mutant, piece.numbers.clone());
            }
            Form::Call { function, argument } => {
                self.push(&format!("::mutation_switch::{function}("));
                self.copy(argument.clone());
                let arm = self.new.text.len();
                self.push(&format!(", {first})"));
                self.note(arm, Kind::Mutant, piece.numbers.clone());
            }
        }
        self.note(start, Kind::Site, piece.numbers.clone());
    }

    /// An arm for each mutant that is kept. The last accepts every number.
    fn arms(&mut self, piece: &Piece, site: &Site, kept: &[u32]) {
        for &number in kept {
            let index = number - piece.numbers.start;
            let pattern = match kept.last() == Some(&number) {
                true => "_".to_owned(),
                false => (index + 1).to_string(),
            };
            self.push(&format!(", {pattern} => "));
            let start = self.new.text.len();
            let code = &site.mutants[index as usize].with;
            match site.form {
                Form::Entry => self.push(&format!("{{{code} }}")),
                _ => self.push(code),
            }
            self.note(start, Kind::Mutant, number..number + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::find;

    fn rewritten(code: &str, left_out: &[u32]) -> Rewritten {
        let mut file = find("a.rs", code).unwrap();
        file.first = 10;
        rewrite(&file, &left_out.iter().copied().collect())
    }

    #[test]
    fn sites_are_nested_and_mutants_have_the_original_operands() {
        let new = rewritten("fn f() { g(a + b - c); h(); }", &[]).text;
        // 10: return at once, 11: delete, 12 and 13: the operators.
        let sum = "(match ::mutation_switch::at(13, 1) { 0 => a + b, _ => a - b })";
        let all =
            format!("(match ::mutation_switch::at(12, 1) {{ 0 => {sum} - c, _ => (a + b) + c }})");
        let start = "fn f() { match ::mutation_switch::at(10, 1) { 0 => {}, _ => { return ; } } ";
        let deleted =
            format!("match ::mutation_switch::at(11, 1) {{ 0 => {{ g({all}); }} _ => {{}} }}");
        assert!(new.starts_with(&format!("{start}{deleted}")), "{new}");
    }

    #[test]
    fn what_is_left_out_leaves_the_original_and_other_numbers_alone() {
        let code = "fn f(a: u8, b: u8) -> bool { a < b }";
        let new = rewritten(code, &[10, 11, 12]).text;
        let kept = "(match ::mutation_switch::at(12, 2) { 0 => a < b, _ => a >= b })";
        assert_eq!(new, format!("fn f(a: u8, b: u8) -> bool {{ {kept} }}"));
        assert_eq!(rewritten(code, &[10, 11, 12, 13]).text, code);
    }

    #[test]
    fn the_parts_say_what_lies_where() {
        let new = rewritten("fn f() -> u8 { a * 2 }", &[10, 11]);
        let text = |part: &Part| &new.text[part.span.clone()];
        let parts: Vec<_> = new
            .parts
            .iter()
            .map(|part| (part.kind, part.mutants.clone(), text(part)))
            .collect();
        let site = "(match ::mutation_switch::at(13, 1) { 0 => 2, _ => 3 })";
        assert_eq!(parts[0], (Kind::Mutant, 13..14, "3"));
        assert_eq!(parts[1], (Kind::Site, 13..14, site));
        assert_eq!(parts[2], (Kind::Mutant, 12..13, "a + 2"));
        assert_eq!(parts[3].0, Kind::Site);
        assert_eq!((parts[4].0, parts[4].1.clone()), (Kind::Function, 12..14));
    }

    #[test]
    fn every_form_is_rewritten() {
        let new = rewritten(
            "fn f() { if let Some(a) = b { h(); c.chain(d.rev()); } match e { 1 => i(), _ => j() } }",
            &[],
        )
        .text;
        for part in [
            "if let Some(a) = b && ::mutation_switch::at(",
            "c.chain(::mutation_switch::kept(::mutation_switch::reversed(d, ",
            "1 if ::mutation_switch::at(",
        ] {
            assert!(new.contains(part), "no {part} in {new}");
        }
    }
}
