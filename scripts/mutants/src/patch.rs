//! Mutants as patches.

use std::fmt::Write as _;

use crate::site::{Mutable, Mutant};

/// Unchanged lines around the change.
const CONTEXT: usize = 3;

/// The change of a mutant in the form that `git apply` reads.
#[must_use]
pub fn patch(file: &Mutable, mutant: &Mutant) -> String {
    let new = file.with(mutant);
    let (old, new): (Vec<&str>, Vec<&str>) = (lines(&file.text), lines(&new));
    let same = |(old, new): &(&&str, &&str)| old == new;
    let before = old.iter().zip(&new).take_while(same).count();
    let most = old.len().min(new.len()) - before;
    let after = old.iter().rev().zip(new.iter().rev());
    let after = after.take(most).take_while(same).count();
    let start = before.saturating_sub(CONTEXT);
    let end = |lines: &[&str]| lines.len() - after.saturating_sub(CONTEXT);
    let (old_end, new_end) = (end(&old), end(&new));
    let name = &file.file;
    let mut text = format!("--- a/{name}\n+++ b/{name}\n");
    let (first, counts) = (start + 1, (old_end - start, new_end - start));
    // Writing to a string does not fail.
    let _ = writeln!(text, "@@ -{first},{} +{first},{} @@", counts.0, counts.1);
    for (sign, lines) in [
        (' ', &old[start..before]),
        ('-', &old[before..old.len() - after]),
        ('+', &new[before..new.len() - after]),
        (' ', &old[old.len() - after..old_end]),
    ] {
        for line in lines {
            let end = if line.ends_with('\n') { "" } else { "\n" };
            let _ = write!(text, "{sign}{line}{end}");
        }
    }
    text
}

fn lines(text: &str) -> Vec<&str> {
    text.split_inclusive('\n').collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::find::find;

    #[test]
    fn a_patch_shows_the_change_with_lines_around_it() {
        let code = "//\n//\n//\n//\nfn f() {\n    g(\n        1,\n    );\n}\n";
        let file = find("a.rs", code).unwrap();
        let all: Vec<String> = file
            .mutants()
            .map(|(_, mutant)| patch(&file, mutant))
            .collect();
        let at_once = "--- a/a.rs\n+++ b/a.rs\n@@ -2,7 +2,7 @@\n //\n //\n //\n-fn f() {\n+fn f() { return ;\n     g(\n         1,\n     );\n";
        let literal = "--- a/a.rs\n+++ b/a.rs\n@@ -4,6 +4,6 @@\n //\n fn f() {\n     g(\n-        1,\n+        2,\n     );\n }\n";
        assert_eq!(all, [at_once, literal]);
    }
}
