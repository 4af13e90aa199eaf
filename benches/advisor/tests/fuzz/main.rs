//! Whatever bytes a file has, what is printed of it is harmless: the diagnosis and the advice as text, JSON and HTML.
//!
//! Each target takes the bytes of a file of one format. Under `cargo test` these are the examples, random changes of
//! them and the inputs of earlier failures; `scripts/fuzz` searches for more with libFuzzer.

#[path = "../../../../workloads/tests/fuzz/examples.rs"]
mod examples;
#[path = "../../../../workloads/tests/fuzz/file.rs"]
mod file;
mod harmless;
mod page;
mod printed;

use proptest::prelude::*;

use self::examples::{almost, examples};
use self::printed::Printer;

/// Text in it means something to terminals, spreadsheets and browsers.
const HOSTILE: &str = "fuzz/examples";

macro_rules! targets {
    ($($format:ident: $file:literal, $examples:literal;)*) => {$(
        mod $format {
            use super::*;

            const EXAMPLES: &str = concat!("../../../workloads/tests/", $examples);

            #[test]
            fn any_bytes() {
                let printer = Printer::new(concat!("any-", $file));
                bolero::check!().for_each(|bytes: &[u8]| printer.check(bytes));
            }

            #[test]
            fn almost_valid() {
                let printer = Printer::new(concat!("almost-", $file));
                let cases = ProptestConfig::with_cases(32);
                proptest!(cases, |(bytes in almost(examples(EXAMPLES)))| {
                    printer.check(&bytes);
                });
            }
        }
    )*};
}

targets! {
    snapshot: "printed.pickle", "fixtures";
    trace: "printed.csv", "fuzz/examples/trace";
    binary: "printed.trace", "fuzz/examples/binary";
    rmm: "printed.log", "fuzz/examples/rmm";
    minimalloc: "printed-instance.csv", "fuzz/examples/minimalloc";
}

#[test]
fn hostile_text_is_printed() {
    let printer = Printer::new("hostile.csv");
    for bytes in examples(HOSTILE) {
        printer.printed(&bytes).expect("only its text is unusual");
    }
}
