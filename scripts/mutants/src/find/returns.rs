//! Values that a function may return at once, by its type.

use syn::{GenericArgument, PathArguments, PathSegment, Type};

/// Values of a type, as code; empty if it has none that is easily made. Some may not compile, because only the name of
/// the type is known.
pub(super) fn values(returned: &Type) -> Vec<String> {
    match returned {
        Type::Array(_) => own(["Default::default()"]),
        Type::Group(group) => values(&group.elem),
        Type::Paren(paren) => values(&paren.elem),
        Type::Path(path) => path.path.segments.last().map(named).unwrap_or_default(),
        Type::Reference(reference) if reference.mutability.is_none() => match &*reference.elem {
            Type::Path(path) if path.path.is_ident("str") => own([r#""""#]),
            Type::Slice(_) => own(["&[]"]),
            _ => Vec::new(),
        },
        Type::Tuple(tuple) => {
            let parts: Option<Vec<String>> = tuple.elems.iter().map(first).collect();
            let tuple = parts.map(|parts| format!("({})", parts.join(", ")));
            tuple.into_iter().collect()
        }
        _ => Vec::new(),
    }
}

fn first(of: &Type) -> Option<String> {
    values(of).into_iter().next()
}

fn own<const N: usize>(values: [&str; N]) -> Vec<String> {
    values.map(str::to_owned).into()
}

fn named(last: &PathSegment) -> Vec<String> {
    let inner = argument(last);
    match last.ident.to_string().as_str() {
        "bool" => own(["true", "false"]),
        "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i8" | "i16" | "i32" | "i64" | "i128"
        | "isize" => own(["0", "1"]),
        "f32" | "f64" => own(["0.0"]),
        "String" => own(["String::new()"]),
        "Option" => own(["None"]),
        "Ordering" => own(["std::cmp::Ordering::Equal"]),
        "Result" => match inner {
            None => own(["Ok(())"]),
            Some(inner) => {
                let values = values(inner).into_iter();
                values.map(|value| format!("Ok({value})")).collect()
            }
        },
        "Vec" => own(["Vec::new()"]),
        name @ ("Arc" | "Box" | "Rc") => {
            let inner = inner.and_then(first);
            let inner = inner.map(|value| format!("{name}::new({value})"));
            inner.into_iter().collect()
        }
        _ => own(["Default::default()"]),
    }
}

/// The first type in the angle brackets.
fn argument(segment: &PathSegment) -> Option<&Type> {
    let PathArguments::AngleBracketed(arguments) = &segment.arguments else {
        return None;
    };
    arguments.args.iter().find_map(|argument| match argument {
        GenericArgument::Type(inner) => Some(inner),
        _ => None,
    })
}
