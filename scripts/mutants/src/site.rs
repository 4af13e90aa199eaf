//! Places that can be changed, and the mutants of each.

use std::ops::Range;

/// A range of bytes of a file.
pub type Span = Range<usize>;

/// A place of a file that can be changed, in one way or several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Site {
    /// The code that is changed. Empty where code is inserted.
    pub span: Span,
    /// How the program chooses between the code and its mutants.
    pub form: Form,
    /// The mutants.
    pub mutants: Vec<Mutant>,
}

/// How a program chooses between the code of a site and its mutants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Form {
    /// One expression or another.
    Expression,
    /// A statement or nothing.
    Statement(Effect),
    /// Code at the start of a function that returns a value, or nothing.
    Entry,
    /// A condition that is added after these words, and holds unless the mutant is chosen.
    Condition(&'static str),
    /// A call of this function of the switch with the code of `argument`, which is part of the site.
    Call {
        /// The name of the function.
        function: &'static str,
        /// The range of its argument.
        argument: Span,
    },
}

/// What a statement does, as far as the compiler may miss it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// It leaves a loop or the function. Code that follows it may rely on that.
    Leaves,
    /// It assigns a value. Code that follows it may need the value.
    Assigns,
    /// Something else.
    Other,
}

/// One change.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Mutant {
    /// What is changed into what, in words that no other mutant of the function has. With the file and the
    /// function it identifies the mutant: lines may move.
    pub what: String,
    /// The function, with the type it belongs to.
    pub function: String,
    /// The line of the file, from 1.
    pub line: usize,
    /// The range of bytes that differs.
    pub replaced: Span,
    /// What stands there instead.
    pub with: String,
}

/// The mutants of a file.
#[derive(Debug)]
pub struct Mutable {
    /// The path from the root of the checkout.
    pub file: String,
    /// The text of the file.
    pub text: String,
    /// The places, ordered so that one that contains another comes first.
    pub sites: Vec<Site>,
    /// The bodies of functions, in order.
    pub functions: Vec<Span>,
    /// The number of the first mutant of the file.
    pub first: u32,
}

impl Mutable {
    /// The mutants with their numbers, site by site.
    pub fn mutants(&self) -> impl Iterator<Item = (u32, &Mutant)> {
        let mutants = self.sites.iter().flat_map(|site| &site.mutants);
        (self.first..).zip(mutants)
    }

    /// The number of mutants.
    #[must_use]
    pub fn count(&self) -> u32 {
        let count: usize = self.sites.iter().map(|site| site.mutants.len()).sum();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// The text of the file with a mutant in place.
    #[must_use]
    pub fn with(&self, mutant: &Mutant) -> String {
        let mut text = self.text.clone();
        text.replace_range(mutant.replaced.clone(), &mutant.with);
        text
    }
}

/// The most characters of code that the name of a mutant shows.
const SHOWN: usize = 72;
/// How many of them are the first.
const SHOWN_FIRST: usize = 48;

/// Code as the name of a mutant shows it: in one line, without its middle if it is long.
#[must_use]
pub fn shortened(code: &str) -> String {
    let words: Vec<&str> = code.split_whitespace().collect();
    let line = words.join(" ");
    let count = line.chars().count();
    if count <= SHOWN {
        return line;
    }
    let first: String = line.chars().take(SHOWN_FIRST).collect();
    let last: String = line.chars().skip(count + SHOWN_FIRST + 1 - SHOWN).collect();
    format!("{first}…{last}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_code_is_shown_in_a_line_without_its_middle() {
        assert_eq!(shortened("a\n    .b(1,\t2)"), "a .b(1, 2)");
        let long: String = ('a'..='z').cycle().take(200).collect();
        let short = shortened(&long);
        assert_eq!(short.chars().count(), SHOWN);
        assert!(long.starts_with(&short[..SHOWN_FIRST]));
        assert!(long.ends_with(short.split('…').nth(1).unwrap()));
    }
}
