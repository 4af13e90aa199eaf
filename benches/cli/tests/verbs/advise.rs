//! `coalesce advise`: its page.

use std::fs;

use crate::{coalesce, scratch, scratch_folder};

#[test]
fn the_html_report_is_self_contained() {
    let out = scratch_folder("report").join("report.html");
    let file = scratch(
        "marked<b>.csv",
        "op,id,bytes,stream,tag\nmark,-1,0,0,step 1\nalloc,1,30000000,0,<script>alert(1)</script>\n",
    );
    let files = [&file, &out].map(|path| path.to_str().unwrap());
    coalesce(&["advise", files[0], "--html", files[1]], "", &[]).success();
    let html = fs::read_to_string(out).unwrap();
    assert!(html.contains("&lt;script&gt;alert(1)"), "{html}");
    assert!(!html.contains("<script>alert") && !html.contains("marked<b>"));
    for loads in ["src=", "href=", "url(", "@import", "http:", "https:"] {
        assert!(!html.contains(loads), "{loads}");
    }
    // All slots of the template are filled.
    for slot in [
        "title", "text", "sections", "missing", "advice", "replays", "data", "script",
    ] {
        assert!(!html.contains(&format!("@{slot}@")), "{slot}");
    }
    for id in ["advice", "replays", "replay-0", "frames"] {
        assert!(html.contains(&format!("<script id=\"{id}\"")), "{id}");
    }
}
