//! The engine answers as the program does, and names what it cannot answer.

use coalesce_page::{Engine, Request};
use serde_json::Value;

const SNAPSHOT: &[u8] = include_bytes!("../../advisor/tests/holders/adamw.pickle.gz");

fn ask(engine: &mut Engine, request: &Request) -> anyhow::Result<Vec<u8>> {
    engine.answer(&serde_json::to_vec(request)?)
}

fn asked(engine: &mut Engine, request: &Request) -> Value {
    serde_json::from_slice(&ask(engine, request).unwrap()).unwrap()
}

fn with_snapshot() -> Engine {
    let mut engine = Engine::default();
    engine.add_file([b"adamw.pickle.gz\n", SNAPSHOT].concat());
    let files = asked(&mut engine, &Request::Open { capacity: None });
    assert_eq!(files["files"][0]["name"], "adamw");
    engine
}

#[test]
fn a_snapshot_is_advised_on() {
    let advice = asked(&mut with_snapshot(), &Request::Advise { seconds: 0.0 });
    assert_eq!(advice["workload"], "adamw");
    assert_eq!(advice["check"]["verdict"], "exact");
}

#[test]
fn a_text_is_explained() {
    let text = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 0 bytes is \
                free. Of the allocated memory 3.00 GiB is allocated by PyTorch, and 4.00 GiB is reserved by PyTorch but \
                unallocated.";
    let explain = |text: &str| Request::Explain {
        text: text.to_owned(),
    };
    let found = asked(&mut Engine::default(), &explain(text));
    assert_eq!(found["failures"][0]["situation"], "fragmentation");
    let error = ask(&mut Engine::default(), &explain("no figures")).unwrap_err();
    assert!(error.to_string().starts_with("no memory figures found"));
}

#[test]
fn a_view_begins_with_its_description_and_refers_to_the_frames() {
    let mut engine = with_snapshot();
    let view = Request::View {
        file: 0,
        conf: Some("expandable_segments:True".to_owned()),
    };
    let bytes = ask(&mut engine, &view).unwrap();
    let length = u32::from_le_bytes(bytes[..4].try_into().unwrap()) as usize;
    let info: Value = serde_json::from_slice(&bytes[4..4 + length]).unwrap();
    assert_eq!(info["conf"], "expandable_segments:True");
    assert!(info["events"].as_u64().unwrap() > 100);
    let frames = asked(&mut engine, &Request::Frames { file: 0 });
    let stacks = frames["stacks"].as_array().unwrap().len() as u64;
    let sources = info["sources"].as_array().unwrap().iter();
    let largest = sources.filter_map(|one| one["stack"].as_u64()).max();
    assert!(largest.is_some_and(|largest| largest < stacks));
}

#[test]
fn the_page_contains_the_engine_and_the_viewer() {
    let page = coalesce_page::page::with_engine(b"\0asm");
    for part in [
        "AGFzbQ==",
        "class Explorer",
        "class Engine",
        "id=\"panels\"",
    ] {
        assert!(page.contains(part), "{part}");
    }
    for slot in [
        "@style@",
        "@sections@",
        "@wasm@",
        "@worker@",
        "@script@",
        "@version@",
    ] {
        assert!(!page.contains(slot), "{slot}");
    }
}

#[test]
fn errors_name_what_is_wrong() {
    let mut engine = Engine::default();
    let error = ask(&mut engine, &Request::Advise { seconds: 0.0 }).unwrap_err();
    assert_eq!(error.to_string(), "no file was opened");
    let error = ask(&mut engine, &Request::Frames { file: 3 }).unwrap_err();
    assert_eq!(error.to_string(), "no file 3");
    assert!(engine.answer(b"{}").is_err());
    engine.add_file(b"notes.txt\nno snapshot\n".to_vec());
    let open = Request::Open { capacity: None };
    let error = ask(&mut engine, &open).unwrap_err();
    assert!(format!("{error:#}").contains("notes.txt"), "{error:#}");
    let error = ask(&mut with_snapshot(), &Request::Advise { seconds: -1.0 }).unwrap_err();
    assert!(format!("{error:#}").contains("time limit"), "{error:#}");
}
