//! `coalesce place`.

use std::fs;

use crate::{coalesce, scratch, scratch_folder, trace};

const INSTANCE: &str = "id,lower,upper,size\nb1,0,3,4\nb2,3,9,4\nb3,0,9,4\nb4,9,21,4\nb5,0,21,4\n";

/// The rows of a CSV of numbers, without the id.
fn rows(csv: &str) -> Vec<Vec<u64>> {
    let row = |line: &str| {
        line.split(',')
            .skip(1)
            .map(|f| f.parse().unwrap())
            .collect()
    };
    csv.lines().skip(1).map(row).collect()
}

#[test]
fn a_placement_is_printed_and_written() {
    let instance = scratch("five.csv", INSTANCE);
    let placed = scratch_folder("placed").join("five.csv");
    let (instance, out) = (instance.to_str().unwrap(), placed.to_str().unwrap());
    let text = coalesce(
        &["place", instance, "--steps", "1000", "--out", out],
        "",
        &[],
    )
    .success();
    for words in [
        "5 buffers",
        "lower bound",
        "12",
        "1.0000",
        "interval colouring",
    ] {
        assert!(text.contains(words), "no '{words}' in: {text}");
    }
    let csv = fs::read_to_string(&placed).unwrap();
    assert!(
        csv.starts_with("id,lower,upper,size,offset\nb1,0,3,4,"),
        "{csv}"
    );
    let rows = rows(&csv);
    for (index, a) in rows.iter().enumerate() {
        for b in &rows[..index] {
            let in_time = a[0] < b[1] && b[0] < a[1];
            let in_space = a[3] < b[3] + b[2] && b[3] < a[3] + a[2];
            assert!(!in_time || !in_space, "{a:?} {b:?}");
        }
    }
}

#[test]
fn the_same_steps_give_the_same_placement() {
    let folder = scratch_folder("steps");
    let instance = folder.join("instance.csv");
    let name = instance.to_str().unwrap();
    coalesce(&["convert", "churn", name, "--to", "minimalloc"], "", &[]).success();
    let mut placements = Vec::new();
    for run in ["one.csv", "two.csv"] {
        let out = folder.join(run);
        let arguments = [
            "place",
            name,
            "--steps",
            "100000",
            "--out",
            out.to_str().unwrap(),
        ];
        coalesce(&arguments, "", &[]).success();
        placements.push(fs::read_to_string(out).unwrap());
    }
    assert!(placements[0].lines().count() > 100);
    assert_eq!(placements[0], placements[1]);
}

#[test]
fn a_recorded_trace_is_placed_at_its_lower_bound() {
    let instance = scratch_folder("recorded").join("instance.csv");
    let name = instance.to_str().unwrap();
    let trace = trace("resnet50_fp32_fixed224");
    coalesce(&["convert", &trace, name, "--to", "minimalloc"], "", &[]).success();
    let text = coalesce(&["place", name, "--steps", "500000"], "", &[]).success();
    for words in [
        "4414 buffers",
        " 5835741696  memory that the placement needs",
        "1.0000",
    ] {
        assert!(text.contains(words), "no '{words}' in: {text}");
    }
}

#[test]
fn invalid_instances_are_rejected_with_a_reason() {
    let place = |arguments: &[&str], code: i32, words: &[&str]| {
        coalesce(&[&["place"], arguments].concat(), "", &[]).failure(code, words);
    };
    place(&["none.csv"], 1, &["none.csv", "No such file"]);
    let trace = &trace("example_interleaved_free");
    place(
        &[trace],
        1,
        &["example_interleaved_free", "coalesce convert"],
    );
    let wrong = scratch("wrong.csv", "id,lower,upper,size\na,0,1,1\nb,4,4,1\n");
    let wrong = wrong.to_str().unwrap();
    place(
        &[wrong],
        1,
        &["wrong.csv, line 3", "upper 4 is not greater than lower 4"],
    );
    let vast = format!("id,lower,upper,size\na,0,1,{0}\nb,0,1,{0}\n", u64::MAX);
    let vast = scratch("vast.csv", vast);
    place(&[vast.to_str().unwrap()], 1, &["vast.csv", "2^63"]);
    let good = scratch("good.csv", INSTANCE);
    let good = good.to_str().unwrap();
    place(&[good, "--seconds", "soon"], 2, &["'soon'", "0.5"]);
    place(&[good, "--seconds=-1"], 2, &["'-1'", "0.5"]);
    place(&[good, "--seconds", "1", "--steps", "1"], 2, &["--steps"]);
    let below = &format!("{good}/placed.csv");
    place(
        &[good, "--steps", "1", "--out", below],
        1,
        &["cannot write", below],
    );
}
