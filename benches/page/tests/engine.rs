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
    assert_eq!(files[0]["name"], "adamw");
    engine
}

#[test]
fn a_snapshot_is_advised_on() {
    let advice = asked(&mut with_snapshot(), &Request::Advise { seconds: 0.0 });
    assert_eq!(advice["workload"], "adamw");
    assert_eq!(advice["check"]["verdict"], "exact");
}

#[test]
fn what_a_moment_holds_adds_up_to_the_levels_and_the_columns() {
    let mut engine = with_snapshot();
    let view = Request::View {
        file: 0,
        conf: Some("expandable_segments:True".to_owned()),
    };
    let info = asked(&mut engine, &view);
    let [events, count] = ["events", "allocations"].map(|name| info[name].as_u64().unwrap());
    let peak = info["peak_event"].as_u64().unwrap();

    let columns = ask(&mut engine, &Request::Columns { view: 0 }).unwrap();
    let columns: Vec<f64> = columns
        .chunks_exact(8)
        .map(|value| f64::from_le_bytes(value.try_into().unwrap()))
        .collect();
    let (events, count, at) = (events as usize, count as usize, peak as usize);
    assert_eq!(columns.len(), 9 * count + 4 * events);
    let column = |number: usize| &columns[number * count..][..count];
    let live = |one: &usize| column(0)[*one] <= peak as f64 && (peak as f64) < column(1)[*one];
    let live: f64 = (0..count).filter(live).map(|one| column(3)[one]).sum();
    let level = |number: usize| columns[9 * count + number * events + at];

    let moment = asked(
        &mut engine,
        &Request::Moment {
            view: 0,
            event: peak,
        },
    );
    let held = moment["holdings"]["total_bytes"].as_f64().unwrap();
    let segments = moment["segments"].as_array().unwrap();
    let reserved: f64 = segments
        .iter()
        .map(|one| one["bytes"].as_f64().unwrap())
        .sum();
    assert!(live > 0.0);
    assert_eq!([held, level(0)], [live, live]);
    assert_eq!(reserved, level(3));
}

#[test]
fn errors_name_what_is_wrong() {
    let mut engine = Engine::default();
    let error = ask(&mut engine, &Request::Advise { seconds: 0.0 }).unwrap_err();
    assert_eq!(error.to_string(), "no file was opened");
    let error = ask(&mut engine, &Request::Moment { view: 3, event: 0 }).unwrap_err();
    assert_eq!(error.to_string(), "no view 3");
    assert!(engine.answer(b"{}").is_err());
    engine.add_file(b"notes.txt\nno snapshot\n".to_vec());
    let open = Request::Open { capacity: None };
    let error = ask(&mut engine, &open).unwrap_err();
    assert!(format!("{error:#}").contains("notes.txt"), "{error:#}");
    let error = ask(&mut with_snapshot(), &Request::Advise { seconds: -1.0 }).unwrap_err();
    assert!(format!("{error:#}").contains("time limit"), "{error:#}");
}
