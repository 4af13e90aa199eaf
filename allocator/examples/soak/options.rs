//! The command line.

use std::error::Error;
use std::ops::RangeInclusive;

use coalesce_alloc::bytes;

/// How long a run is.
pub enum Length {
    /// This many calls of the allocator.
    Operations(u64),
    /// This many simulated hours of training.
    Hours(f64),
}

/// What to run.
pub struct Options {
    /// The policy and its settings.
    pub policy: String,
    pub conf: String,
    pub length: Length,
    pub seed: u64,
    /// Streams that use memory. With one, no block is recorded on another stream.
    pub streams: u32,
    /// Bytes of the device.
    pub capacity: u64,
}

impl Options {
    /// Reads pairs of an option and its value.
    ///
    /// # Errors
    /// Which argument is wrong, and what would be right.
    pub fn read(mut args: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self {
            policy: "quilt".to_owned(),
            conf: String::new(),
            length: Length::Operations(1_000_000),
            seed: 1,
            streams: 3,
            capacity: 16 << 30,
        };
        let mut lengths = 0;
        while let Some(name) = args.next() {
            let mut value = || args.next().ok_or(format!("{name} needs a value after it"));
            match name.as_str() {
                "--policy" => options.policy = value()?,
                "--conf" => options.conf = value()?,
                "--seed" => options.seed = whole(&name, &value()?, 0..=u64::MAX)?,
                "--operations" => {
                    lengths += 1;
                    options.length = Length::Operations(whole(&name, &value()?, 1..=u64::MAX)?);
                }
                "--hours" => {
                    lengths += 1;
                    options.length = Length::Hours(hours(&value()?)?);
                }
                "--streams" => {
                    let streams = whole(&name, &value()?, 1..=64)?;
                    options.streams = u32::try_from(streams)?;
                }
                "--capacity" => {
                    let value = value()?;
                    let parsed = bytes::parse_memory(&value);
                    options.capacity =
                        parsed.map_err(|error| format!("{name} {value}: {error}"))?;
                }
                _ => {
                    return Err(format!(
                        "unknown argument '{name}'; expected --policy, --conf, --operations, --hours, --seed, --streams or --capacity"
                    )
                    .into());
                }
            }
        }
        match lengths {
            0 | 1 => Ok(options),
            _ => Err("the length is given twice; expected one --operations or one --hours".into()),
        }
    }
}

fn whole(name: &str, text: &str, range: RangeInclusive<u64>) -> Result<u64, String> {
    let number = text.replace('_', "").parse();
    let number = number.ok().filter(|number| range.contains(number));
    let (least, most) = range.into_inner();
    number.ok_or_else(|| format!("{name} {text}: expected a whole number from {least} to {most}"))
}

fn hours(text: &str) -> Result<f64, String> {
    let hours = text.parse().ok();
    let hours = hours.filter(|&hours| hours > 0.0 && hours <= 1e6);
    hours.ok_or_else(|| format!("--hours {text}: expected a number above 0, such as 24 or 0.5"))
}
