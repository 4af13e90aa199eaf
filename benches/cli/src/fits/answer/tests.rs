use super::*;

/// A program that needs 6 of 8 GiB.
fn report() -> FitsReport {
    FitsReport {
        format: 1,
        command: vec!["train".to_owned()],
        torch: "2.11.0".to_owned(),
        memory_bytes: 8 << 30,
        others_bytes: 1 << 30,
        verdict: Verdict::Fits,
        peak_requested_bytes: 5 << 30,
        peak_reserved_bytes: 6 << 30,
        failed_requests: 0,
        steps: 4,
        short_epochs: 0,
        ended: Ended::Program,
        values: Vec::new(),
        shapes: Vec::new(),
        convolutions: Vec::new(),
        gpus: vec!["T4", "A10"],
        largest: None,
    }
}

fn places(line: &str, times: u64) -> Vec<Place> {
    let line = line.to_owned();
    vec![Place { line, times }]
}

fn largest(value: Option<u64>) -> Option<Largest> {
    Some(Largest {
        name: "BATCH".to_owned(),
        first: 2,
        last: 9,
        value,
    })
}

#[test]
fn a_program_that_fits_has_this_page() {
    assert_eq!(
        page(&report()),
        concat!(
            "The program fits: it reserves 6.00 GiB at its peak, and 1.00 GiB of the 7.00 GiB available remain free.\n",
            "\n",
            "peak requested      5.00 GiB  size of all live requests\n",
            "peak reserved       6.00 GiB  memory taken from the device\n",
            "optimizer steps            4  the program ended by itself\n",
            "large enough    T4, A10\n",
        )
    );
    assert!(report().fits());
}

#[test]
fn what_is_not_known_is_on_the_page() {
    let report = FitsReport {
        failed_requests: 2,
        short_epochs: 1,
        ended: Ended::Checkpoint,
        values: places("train.py:9", 3),
        shapes: places("model.py:7", 1),
        convolutions: places("a\nb.py:1", 2),
        gpus: Vec::new(),
        largest: largest(Some(7)),
        ..report()
    };
    assert_eq!(
        page(&report),
        concat!(
            "The program fits: it reserves 6.00 GiB at its peak, and 1.00 GiB of the 7.00 GiB available remain free.\n",
            "It went on after 2 requests failed for lack of memory.\n",
            "7 is the largest BATCH with which it fits.\n",
            "\n",
            "peak requested      5.00 GiB  size of all live requests\n",
            "peak reserved       6.00 GiB  memory taken from the device\n",
            "optimizer steps            4  then the program would have written a checkpoint, and was ended\n",
            "large enough    none of those known here\n",
            "\n",
            "1 epoch ended early because the steps made equal requests. The code after that was run, but the remaining\n",
            "batches were not, nor what comes after the end of this run. --whole runs all of it.\n",
            "\n",
            "Nothing is computed, so these lines made tensors of unknown size. The program may need more than this:\n",
            "  model.py:7, once\n",
            "\n",
            "These lines read values from the GPU, and got 0. If the values decide what the program requests, it may need\n",
            "more or less:\n",
            "  train.py:9, 3 times\n",
            "\n",
            "cuDNN takes more memory for these convolutions, and only a GPU tells how much. On an H200, five programs with\n",
            "convolutions reserved up to 11 % more than this, and one 16 times as much:\n",
            "  a\\u{a}b.py:1, 2 times\n",
        )
    );
}

#[test]
fn a_program_that_fits_with_settings_or_not_at_all_has_this_page() {
    let with = FitsReport {
        verdict: Verdict::FitsWith {
            conf: "expandable_segments:True".to_owned(),
        },
        failed_requests: 2,
        ended: Ended::Steps,
        largest: largest(None),
        ..report()
    };
    assert_eq!(
        page(&with),
        concat!(
            "Under its settings, the program runs out of memory. It fits with the settings below: it reserves 6.00 GiB of\n",
            "the 7.00 GiB available.\n",
            "It does not fit with the smallest BATCH, 2.\n",
            "\n",
            "  export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n",
            "\n",
            "peak requested      5.00 GiB  size of all live requests\n",
            "peak reserved       6.00 GiB  memory taken from the device\n",
            "optimizer steps            4  the program was ended there (--steps)\n",
            "large enough    T4, A10\n",
            "\n",
            "What the program does after these steps, such as an evaluation, was not run. --whole runs all of it.\n",
        )
    );
    let too_large = FitsReport {
        verdict: Verdict::TooLarge {
            missing_bytes: 1 << 30,
            sentences: vec!["It lacks 1.00 GiB.".to_owned(), "Less must go.".to_owned()],
        },
        peak_reserved_bytes: 9 << 30,
        ended: Ended::OutOfMemory,
        ..report()
    };
    assert_eq!(
        page(&too_large),
        concat!(
            "The program does not fit.\n",
            "It lacks 1.00 GiB.\n",
            "Less must go.\n",
            "\n",
            "peak requested      5.00 GiB  size of all live requests\n",
            "peak reserved       9.00 GiB  memory taken from the device\n",
            "optimizer steps            4  the program ended by itself\n",
            "large enough    T4, A10\n",
        )
    );
    assert!(!with.fits() && !too_large.fits());
}

#[test]
fn remarks_depend_on_where_the_run_ended() {
    let remark = |ended, short_epochs| {
        let text = not_run(&FitsReport {
            ended,
            short_epochs,
            ..report()
        });
        text.replace('\n', " ").trim().to_owned()
    };
    assert_eq!(remark(Ended::Program, 0), "");
    let after = "What the program does after these steps, such as an evaluation, was not run. --whole runs all of it.";
    for ended in [Ended::Repeats, Ended::Checkpoint, Ended::Steps] {
        assert_eq!(remark(ended, 0), after);
    }
    let short = "ended early because the steps made equal requests. The code after that was run, but the remaining batches were \
                 not";
    assert_eq!(
        remark(Ended::Program, 1),
        format!("1 epoch {short}. --whole runs all of it.")
    );
    let both = format!(
        "2 epochs {short}, nor what comes after the end of this run. --whole runs all of it."
    );
    assert_eq!(remark(Ended::Steps, 2), both);
}

#[test]
fn every_number_of_the_range_may_fit() {
    let last = |value| {
        let report = FitsReport {
            largest: largest(value),
            ..report()
        };
        answer(&report).pop().unwrap()
    };
    assert_eq!(last(Some(9)), "It fits with every BATCH from 2 to 9.");
    assert_eq!(last(Some(8)), "8 is the largest BATCH with which it fits.");
    assert_eq!(last(None), "It does not fit with the smallest BATCH, 2.");
}
