use std::io::Read;
use std::time::Duration;

use coalesce_alloc::printable::is_unprintable;
use coalesce_workloads::cached::Cached;
use coalesce_workloads::conditions::ReplayConditions;
use coalesce_workloads::families::program::Program;
use coalesce_workloads::written::program;
use flate2::read::GzDecoder;
use serde_json::Value;

use super::*;
use crate::advise::advise;
use crate::advise::tests::request;

/// 200 MiB in small tensors, and then 300 MiB in one piece.
fn requests(program: &mut Program<'_>) {
    let mut tensors: Vec<_> = (0..20)
        .map(|_| program.alloc(10 << 20, "<small>"))
        .collect();
    tensors.push(program.alloc(300 << 20, "<large>"));
    program.free_all(tensors);
}

/// What `look` makes of the request and the advice for the program on a device of 400 MiB.
fn advised<T>(look: impl Fn(&AdviceRequest<'_>, &Advice) -> T) -> T {
    let workload = Cached::of(&program("<program>", requests)).unwrap();
    let request = AdviceRequest {
        sources: &["device memory: 400.0 MiB, see `--capacity`".to_owned()],
        conditions: ReplayConditions::on(400 << 20),
        ..request(&workload)
    };
    look(&request, &advise(&request).unwrap())
}

/// The content of an element.
fn content<'p>(page: &'p str, id: &str) -> &'p str {
    let (_, rest) = page.split_once(&format!("<script id=\"{id}\"")).unwrap();
    let (_, rest) = rest.split_once('>').unwrap();
    rest.split_once("</script>").unwrap().0
}

fn inflated(page: &str, id: &str) -> Vec<u8> {
    let compressed = STANDARD.decode(content(page, id)).unwrap();
    let mut bytes = Vec::new();
    GzDecoder::new(&compressed[..])
        .read_to_end(&mut bytes)
        .unwrap();
    bytes
}

#[test]
fn the_page_contains_the_advice_as_text_and_as_data() {
    let (page, advice) = advised(|request, advice| {
        let page = page(request, advice, "2026-11-22", Deadline::after(None)).unwrap();
        (page, serde_json::to_value(advice).unwrap())
    });
    assert!(page.contains("<h1>&lt;program&gt;</h1>") && page.contains(" on 2026-11-22."));
    let (_, text) = page.split_once("<noscript>").unwrap();
    let (text, _) = text.split_once("</noscript>").unwrap();
    let is_told = text.contains("see `--capacity`") && text.contains("500.0 MiB");
    assert!(is_told, "{text}");
    assert!(!page.contains("<small>") && !page.contains("\"<large>"));
    let found: Value = serde_json::from_str(content(&page, "advice")).unwrap();
    assert_eq!(found, advice);
}

/// The page shows these texts wherever they are in its data.
#[test]
fn no_text_in_the_data_has_controls() {
    advised(|request, advice| {
        let mut advice = advice.clone();
        advice.workload = "w\u{1b}[2J\u{202e}\u{7}".to_owned();
        advice.conditions = vec!["c\u{9b}\u{2066}".to_owned()];
        let page = page(request, &advice, "\u{1b}", Deadline::after(None)).unwrap();
        assert!(!page.contains(|it| is_unprintable(it) && it != '\n'));
        let found: Value = serde_json::from_str(content(&page, "advice")).unwrap();
        assert_eq!(found["workload"], "w\\u{1b}[2J\\u{202e}\\u{7}");
        assert_eq!(found["conditions"][0], "c\\u{9b}\\u{2066}");
    });
}

#[test]
fn the_replays_decode_to_what_they_were() {
    advised(|request, advice| {
        let page = page(request, advice, "", Deadline::after(None)).unwrap();
        let replays: Value = serde_json::from_str(content(&page, "replays")).unwrap();
        assert_eq!(replays[0]["conf"], request.present);
        assert_eq!(replays.as_array().unwrap().len(), 2);
        let evidence =
            Evidence::gather(request.subject(request.reactive, request.present)).unwrap();
        let expected = View::of(&evidence).unwrap().bytes("<program>").unwrap();
        assert_eq!(inflated(&page, "replay-0"), expected);
        let frames: Value = serde_json::from_slice(&inflated(&page, "frames")).unwrap();
        assert_eq!(frames["stacks"], Value::Array(Vec::new()));
    });
}

#[test]
fn replays_that_are_not_ready_in_time_or_too_large_are_named() {
    advised(|request, advice| {
        let late = page(request, advice, "", Deadline::after(Some(Duration::ZERO))).unwrap();
        assert!(late.contains("The replay under the default settings is not shown: time ran out;"));
        assert_eq!(content(&late, "replays"), "[]");
        let data = Data::of(request, advice, Deadline::after(None), 100).unwrap();
        assert!(data.replays.is_empty() && data.elements.is_empty());
        assert!(
            data.missing[0].contains("more than 100 bytes"),
            "{:?}",
            data.missing
        );
    });
}
