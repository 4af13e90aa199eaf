//! The tags of an HTML page, as a browser finds them.

use std::collections::BTreeSet;

/// The tags of a page. What is in a script or style element contains none.
pub fn tags(page: &str) -> BTreeSet<&str> {
    let mut tags = BTreeSet::new();
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let end = rest[start..]
            .find('>')
            .map(|end| start + end + 1)
            .unwrap_or(rest.len());
        let tag = &rest[start..end];
        tags.insert(tag);
        rest = &rest[end..];
        for (opening, closing) in [("<script", "</script"), ("<style", "</style")] {
            if tag.starts_with(opening) {
                let end = rest.to_ascii_lowercase().find(closing);
                let (content, after) = rest.split_at(end.unwrap_or(rest.len()));
                assert_holds_data(tag, content);
                rest = after;
            }
        }
    }
    tags
}

/// Checks that nothing in a script element of data can end it or begin another one.
fn assert_holds_data(tag: &str, content: &str) {
    let is_data = tag.contains("id=");
    assert!(!is_data || !content.contains('<'), "{tag}: {content}");
}

#[test]
fn tags_from_outside_are_found() {
    let page = "<p>a &lt;b&gt;<script id=\"x\">1 > 0</script><style>p<q></style><B x=1></p>";
    let expected = [
        "</p>",
        "</script>",
        "</style>",
        "<B x=1>",
        "<p>",
        "<script id=\"x\">",
        "<style>",
    ];
    assert_eq!(tags(page), BTreeSet::from(expected));
}

#[test]
#[should_panic(expected = "<b>")]
fn tags_in_data_are_found() {
    tags("<script id=\"x\">\"<b>\"</script>");
}
