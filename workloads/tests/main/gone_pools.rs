//! Private pools that were gone at the end of a recording of a release that does not record them.

use std::path::Path;

use coalesce_workloads::formats::snapshot::read;
use coalesce_workloads::formats::snapshot::verify::{Known, verify};

/// Random programs with many pools (`program.py` beside the snapshots).
#[test]
fn pools_of_random_programs_are_found() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pools");
    let mut checked = 0;
    for file in folder.read_dir().unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|ending| ending == "xz") {
            let recording = &read(path.as_path()).unwrap()[0];
            let verification = verify(recording, Known::default()).unwrap();
            assert!(verification.is_exact(), "{}", path.display());
            let found = |remark: &String| remark.contains("found by trial");
            assert!(verification.remarks.iter().any(found), "{}", path.display());
            checked += 1;
        }
    }
    assert_eq!(checked, 8);
}
