//! Snapshots of plots whose figures are often equal, at a limit of the plot, or just beyond it.

use std::path::Path;

use coalesce_workloads::families::rng::Rng;

use super::canvas::tests::assert_legible;
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
use super::tradeoff::{DRIVER_TIME, tradeoff};
use super::waste;
use crate::measure::record::{RECORDED, Row};
use crate::measure::timeline::Point;
use crate::report::edges::{one_of, word};
use crate::report::pareto;
use crate::report::releases::Releases;

/// A name of any length, so that lines and legends are broken at other places.
fn name(rng: &mut Rng) -> String {
    "x".repeat(1 + rng.below(60) as usize)
}

/// What is drawn with each of the first seeds.
fn drawn(seeds: u64, draw: impl Fn(&mut Rng) -> anyhow::Result<String>) -> String {
    let svg = |seed| format!("--- {seed}\n{}\n", draw(&mut Rng::new(seed)).unwrap());
    (0..seeds).map(svg).collect()
}

/// [`drawn`] by plots whose texts are within the image and apart from each other.
fn legible(seeds: u64, draw: impl Fn(&mut Rng) -> anyhow::Result<String>) -> String {
    drawn(seeds, |rng| {
        let svg = draw(rng)?;
        if !svg.is_empty() {
            assert_legible(&svg);
        }
        Ok(svg)
    })
}

#[test]
fn trade_offs() {
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
            time: one_of(rng, &MS[..slow]),
            is_offline: rng.happens(1, 4),
        });
        tradeoff("a workload", &DRIVER_TIME, &points.collect::<Vec<_>>())
    };
    insta::assert_snapshot!(legible(8, plot));
}

#[test]
fn curves_of_driver_time() {
    const PERCENT: [f64; 6] = [0.0, 99.9, 100.0, 100.5, 101.0, 250.0];
    const MS: [f64; 7] = [0.0, 0.000_99, 0.001, 0.5, 1.0, 1.1, 1e6];
    let plot = |rng: &mut Rng| {
        let (wide, slow) = (rng.between(1, 6) as usize, rng.between(1, 7) as usize);
        let curve = |rng: &mut Rng| Curve {
            label: name(rng),
            points: (0..rng.below(4))
                .map(|_| (one_of(rng, &PERCENT[..wide]), one_of(rng, &MS[..slow])))
                .collect(),
            failures: (0..rng.below(2))
                .map(|_| one_of(rng, &PERCENT[..wide]))
                .collect(),
        };
        let curves: Vec<_> = (0..rng.below(16)).map(|_| curve(rng)).collect();
        driver_time("a workload", &curves)
    };
    insta::assert_snapshot!(drawn(6, plot));
    // The labels are apart even if all curves end at one place.
    let curve = |number| Curve {
        label: format!("policy/setting{number}"),
        points: vec![(101.0, 2.0), (150.0, 1.0)],
        failures: vec![130.0],
    };
    let curves: Vec<_> = (0..25).map(curve).collect();
    assert_legible(&driver_time("a workload", &curves).unwrap());
}

#[test]
fn maps_of_efficiency() {
    const CAPACITIES: [&str; 6] = ["1TiB", "80GiB", "least", "least+25%", "110%", "unknown"];
    let plot = |rng: &mut Rng| {
        // A longer name moves the place at which a note or a setting is broken.
        let name = "x".repeat(rng.below(90) as usize);
        let conf = format!("{},yy", "x".repeat(rng.between(50, 110) as usize));
        let devices = rng.between(1, 6) as usize;
        let row = |rng: &mut Rng| Row {
            workload: word(rng, &["a", "b", "a workload with a long name"]),
            family: word(rng, &[RECORDED, "cnn"]),
            policy: word(rng, &["pytorch", "tlsf"]),
            setting: word(rng, &["default", "long"]),
            conf: word(rng, &["", &conf]),
            capacity: if rng.happens(1, 8) {
                name.clone()
            } else {
                word(rng, &CAPACITIES[..devices])
            },
            torch: word(rng, &["", "2.11", "2.11", "2.12"]),
            unsupported: word(rng, &["", "", "", "streams"]),
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
    insta::assert_snapshot!(legible(5, plot));
}

/// Also the table of the same figures.
#[test]
fn changes_from_release_to_release() {
    let of = |rng: &mut Rng| {
        let torches = ["2.6", "2.10", "2.11", "2.12", "2.13"];
        let torches = &torches[..rng.between(1, 5) as usize];
        let settings = [(); 4].map(|()| name(rng));
        let mut rows = Vec::new();
        for number in 0..rng.below(12) {
            let cell = Row {
                workload: format!("w{}", number % 3),
                setting: one_of(rng, &settings),
                capacity: word(rng, &["1TiB", "110%"]),
                address_policy: word(rng, &["up", "cuda"]),
                ..Row::default()
            };
            rows.extend(torches.iter().map(|torch| Row {
                torch: (*torch).to_owned(),
                peak_reserved_bytes: one_of(rng, &[0, 100, 100, 100, 101, 200]),
                retries: rng.below(3),
                ooms: u64::from(rng.happens(1, 8)),
                ..cell.clone()
            }));
        }
        rows
    };
    let plot = |rng: &mut Rng| releases(&Releases::of(&of(rng)));
    insta::assert_snapshot!("releases", legible(6, plot));
    let tables = (0..20).map(|seed| {
        let rows = of(&mut Rng::new(seed));
        let releases = Releases::of(&rows);
        format!("--- {:?}\n{}", releases.base_release(), releases.markdown())
    });
    insta::assert_snapshot!("tables_of_releases", tables.collect::<String>());
}

#[test]
fn wasted_memory() {
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
                family: word(rng, &[RECORDED, RECORDED, RECORDED, "cnn"]),
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
    insta::assert_snapshot!(legible(8, plot));
}

#[test]
fn timelines_in_each_unit() {
    const STROKES: [Stroke; 3] = [Stroke::Area, Stroke::Solid, Stroke::Dashed];
    let plot = |rng: &mut Rng| {
        let unit = one_of(rng, &[1_u64, 1 << 10, 1 << 20, 1 << 30]);
        let most = one_of(rng, &[unit.max(2) - 1, unit, unit + 1, 1000 * unit, 0]);
        let point = |rng: &mut Rng, event| Point {
            event,
            reserved: one_of(rng, &[0, most / 2, most]),
            ..Point::default()
        };
        let some = |rng: &mut Rng| -> Vec<Point> {
            (0..rng.below(12)).map(|event| point(rng, event)).collect()
        };
        let points: Vec<_> = (0..rng.below(5)).map(|_| some(rng)).collect();
        let lines: Vec<_> = points
            .iter()
            .zip(COLORS)
            .map(|(points, color)| Line {
                label: name(rng),
                color,
                stroke: one_of(rng, &STROKES),
                points,
                figure: |point| point.reserved,
            })
            .collect();
        let note = format!("{} ", name(rng)).repeat(rng.below(6) as usize);
        timeline("a workload", &note, &lines)
    };
    insta::assert_snapshot!(legible(7, plot));
}

#[test]
fn times_for_a_pair() {
    let scripts = ["live_1", "live_10", "live_1000", "live_1000000", "hot_4k"];
    let plot = |rng: &mut Rng| {
        let mut table = "script,setting,threads,program,ns_min,ns_median,replays\n".to_owned();
        for _ in 0..rng.between(4, 14) {
            let (script, setting) = (one_of(rng, &scripts), one_of(rng, &["", "", "", "history"]));
            let threads = one_of(rng, &[1, 1, 1, 1, 2]);
            let program = one_of(rng, &["original", "locked", "locked", "other"]);
            let ns = one_of(rng, &["0.01", "1", "94.4", "94.5", "20000", "20000"]);
            let replays = 10_u32.pow(rng.below(10) as u32);
            table += &format!("{script},{setting},{threads},{program},{ns},1,{replays}\n");
        }
        let plot = speed(table.as_bytes());
        Ok(plot.unwrap_or_else(|error| format!("{error:#}")))
    };
    insta::assert_snapshot!(drawn(24, plot));
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../results/speed");
    let table = std::fs::File::open(folder.join("speed.csv")).unwrap();
    let recorded = std::fs::read_to_string(folder.join("live.svg")).unwrap();
    let is_recorded = speed(table).unwrap() == recorded;
    assert!(is_recorded, "plot_speed draws results/speed/live.svg");
}

/// Ticks where an axis begins or ends at one, just before or just after it.
#[test]
fn axes() {
    const ENDS: [f64; 14] = [
        0.001, 0.99, 1.0, 1.01, 2.0, 4.9, 5.0, 7.0, 10.0, 10.1, 999.0, 1000.0, 1000.1, 1e6,
    ];
    let mut ticks = String::new();
    for (place, &from) in ENDS.iter().enumerate() {
        for &to in &ENDS[place + 1..] {
            let (log, linear) = (Scale::log(from, to), Scale::linear(from, to));
            for scale in [log, linear, Scale::linear(-to, from)] {
                for count in [0, 2, 5, 11] {
                    let numbers = scale
                        .ticks(count)
                        .into_iter()
                        .map(number)
                        .collect::<Vec<_>>()
                        .join(" ");
                    ticks += &format!("{from} {to} {count}: {numbers}\n");
                }
            }
        }
    }
    insta::assert_snapshot!("ticks", ticks);
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
        draw((wide + 130, high + 80), |canvas| {
            frame.axes(canvas, "x", "y")
        })
    };
    insta::assert_snapshot!("axes", drawn(8, axes));
}

/// The width of each kind of letter, and what fits in a line to the pixel.
#[test]
fn texts() {
    let letters = "ijl.,:;'|! frt()[]/-mwMW%@→+<>=×≤AZÄaz09ä_\"#°\u{1b}";
    let widths = letters.chars().map(|letter| {
        let letter = letter.to_string();
        let three = width(&letter.repeat(3), TITLE);
        format!("{letter:?} {} {three}\n", width(&letter, TEXT))
    });
    insta::assert_snapshot!("widths", widths.collect::<String>());
    let text = "one two,three four,five;six seven";
    let lines = (0..300).map(|space| format!("{:?}\n", wrap(text, TEXT, space)));
    let long = format!("{:?}", wrap(&"1234567, ".repeat(400), TEXT, 900));
    insta::assert_snapshot!("lines", lines.chain([long]).collect::<String>());
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
    let legends = [0, 140, 300, 600].map(|space| {
        let height = legend_height(&entries, space);
        let svg = draw((space + 300, height + 1), |canvas| {
            assert_eq!(canvas.legend(&entries, (3, 0), space)?, height);
            let below = canvas.lines(&["a", "b"], (9, 9), Font::new(TEXT).color(FAINT))?;
            assert_eq!(below, 36);
            canvas.beyond((50, 50), (1, 0), FAINT)?;
            canvas.beyond((90, 50), (0, 1), FAINT)
        });
        svg.unwrap()
    });
    insta::assert_snapshot!("legends", legends.join("\n"));
    let heights = (0..900).map(|space| legend_height(&entries, space).to_string());
    insta::assert_snapshot!("heights", heights.collect::<Vec<_>>().join(" "));
    let nothing: [(Swatch, &str); 0] = [];
    assert_eq!(legend_height(&nothing, 100), 0);
    assert!(draw((-1, 5), |_| Ok(())).is_err());
}

#[test]
fn shades() {
    let shares = (-10..=1100).step_by(5).map(|share| {
        let color = shade::of(f64::from(share) / 1000.0);
        format!("{share} {color:?} {:?}\n", shade::ink_on(color))
    });
    let greys = (0..=255).map(|grey| {
        let grey = plotters::style::RGBColor(grey, grey, 255 - grey);
        format!("{grey:?} {:?}\n", shade::ink_on(grey))
    });
    insta::assert_snapshot!(shares.chain(greys).collect::<String>());
}
