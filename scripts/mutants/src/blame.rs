//! Tells which mutants an error of the compiler is about.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde_json::Value;

use crate::rewrite::{Kind, Part};
use crate::site::Span;

/// Errors about the order of moves, borrows and assignments. Where a statement may be left out, there are more orders.
const ABOUT_FLOW: [&str; 6] = ["E0381", "E0382", "E0499", "E0502", "E0505", "E0506"];

/// An error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// As the compiler prints it.
    pub text: String,
    /// Its code.
    pub code: String,
    /// The places it is about.
    pub places: Vec<Place>,
}

/// A place that an error is about.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The file.
    pub file: String,
    /// The range in the file.
    pub span: Span,
    /// Whether it is the place of the error, not of an explanation.
    pub is_primary: bool,
}

impl Diagnostic {
    /// An error from a message of the compiler; `None` if it is a warning, or names no place.
    #[must_use]
    pub fn read(message: &Value) -> Option<Self> {
        if message["level"] != "error" {
            return None;
        }
        let mut places = Vec::new();
        collect(message, &mut places);
        for child in message["children"].as_array()? {
            let before = places.len();
            collect(child, &mut places);
            for place in &mut places[before..] {
                place.is_primary = false;
            }
        }
        if places.is_empty() {
            return None;
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Some(Self {
            text: text(&message["rendered"]),
            code: text(&message["code"]["code"]),
            places,
        })
    }
}

impl Diagnostic {
    /// The first line of its text.
    #[must_use]
    pub fn summary(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

/// The places of a message, and those that a macro was called at.
fn collect(message: &Value, places: &mut Vec<Place>) {
    let mut spans: Vec<&Value> = message["spans"].as_array().into_iter().flatten().collect();
    while let Some(span) = spans.pop() {
        let expansion = &span["expansion"];
        if expansion.is_object() {
            spans.push(&expansion["span"]);
        }
        let number = |name: &str| span[name].as_u64().and_then(|at| usize::try_from(at).ok());
        if let (Some(file), Some(start), Some(end)) = (
            span["file_name"].as_str(),
            number("byte_start"),
            number("byte_end"),
        ) {
            places.push(Place {
                file: file.to_owned(),
                span: start..end,
                is_primary: span["is_primary"] == true,
            });
        }
    }
}

/// The mutants that errors are most likely about; empty if the original code has the errors too.
///
/// For each error, the first of the following that exists is blamed:
///
/// 1. the mutant whose code has the error;
/// 2. the mutant whose code explains it;
/// 3. for an error about moves and borrows, the next statement that may be left out and leaves a loop or the function, or
///    else assigns a value;
/// 4. the mutants of the smallest place around the error;
/// 5. the mutants of all places inside of it.
///
/// If none exists, another mutant of the function makes this code wrong. If no other error names that mutant, the first of these
/// groups that exists is blamed: statements that leave a loop or the function, statements that assign a value, all
/// mutants of the function.
#[must_use]
pub fn blamed<'a>(
    errors: &'a [Diagnostic],
    files: &HashMap<&str, &[Part]>,
) -> BTreeMap<u32, &'a Diagnostic> {
    let mut all = BTreeMap::new();
    let mut vague = Vec::new();
    for error in errors {
        let precise = precisely(error, files);
        if precise.is_empty() {
            vague.push(error);
        }
        all.extend(precise.into_iter().map(|mutant| (mutant, error)));
    }
    for error in vague {
        for place in error.places.iter().filter(|place| place.is_primary) {
            let Some(function) = smallest(files, place, Kind::Function) else {
                continue;
            };
            if all.range(function.mutants.clone()).next().is_none() {
                let inside = in_function(files, place, function);
                all.extend(inside.into_iter().map(|mutant| (mutant, error)));
            }
        }
    }
    all
}

fn parts<'a>(files: &HashMap<&str, &'a [Part]>, place: &Place) -> &'a [Part] {
    files.get(&*place.file).copied().unwrap_or_default()
}

/// The smallest part of a kind around a place.
fn smallest<'a>(files: &HashMap<&str, &'a [Part]>, place: &Place, kind: Kind) -> Option<&'a Part> {
    let around = parts(files, place)
        .iter()
        .filter(|part| part.kind == kind && contains(&part.span, &place.span));
    around.min_by_key(|part| part.span.len())
}

/// The mutants of the parts of a kind inside of a range.
fn inside(files: &HashMap<&str, &[Part]>, place: &Place, span: &Span, kind: Kind) -> BTreeSet<u32> {
    let parts = parts(files, place).iter();
    let parts = parts.filter(|part| part.kind == kind && contains(span, &part.span));
    parts.flat_map(|part| part.mutants.clone()).collect()
}

/// The mutants that are at the place of an error.
fn precisely(error: &Diagnostic, files: &HashMap<&str, &[Part]>) -> BTreeSet<u32> {
    let around = |is_primary: bool, kind: Kind| -> BTreeSet<u32> {
        let places = error.places.iter();
        let places = places.filter(|place| place.is_primary == is_primary);
        let parts = places.filter_map(|place| smallest(files, place, kind));
        parts.flat_map(|part| part.mutants.clone()).collect()
    };
    let mut found = around(true, Kind::Mutant);
    if found.is_empty() {
        found = around(false, Kind::Mutant);
    }
    if found.is_empty() && ABOUT_FLOW.contains(&&*error.code) {
        found = following(error, files, Kind::Leaves);
        if found.is_empty() {
            found = following(error, files, Kind::Assigns);
        }
    }
    if found.is_empty() {
        found = around(true, Kind::Site);
    }
    if found.is_empty() {
        let places = error.places.iter().filter(|place| place.is_primary);
        found = places
            .flat_map(|place| inside(files, place, &place.span, Kind::Site))
            .collect();
    }
    found
}

/// The first mutant of a kind after each place of an error, in the same function.
fn following(error: &Diagnostic, files: &HashMap<&str, &[Part]>, kind: Kind) -> BTreeSet<u32> {
    let next = |place: &Place| {
        let function = smallest(files, place, Kind::Function)?;
        let after = parts(files, place).iter().filter(|part| {
            part.kind == kind
                && place.span.end <= part.span.start
                && contains(&function.span, &part.span)
        });
        after.min_by_key(|part| part.span.start)
    };
    let parts = error.places.iter().filter_map(next);
    parts.flat_map(|part| part.mutants.clone()).collect()
}

/// The mutants in a function that most likely make another place of it wrong.
fn in_function(files: &HashMap<&str, &[Part]>, place: &Place, function: &Part) -> BTreeSet<u32> {
    let kinds = [Kind::Leaves, Kind::Assigns, Kind::Site].into_iter();
    let mut found = kinds.map(|kind| inside(files, place, &function.span, kind));
    found
        .find(|mutants| !mutants.is_empty())
        .unwrap_or_default()
}

fn contains(outer: &Span, inner: &Span) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn place(span: Span, is_primary: bool) -> Place {
        Place {
            file: "a".to_owned(),
            span,
            is_primary,
        }
    }

    fn blame(errors: &[&[Place]], more: &[Part]) -> Vec<u32> {
        blame_for("", errors, more)
    }

    fn blame_for(code: &str, errors: &[&[Place]], more: &[Part]) -> Vec<u32> {
        let part = |span, kind, mutants| Part {
            span,
            kind,
            mutants,
        };
        let mut parts = vec![
            part(10..50, Kind::Site, 1..3),
            part(30..40, Kind::Mutant, 1..2),
            part(40..50, Kind::Mutant, 2..3),
            part(15..25, Kind::Site, 3..4),
            part(20..25, Kind::Mutant, 3..4),
            part(60..70, Kind::Site, 4..6),
            part(0..100, Kind::Function, 1..6),
        ];
        parts.extend(more.iter().cloned());
        let errors = errors.iter().map(|places| Diagnostic {
            text: String::new(),
            code: code.to_owned(),
            places: places.to_vec(),
        });
        let errors: Vec<Diagnostic> = errors.collect();
        let files = HashMap::from([("a", &parts[..])]);
        blamed(&errors, &files).into_keys().collect()
    }

    #[test]
    fn the_mutants_around_an_error_are_blamed() {
        let one = |span| blame(&[&[place(span, true)]], &[]);
        assert_eq!(one(31..33), [1]);
        assert_eq!(one(16..18), [3]);
        assert_eq!(one(11..18), [1, 2]);
        assert_eq!(one(55..80), [4, 5]);
        assert_eq!(one(90..91), [1, 2, 3, 4, 5]);
        assert_eq!(one(200..201), [0; 0]);
        let explained = |span| blame(&[&[place(span, true), place(45..46, false)]], &[]);
        assert_eq!(explained(21..22), [3]);
        assert_eq!(explained(90..91), [2]);
    }

    #[test]
    fn of_a_function_the_most_suspicious_are_blamed() {
        let vague = &[place(90..91, true)][..];
        assert_eq!(blame(&[vague, &[place(31..33, true)]], &[]), [1]);
        let part = |kind, mutants| Part {
            span: 60..70,
            kind,
            mutants,
        };
        let suspicious = [part(Kind::Assigns, 4..5), part(Kind::Leaves, 5..6)];
        assert_eq!(blame(&[vague], &suspicious[..1]), [4]);
        assert_eq!(blame(&[vague], &suspicious), [5]);
    }

    #[test]
    fn moves_are_blamed_on_what_may_be_left_out_after_them() {
        let part = |start, kind, number| Part {
            span: start..start + 1,
            kind,
            mutants: number..number + 1,
        };
        let more = [
            part(5, Kind::Leaves, 6),
            part(70, Kind::Leaves, 7),
            part(71, Kind::Leaves, 8),
            part(72, Kind::Assigns, 9),
        ];
        let error = &[place(11..12, true)][..];
        assert_eq!(blame_for("E0382", &[error], &more), [7]);
        assert_eq!(blame_for("E0382", &[error], &more[3..]), [9]);
        assert_eq!(blame_for("E0382", &[error], &more[..1]), [1, 2]);
        assert_eq!(blame_for("E0277", &[error], &more), [1, 2]);
    }

    #[test]
    fn errors_are_read_with_explanations_and_calls_of_macros() {
        let span = |start: u64, primary: bool| {
            json!({"file_name": "a", "byte_start": start, "byte_end": start + 1,
            "is_primary": primary, "expansion": null})
        };
        let mut inner = span(1, true);
        inner["expansion"] = json!({"span": span(2, false)});
        let message = json!({"level": "error", "rendered": "no", "spans": [inner],
            "children": [{"spans": [span(3, true)]}]});
        let error = Diagnostic::read(&message).unwrap();
        let places: Vec<_> = error
            .places
            .iter()
            .map(|place| (place.span.start, place.is_primary))
            .collect();
        assert_eq!(places, [(1, true), (2, false), (3, false)]);
        assert_eq!(Diagnostic::read(&json!({"level": "warning"})), None);
    }
}
