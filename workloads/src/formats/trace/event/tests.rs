use super::*;
use crate::budget::MOST_USES;

#[test]
fn plain_lines_mean_what_other_lines_do() {
    for (text, is_plain) in [
        ("alloc,1,20,3,a tag", true),
        ("alloc,0,0,4294967295,", true),
        ("free,10,0020,3,", true),
        ("free,9999999999999999999,0,0,x", true),
        ("free,0000000000000000001,0,0,x", true),
        // More digits than always fit.
        ("free,10000000000000000000,0,0,x", false),
        ("alloc,00000000000000000001,2,3,", false),
        ("mark,1,0,0,record_stream", false),
        ("empty_cache,-1,0,0,", false),
    ] {
        let parsed = Event::parse(text).unwrap();
        let told = |event: &Event<'_>| {
            let Event {
                op,
                bytes,
                stream,
                is_failure,
            } = event;
            format!("{op:?} {bytes} {stream} {is_failure}")
        };
        let plain = Event::plain(text).map(|event| told(&event));
        assert_eq!(plain, is_plain.then(|| told(&parsed)), "{text}");
    }
    for text in [
        "alloc,1,2,4294967296,",
        "alloc,1,2,3",
        "alloc,,2,3,",
        "alloc,1,2,3,a,b",
        r"alloc,1,2,3,\n",
        "alloc,1,-2,3,",
        "alloc,1,2,:,",
        "alloc,1,2,/,",
        "alloc,12",
        "allo,1,2,3,",
        "alloc",
        "",
    ] {
        assert!(Event::plain(text).is_none(), "{text}");
    }
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
    for (text, expected) in [
        ("alloc,1,20,3,", None),
        ("alloc,1,20,3,", Some("id 1 is already live")),
        (
            "fail,1,20,3,failed when recorded",
            Some("id 1 is already live"),
        ),
        ("fail,2,20,3,failed when recorded", None),
        ("free,2,20,3,", Some("free of id 2, which is not live")),
        (
            "mark,2,0,3,record_stream",
            Some("record_stream of id 2, which is not live"),
        ),
        ("mark,1,0,3,record_stream", None),
        ("mark,-1,0,3,step", None),
        ("free,1,20,3,", None),
        ("alloc,1,20,3,", None),
        (
            "free,1,21,3,",
            Some("id 1 was allocated with 20 bytes on stream 3"),
        ),
        ("alloc,1,20,3,", None),
        (
            "free,1,20,2,",
            Some("id 1 was allocated with 20 bytes on stream 3"),
        ),
        ("free,1,20,3,", Some("free of id 1, which is not live")),
    ] {
        let found = live.check(&Event::parse(text).unwrap()).err();
        assert_eq!(found.as_deref(), expected, "{text}");
    }
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
            let text = line.replace("ID", &stream.to_string());
            let text = text.replace("STREAM", &stream.to_string());
            found = live.check(&Event::parse(&text).unwrap());
            stream += 1;
        }
        let error = found.unwrap_err();
        assert!(
            error.starts_with("more than 4096 streams"),
            "{line}: {error}"
        );
        assert_eq!(stream, 64 + 4097, "{line}");
    }
}
