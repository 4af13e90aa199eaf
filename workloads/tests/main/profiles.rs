//! What profilers record about memory: `tests/cases/profiles.txt`.

use std::fmt::Write;
use std::fs;
use std::path::PathBuf;

use coalesce_workloads::formats::compression::gzip;
use coalesce_workloads::formats::profile::{DeviceProfile, NamedBytes, Profile};
use coalesce_workloads::formats::{FileContent, open};
use coalesce_workloads::input::Input;

use crate::cases;
use crate::common::{assert_contains, write_file};

const RECORDED: &str = "recordings/complaints/kineto.json.gz";

fn read(path: PathBuf) -> Result<Profile, String> {
    match open(path).map_err(|error| error.to_string())? {
        FileContent::Profile(profile) => Ok(profile),
        _ => Err("no profile".to_owned()),
    }
}

/// The first amounts, and all of them together.
fn amounts(amounts: &[NamedBytes]) -> String {
    let first = amounts.iter().take(4);
    let first: String = first
        .map(|it| format!("{} {}, ", it.name, it.bytes))
        .collect();
    let sum: u64 = amounts.iter().map(|it| it.bytes).sum();
    format!("{first}together {sum}")
}

/// All that is known of a device; of many points, their number.
fn told(device: &DeviceProfile) -> String {
    let name = device.device.map(|it| it.to_string());
    let mut told = format!("{name:?} {:?} {:?}\n", device.model, device.total_bytes);
    for point in device.points.iter().take(5) {
        let before = device.at(point.time_ns - 1).map(|it| it.allocated);
        let at = device.at(point.time_ns).unwrap();
        assert!(at.time_ns == point.time_ns);
        let (allocated, reserved) = (point.allocated, point.reserved);
        writeln!(
            told,
            "  {} {allocated} {reserved:?}, before {before:?}",
            point.time_ns
        )
        .unwrap();
    }
    let peaks = [device.peak_allocated(), device.peak_reserved()];
    let [allocated, reserved] = peaks.map(|peak| peak.map(|it| (it.allocated, it.reserved)));
    let points = device.points.len();
    writeln!(told, "  {points} points, peaks {allocated:?} {reserved:?}").unwrap();
    told += "  running:";
    for one in &device.running_at_peak {
        write!(told, " {:?} {};", one.kind, one.name).unwrap();
    }
    told += "\n";
    writeln!(told, "  operators: {}", amounts(&device.by_operator)).unwrap();
    writeln!(told, "  categories: {}", amounts(&device.by_category)).unwrap();
    told
}

/// A case is the content of a file, maybe compressed or without its end, or the path of one.
#[test]
fn profiles_are_read_as_recorded() {
    cases::check("tests/cases/profiles.txt", |case| {
        let (how, content) = case.split_once('\n').unwrap_or((case, ""));
        let path = match *how.split(' ').collect::<Vec<_>>() {
            ["file", path] => path.into(),
            ["gzip"] => write_file("p.json.gz", &gzip(content.as_bytes()).unwrap()),
            ["without", end] => {
                let length = content.len() - end.parse::<usize>().unwrap();
                write_file("p.json", &content.as_bytes()[..length])
            }
            _ => write_file("p.json", case.as_bytes()),
        };
        match read(path) {
            Ok(profile) => {
                let steps = profile.steps.iter();
                let steps =
                    steps.map(|it| format!("{} {} to {}\n", it.name, it.start_ns, it.end_ns));
                let devices = profile.devices.iter().map(told);
                let remarks = profile.remarks.iter().map(|it| format!("{it}\n"));
                devices.chain(steps).chain(remarks).collect()
            }
            Err(error) => error.split_once("p.json").unwrap().1.to_owned(),
        }
    });
}

#[test]
fn a_profile_cannot_be_replayed() {
    let error = Input::open(&RECORDED.into(), None).err().unwrap();
    assert_contains(&error.to_string(), "so it cannot be replayed");
}

#[test]
fn bombs_and_damaged_profiles_are_refused() {
    let bomb = gzip(&[&b"{\"traceEvents\": ["[..], &vec![b' '; 20 << 20]].concat()).unwrap();
    let error = open(write_file("bomb.json", &bomb)).err().unwrap();
    assert_contains(&error.to_string(), "unpacks to more than 16777216 bytes");
    // Damaged anywhere, it is an error or a shorter profile.
    let whole = fs::read(RECORDED).unwrap();
    let path = write_file("half.json.gz", &whole[..whole.len() / 2]);
    assert!(matches!(open(path), Err(_) | Ok(FileContent::Profile(_))));
}
