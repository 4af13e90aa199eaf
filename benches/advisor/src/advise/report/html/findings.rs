//! The findings of the diagnosis.

use std::fmt::Write;

use coalesce_bench::text::escape;

use super::prose;
use crate::diagnose::Finding;

/// All findings, each with its evidence and call sites.
pub(super) fn findings(findings: &[Finding]) -> String {
    if findings.is_empty() {
        return "<p>No problems found.</p>".to_owned();
    }
    findings.iter().map(finding).collect()
}

fn finding(finding: &Finding) -> String {
    let mut html = format!(
        "<div class=\"finding\"><h3>{}</h3><ul>",
        prose(&finding.headline)
    );
    for sentence in &finding.evidence {
        // Writing to a string cannot fail.
        let _ = write!(html, "<li>{}</li>", prose(sentence));
    }
    let _ = write!(
        html,
        "</ul><p class=\"remedy\">{}</p>",
        prose(&finding.remedy)
    );
    for place in &finding.stacks {
        html.push_str(&expandable(&escape(&place.to_string()), &place.frames));
    }
    html.push_str("</div>\n");
    html
}

/// A line that expands to the frames of a stack, if there are any. The line is HTML.
pub(super) fn expandable(line: &str, frames: &[String]) -> String {
    if frames.is_empty() {
        return format!("<p class=\"line\">{line}</p>");
    }
    let frames = escape(&frames.join("\n"));
    format!("<details><summary class=\"line\">{line}</summary><pre>{frames}</pre></details>")
}
