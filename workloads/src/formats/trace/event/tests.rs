use super::*;
use crate::budget::MOST_USES;
use crate::cases;

#[test]
fn plain_lines_mean_what_other_lines_do() {
    cases::check("src/formats/cases/events.txt", |text| {
        let told = |event: &Event<'_>| {
            format!(
                "{:?} {} {} {}",
                event.op, event.bytes, event.stream, event.is_failure
            )
        };
        let parsed = Event::parse(text).map(|event| told(&event));
        match Event::plain(text) {
            Some(plain) => {
                assert_eq!(parsed, Ok(told(&plain)), "{text}");
                format!("plain: {}", told(&plain))
            }
            None => parsed.unwrap_or_else(|error| error),
        }
    });
}

#[test]
fn uses_of_live_allocations_have_a_limit() {
    const FEW: usize = 5;
    let mut live = LiveIds::default();
    let mut check = |text: &str| live.check(&Event::parse(text).unwrap());
    for text in ["alloc,1,20,0,", "alloc,2,30,4,"] {
        assert_eq!(check(text), Ok(()));
    }
    let uses = ["mark,1,0,9,record_stream", "mark,2,0,9,record_stream"];
    let [one, two] = uses.map(|text| Event::parse(text).unwrap());
    for _ in 0..FEW {
        assert_eq!(live.check(&two), Ok(()));
    }
    // As if the first were used most often.
    live.uses = MOST_USES - 1;
    assert_eq!(live.check(&one), Ok(()));
    let error = live.check(&one).unwrap_err();
    assert!(error.contains("more than 16777216 times"), "{error}");
    // Those of the second are forgotten with it; one was too many.
    let mut check = |text: &str| live.check(&Event::parse(text).unwrap());
    assert_eq!(check("free,2,30,4,"), Ok(()));
    assert_eq!(check("alloc,2,30,4,"), Ok(()));
    for _ in 1..FEW {
        assert_eq!(live.check(&two), Ok(()));
    }
    live.check(&two).unwrap_err();
}

#[test]
fn events_that_contradict_those_before_them_are_named() {
    let mut live = LiveIds::default();
    cases::check("src/formats/cases/contradictions.txt", |text| {
        let checked = live.check(&Event::parse(text).unwrap());
        checked.map_or_else(|error| error, |()| "nothing".to_owned())
    });
}

#[test]
fn requests_and_uses_have_a_limit_of_streams() {
    for line in [
        "alloc,ID,1,STREAM,",
        "mark,0,0,STREAM,record_stream",
        "fail,9,1,STREAM,failed when recorded",
    ] {
        let mut live = LiveIds::default();
        live.check(&Event::parse("alloc,0,1,0,").unwrap()).unwrap();
        let mut found = Ok(());
        let mut stream = 64;
        while found.is_ok() && stream < 10_000 {
            let text = line
                .replace("ID", &stream.to_string())
                .replace("STREAM", &stream.to_string());
            found = live.check(&Event::parse(&text).unwrap());
            stream += 1;
        }
        let error = found.unwrap_err();
        let is_told = error.starts_with("more than 4096 streams");
        assert!(is_told, "{line}: {error}");
        assert_eq!(stream, 64 + 4097, "{line}");
    }
}
