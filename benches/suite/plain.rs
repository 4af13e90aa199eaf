//! The parts of `cargo bench` that have no benchmarks to select.

/// Whether this is a plain `cargo bench`. A filter or an option is meant for the throughput benchmarks: the part does
/// nothing then, says so, and leaves the results as they are.
pub fn is_plain(part: &str) -> bool {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let of_cargo_bench = arguments.iter().any(|argument| argument == "--bench");
    if of_cargo_bench && arguments.len() > 1 {
        eprintln!("{part}: skipped; it runs only without a filter and options");
    }
    arguments == ["--bench"]
}
