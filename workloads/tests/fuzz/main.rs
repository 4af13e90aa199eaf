//! Reading a file ends soon, with its contents or an error, whatever bytes it has.
//!
//! Each target takes bytes. Under `cargo test` these are the examples, random changes of them and the
//! inputs of earlier failures; `scripts/fuzz` searches for more with libFuzzer. A target fails if it
//! panics or allocates too much memory for the size of the file.

/// The tests of a module: its `check` takes any bytes, and examples with some changes, in a file whose name ends so.
macro_rules! targets {
    ($ending:literal, $examples:expr) => {
        #[test]
        fn any_bytes() {
            let file = Scratch::new(concat!("any", $ending));
            bolero::check!().for_each(|bytes: &[u8]| check(bytes, &file));
        }

        #[test]
        fn almost_valid() {
            let file = Scratch::new(concat!("almost", $ending));
            proptest::proptest!(|(bytes in crate::examples::almost($examples))| check(&bytes, &file));
        }
    };
}

mod binary;
mod examples;
mod file;
mod memory;
mod minimalloc;
mod profile;
mod rmm;
mod snapshot;
mod trace;
