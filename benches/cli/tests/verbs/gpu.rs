//! Times measured on a GPU, with the simulated driver.

use std::collections::BTreeMap;
use std::path::Path;

use super::{coalesce, scratch_folder};

/// The lines of a table, by the names of the columns.
fn table(path: &Path) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(path).unwrap();
    reader.deserialize().map(Result::unwrap).collect()
}

#[test]
fn every_policy_is_timed_with_its_memory() {
    let out = scratch_folder("bench-out");
    let driver = scratch_folder("driver");
    simcuda::library::place(&driver).unwrap();
    let bench = "bench hot_4KiB record_stream_4_streams --seconds 0.6 --device cuda:0 --policy pytorch --policy cuda_async \
                 --policy bfc --out";
    let arguments: Vec<&str> = bench.split(' ').chain([out.to_str().unwrap()]).collect();
    let library_path = ("LD_LIBRARY_PATH", driver.to_str().unwrap());
    let text = coalesce(&arguments, "", &[library_path]).success();
    assert!(text.contains("hot_4KiB on cuda:0"), "{text}");
    assert!(
        text.contains("does not serve work on more than one stream"),
        "{text}"
    );
    let cells = table(&out.join("cells.csv"));
    assert_eq!(cells.len(), 2 * 5, "two settings of two of them");
    let hot: Vec<_> = cells
        .iter()
        .filter(|row| row["program"] == "hot_4KiB")
        .collect();
    for row in &hot {
        let walked: u64 = row["walked"].parse().unwrap();
        // A busy machine does not complete the walk in the time given.
        assert!((1..=1000).contains(&walked), "{walked}");
        assert_eq!(row["left_out"], "");
        assert!(row["ns_per_pair"].parse::<f64>().unwrap() > 0.0);
        let is_pool = row["policy"] == "cuda_async";
        let found = row["stream_ns_per_pair"].is_empty();
        assert_eq!(found, !is_pool, "only the pool is stream-ordered");
    }
    let pytorch = hot.iter().find(|row| row["policy"] == "pytorch").unwrap();
    assert_eq!(pytorch["peak_device_bytes"], (2 << 20).to_string());
    assert_eq!(pytorch["difference_bytes"], "0");
    let latencies = table(&out.join("latencies.csv"));
    let of_hot = latencies.iter().filter(|row| row["program"] == "hot_4KiB");
    let found = of_hot.clone().count();
    assert_eq!(found, hot.len() * 4, "two walks, two calls");
    for row in of_hot {
        let names = ["p50_ns", "p99_ns", "p999_ns", "max_ns"];
        let ns = names.map(|name| row[name].parse::<u64>().unwrap());
        assert!(ns.is_sorted(), "{ns:?}");
    }
}
