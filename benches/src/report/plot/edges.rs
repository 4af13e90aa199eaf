//! Fingerprints of plots whose figures are often equal, at a limit of the plot, or just beyond it.
//!
//! The figures of `report/invented.rs` are plausible and hardly ever at a limit. A fingerprint that differs says that some
//! pixel or text differs. If that is intended, look at the plots and write the new one here.

use coalesce_workloads::families::rng::Rng;

use super::canvas::{
    COLORS, FAINT, Font, INK, Swatch, TEXT, TITLE, draw, legend_height, width, wrap,
};
use super::driver_time::{Curve, driver_time};
use super::efficiency::efficiency;
use super::frame::{Frame, Scale, number};
use super::releases::releases;
use super::shade;
use super::speed::speed;
use super::timeline::{Line, Stroke, timeline};
use super::tradeoff::tradeoff;
use super::waste;
use crate::measure::record::{RECORDED, Row};
use crate::measure::timeline::Point;
use crate::report::invented::fingerprint;
use crate::report::pareto;
use crate::report::releases::Releases;

fn one_of<T: Clone>(rng: &mut Rng, choices: &[T]) -> T {
    choices[rng.below(choices.len() as u64) as usize].clone()
}

/// A name of any length, so that lines and legends are broken at other places.
fn name(rng: &mut Rng) -> String {
    "x".repeat(1 + rng.below(60) as usize)
}

/// The fingerprint of what is drawn with each of the first seeds.
fn drawn(seeds: u64, draw: impl Fn(&mut Rng) -> anyhow::Result<String>) -> String {
    fingerprint((0..seeds).map(|seed| draw(&mut Rng::new(seed)).unwrap()))
}

#[test]
fn trade_offs_are_as_recorded() {
    const RESERVED: [f64; 12] = [
        0.0, 0.9, 1.0, 1.05, 1.0501, 1.2, 1.206, 1.21, 2.0, 4.0, 4.0001, 40.0,
    ];
    const MS: [f64; 12] = [
        0.0, 0.0099, 0.01, 0.0101, 0.0999, 0.1, 9.99, 10.0, 10.1, 11.0, 1234.5, 1e9,
    ];
    let plot = |rng: &mut Rng| {
        // Few different figures, so that points share a place or are near each other.
        let far = rng.between(1, RESERVED.len() as u64) as usize;
        let slow = rng.between(1, MS.len() as u64) as usize;
        let points = (0..rng.below(20)).map(|_| pareto::Point {
            name: name(rng),
            reserved: one_of(rng, &RESERVED[..far]),
            driver_ms: one_of(rng, &MS[..slow]),
            is_offline: rng.happens(1, 4),
        });
        let points: Vec<_> = points.collect();
        tradeoff("a workload", &points)
    };
    assert_eq!(drawn(60, plot), "dc8c65ddf916302b");
}

#[test]
fn curves_of_driver_time_are_as_recorded() {
    const PERCENT: [f64; 6] = [0.0, 99.9, 100.0, 100.5, 101.0, 250.0];
    const MS: [f64; 7] = [0.0, 0.000_99, 0.001, 0.5, 1.0, 1.1, 1e6];
    let plot = |rng: &mut Rng| {
        let (wide, slow) = (rng.between(1, 6) as usize, rng.between(1, 7) as usize);
        let labels = [(); 16].map(|()| name(rng));
        let curves = (0..rng.below(16)).map(|number| Curve {
            label: labels[number as usize].clone(),
            points: (0..rng.below(4))
                .map(|_| (one_of(rng, &PERCENT[..wide]), one_of(rng, &MS[..slow])))
                .collect(),
            failures: (0..rng.below(2))
                .map(|_| one_of(rng, &PERCENT[..wide]))
                .collect(),
        });
        let curves: Vec<_> = curves.collect();
        driver_time("a workload", &curves)
    };
    assert_eq!(drawn(60, plot), "1c1a9e355a5f59b3");
}

#[test]
fn maps_of_efficiency_are_as_recorded() {
    const CAPACITIES: [&str; 6] = ["1TiB", "80GiB", "least", "least+25%", "110%", "unknown"];
    let plot = |rng: &mut Rng| {
        // A longer name moves the place at which a note or a setting is broken.
        let name = "x".repeat(rng.below(90) as usize);
        let conf = format!("{},yy", "x".repeat(rng.between(50, 110) as usize));
        let devices = rng.between(1, 6) as usize;
        let row = |rng: &mut Rng| Row {
            workload: one_of(rng, &["a", "b", "a workload with a long name"]).to_owned(),
            family: one_of(rng, &[RECORDED, "cnn"]).to_owned(),
            policy: one_of(rng, &["pytorch", "tlsf"]).to_owned(),
            setting: one_of(rng, &["default", "long"]).to_owned(),
            conf: one_of(rng, &["", &conf]).to_owned(),
            capacity: match rng.happens(1, 8) {
                true => name.clone(),
                false => one_of(rng, &CAPACITIES[..devices]).to_owned(),
            },
            torch: one_of(rng, &["", "2.11", "2.11", "2.12"]).to_owned(),
            unsupported: one_of(rng, &["", "", "", "streams"]).to_owned(),
            capacity_bytes: one_of(rng, &[0, 1, 100, 125]),
            lower_bound_bytes: one_of(rng, &[0, 1, 100]),
            efficiency: one_of(rng, &[None, Some(0.0), Some(0.5), Some(0.75), Some(1.0)]),
            largest_batch: one_of(rng, &[None, None, Some(0), Some(64)]),
            retries: rng.below(2),
            ooms: rng.below(2),
            ..Row::default()
        };
        let rows: Vec<Row> = (0..rng.between(1, 12)).map(|_| row(rng)).collect();
        efficiency(&rows)
    };
    assert_eq!(drawn(60, plot), "c2c19a872266bbde");
}

#[test]
fn changes_from_release_to_release_are_as_recorded() {
    let plot = |rng: &mut Rng| {
        let torches = ["2.6", "2.10", "2.11", "2.12", "2.13"];
        let torches = &torches[..rng.between(1, 5) as usize];
        let settings = [(); 4].map(|()| name(rng));
        let mut rows = Vec::new();
        for number in 0..rng.below(12) {
            let cell = Row {
                workload: format!("w{}", number % 3),
                setting: one_of(rng, &settings),
                capacity: one_of(rng, &["1TiB", "110%"]).to_owned(),
                address_policy: one_of(rng, &["up", "cuda"]).to_owned(),
                ..Row::default()
            };
            rows.extend(torches.iter().map(|torch| Row {
                torch: (*torch).to_owned(),
                peak_reserved_bytes: one_of(rng, &[0, 100, 100, 100, 101, 200]),
                ooms: u64::from(rng.happens(1, 8)),
                ..cell.clone()
            }));
        }
        releases(&Releases::of(&rows))
    };
    assert_eq!(drawn(40, plot), "b132cb691d91fa32");
}

#[test]
fn wasted_memory_is_as_recorded() {
    let plot = |rng: &mut Rng| {
        let mut names = [(); 5].map(|()| name(rng));
        names[0] = "llama1b_bf16".to_owned();
        let ways = [
            ("pytorch", "default"),
            ("pytorch", "expand"),
            ("gmlake", "frag64"),
            ("vpmm", "default"),
            ("quilt", "default"),
            ("tlsf", "default"),
        ];
        let ways = &ways[..rng.below(7) as usize];
        let mut rows = Vec::new();
        for name in &names[..rng.below(6) as usize] {
            let program = Row {
                workload: name.clone(),
                capacity: "1TiB".to_owned(),
                family: one_of(rng, &[RECORDED, RECORDED, RECORDED, "cnn"]).to_owned(),
                lower_bound_bytes: (1 << 30) + rng.below(3),
                pools: one_of(rng, &[None, Some(0), Some(1)]),
                ..Row::default()
            };
            rows.extend(ways.iter().map(|(policy, setting)| Row {
                policy: (*policy).to_owned(),
                setting: (*setting).to_owned(),
                efficiency: one_of(rng, &[None, Some(0.25), Some(0.99), Some(0.995), Some(1.0)]),
                ooms: u64::from(rng.happens(1, 8)),
                ..program.clone()
            }));
        }
        Ok(waste::plot(&rows)?.unwrap_or_default())
    };
    assert_eq!(drawn(60, plot), "4cbecf59b8f5c088");
}

#[test]
fn timelines_in_each_unit_are_as_recorded() {
    const STROKES: [Stroke; 3] = [Stroke::Area, Stroke::Solid, Stroke::Dashed];
    let plot = |rng: &mut Rng| {
        let unit = one_of(rng, &[1_u64, 1 << 10, 1 << 20, 1 << 30]);
        let most = one_of(rng, &[unit.max(2) - 1, unit, unit + 1, 1000 * unit, 0]);
        let points = |rng: &mut Rng| {
            let count = rng.below(12);
            let point = |event| Point {
                event,
                reserved: one_of(rng, &[0, most / 2, most]),
                ..Point::default()
            };
            (0..count).map(point).collect::<Vec<_>>()
        };
        let points: Vec<_> = (0..rng.below(5)).map(|_| points(rng)).collect();
        let labels = [(); 5].map(|()| name(rng));
        let lines = points.iter().enumerate().map(|(number, points)| Line {
            label: labels[number].clone(),
            color: COLORS[number],
            stroke: one_of(rng, &STROKES),
            points,
            figure: |point| point.reserved,
        });
        let lines: Vec<_> = lines.collect();
        let note = format!("{} ", name(rng)).repeat(rng.below(6) as usize);
        timeline("a workload", &note, &lines)
    };
    assert_eq!(drawn(60, plot), "1a64ab5be4652337");
}

#[test]
fn times_for_a_pair_are_as_recorded() {
    let plot = |rng: &mut Rng| {
        let mut table = "script,setting,threads,program,ns_min,ns_median,replays\n".to_owned();
        for _ in 0..rng.between(4, 14) {
            let script = one_of(
                rng,
                &["live_1", "live_10", "live_1000", "live_1000000", "hot_4k"],
            );
            let setting = one_of(rng, &["", "", "", "", "history"]);
            let threads = one_of(rng, &[1, 1, 1, 1, 2]);
            let program = one_of(rng, &["original", "locked", "locked", "other"]);
            let ns = one_of(rng, &["0.01", "1", "94.4", "94.5", "20000", "20000"]);
            let replays = 10_u32.pow(rng.below(10) as u32);
            table += &format!("{script},{setting},{threads},{program},{ns},1,{replays}\n");
        }
        let plot = speed(table.as_bytes());
        Ok(plot.unwrap_or_else(|error| format!("{error:#}")))
    };
    assert_eq!(drawn(80, plot), "bfb5999bb2304a7e");
}

/// Ticks where an axis begins or ends at one, just before or just after it.
#[test]
fn axes_are_as_recorded() {
    const ENDS: [f64; 14] = [
        0.001, 0.99, 1.0, 1.01, 2.0, 4.9, 5.0, 7.0, 10.0, 10.1, 999.0, 1000.0, 1000.1, 1e6,
    ];
    let mut ticks = Vec::new();
    for (place, &from) in ENDS.iter().enumerate() {
        for &to in &ENDS[place + 1..] {
            for scale in [
                Scale::log(from, to),
                Scale::linear(from, to),
                Scale::linear(-to, from),
            ] {
                for count in 0..12 {
                    let numbers = scale.ticks(count).into_iter().map(number);
                    ticks.push(format!("{from} {to}: {:?}", numbers.collect::<Vec<_>>()));
                }
            }
        }
    }
    assert_eq!(fingerprint(ticks.into_iter()), "bdd040119f12f77e");
    let axes = |rng: &mut Rng| {
        let (wide, high) = (rng.between(60, 600) as i32, rng.between(40, 400) as i32);
        let frame = Frame {
            left: 70,
            top: 10,
            right: 70 + wide,
            bottom: 10 + high,
            x: Scale::linear(-1.0, one_of(rng, &[1.0, 20_000.0])),
            y: Scale::log(0.5, one_of(rng, &[1.0, 20_000.0])),
        };
        draw((wide + 100, high + 80), |canvas| {
            frame.axes(canvas, "right", "up")
        })
    };
    assert_eq!(drawn(40, axes), "dc27697dadc8e41e");
}

/// The width of each kind of letter, and what fits in a line to the pixel.
#[test]
fn texts_are_as_recorded() {
    let letters = "ijl.,:;'|! frt()[]/-mwMW%@→+<>=×≤AZÄaz09ä_\"#°\u{1b}";
    let widths = letters.chars().map(|letter| {
        let letter = letter.to_string();
        format!(
            "{letter} {} {}",
            width(&letter, TEXT),
            width(&letter.repeat(3), TITLE)
        )
    });
    let text = "one two,three four,five;six seven";
    let lines = (0..300).map(|space| format!("{:?}", wrap(text, TEXT, space)));
    let long = "1234567, ".repeat(400);
    let lines = lines.chain([format!("{:?}", wrap(&long, TEXT, 900))]);
    let swatches = [
        Swatch::Line(INK),
        Swatch::Dashed(INK),
        Swatch::Area(INK),
        Swatch::Cell(INK),
        Swatch::Dot(INK),
        Swatch::Cross(INK),
        Swatch::Beyond(INK),
    ];
    let entries = swatches.map(|swatch| (swatch, "entry"));
    let legends = (0..600).step_by(7).map(|space| {
        let height = legend_height(&entries, space);
        let svg = draw((space + 300, height + 1), |canvas| {
            assert_eq!(canvas.legend(&entries, (3, 0), space)?, height);
            let below = canvas.lines(&["a", "b"], (9, 9), Font::new(TEXT).color(FAINT))?;
            assert_eq!(below, 36);
            canvas.beyond((50, 50), (1, 0), FAINT)?;
            canvas.beyond((90, 50), (0, 1), FAINT)
        });
        format!("{height} {}", svg.unwrap())
    });
    let heights = (0..900).map(|space| legend_height(&entries, space).to_string());
    let nothing: [(Swatch, &str); 0] = [];
    assert_eq!(legend_height(&nothing, 100), 0);
    assert_eq!(fingerprint(widths), "0f9247eaf01ad6c0");
    assert_eq!(fingerprint(lines), "003721dd0fadc3ce");
    assert_eq!(fingerprint(legends), "1f525c8a49b38f69");
    assert_eq!(fingerprint(heights), "370d5156b1d112ed");
    assert!(draw((-1, 5), |_| Ok(())).is_err());
}

#[test]
fn shades_are_as_recorded() {
    let shares = (-10..=1100).map(|share| {
        let color = shade::of(f64::from(share) / 1000.0);
        format!("{color:?} {:?}", shade::ink_on(color))
    });
    assert_eq!(fingerprint(shares), "e405ece05b7f3229");
    let greys = (0..=255).map(|grey| {
        let grey = plotters::style::RGBColor(grey, grey, 255 - grey);
        format!("{:?}", shade::ink_on(grey))
    });
    assert_eq!(fingerprint(greys), "a9ee9e6716d1c197");
}
