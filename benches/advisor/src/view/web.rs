//! The viewer for browsers: scripts, a style, and pages with both inside, so that they need no server.
//!
//! A page provides its *engine*: an object with `bytes(request)` and `ask(request)`, which return a promise of bytes
//! and of parsed JSON. The viewer asks for `{ask: 'view', file, conf}`, the bytes of a [`View`](super::View), and
//! for `{ask: 'frames', file}`, the [`Frames`](super::Frames) of a file.

/// The modules of the viewer; each imports only from those before it.
const MODULES: [&str; 12] = [
    include_str!("web/format.js"),
    include_str!("web/palette.js"),
    include_str!("web/columns.js"),
    include_str!("web/view.js"),
    include_str!("web/tables.js"),
    include_str!("web/moment.js"),
    include_str!("web/evidence.js"),
    include_str!("web/timeline.js"),
    include_str!("web/segments.js"),
    include_str!("web/flame.js"),
    include_str!("web/panel.js"),
    include_str!("web/explorer.js"),
];

/// The style of the viewer.
pub const STYLE: &str = include_str!("web/style.css");

/// The parts of a page that the viewer fills.
pub const SECTIONS: &str = include_str!("web/sections.html");

/// The viewer and more modules as one script. All share one scope.
#[must_use]
pub fn script(modules: &[&str]) -> String {
    let lines = MODULES
        .iter()
        .chain(modules)
        .flat_map(|module| module.lines())
        .filter(|line| !line.starts_with("import "))
        .map(|line| line.strip_prefix("export ").unwrap_or(line));
    lines.flat_map(|line| [line, "\n"]).collect()
}

/// Replaces every `@name@` in a template once; the inserted text is not searched.
#[must_use]
pub fn fill(template: &str, parts: &[(&str, &str)]) -> String {
    let mut page = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once('@') {
        page.push_str(before);
        let part = after.split_once('@').and_then(|(name, after)| {
            let (_, part) = parts.iter().find(|(known, _)| *known == name)?;
            Some((part, after))
        });
        match part {
            Some((part, after)) => {
                page.push_str(part);
                rest = after;
            }
            None => {
                page.push('@');
                rest = after;
            }
        }
    }
    page + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_filled_once() {
        let parts = [("a", "x @b@ y"), ("b", "z")];
        let found = fill("1@a@2@b@3 me@c @media", &parts);
        assert_eq!(found, "1x @b@ y2z3 me@c @media");
    }

    #[test]
    fn modules_share_a_scope_and_end_no_script_element() {
        let script = script(&["import { a } from './a.js';\nexport const last = 1;\n"]);
        assert!(script.ends_with("\nconst last = 1;\n"), "{script}");
        assert!(!script.contains("import {") && !script.contains("</script"));
    }
}
