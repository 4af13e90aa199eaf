//! How much memory each policy wastes, and what it costs to waste less: tables in Markdown.
//!
//! The programs are kept apart by where they come from ([`group`]): parameters of `quilt` were set on some of them, so only
//! the others judge it.
//!
//! - [`waste`](TABLES): the recorded programs together, a line for each policy;
//! - `waste_groups`: the same for each group;
//! - `waste_ablation`: a line for `quilt`, and for `quilt` without each of its mechanisms;
//! - `waste_efficiency`, `waste_least`, `waste_late`, `waste_steps`, `waste_driver`: a line for each program, a column for each
//!   policy;
//! - `waste_pools`: the same for programs with private pools, compared with what the pools must keep.

mod figures;
pub mod group;
pub mod measured;
pub(crate) mod programs;

use crate::measure::record::Row;
use crate::report::pareto::is_offline;
use crate::text::{Column, Table, percent};

use self::figures::{Figures, Pair};
use self::group::Group;
use self::measured::Measured;
use self::programs::{Program, Programs};

/// The source of the tables in a folder of results.
pub const SOURCE: &str = "waste.csv";

/// Makes a table of results, and of what was measured on a GPU.
pub type Make = fn(&[Row], &Measured) -> String;

/// The tables: their names in the marks of Markdown files, and the functions that make them.
pub const TABLES: [(&str, Make); 9] = [
    ("waste", headline),
    ("waste_groups", groups),
    ("waste_ablation", ablation),
    ("waste_efficiency", |rows, measured| {
        let on_gpu = |program: &Program<'_>| measured.efficiency(program.name, program.requested);
        each(rows, Some(&on_gpu), |program, way| {
            program.roomy(way, |row| row.efficiency.map(percent))
        })
    }),
    ("waste_least", |rows, _| {
        each(rows, None, |program, way| {
            program.least(way, |row| Some(percent(figures::on_least(row))))
        })
    }),
    ("waste_late", |rows, _| {
        each(rows, None, |program, way| {
            let calls = |row: &Row| row.late_calls_per_1000;
            program.roomy(way, |row| calls(row).map(|calls| format!("{calls:.1}")))
        })
    }),
    ("waste_steps", |rows, _| {
        each(rows, None, |program, way| program.roomy(way, in_steps))
    }),
    ("waste_pools", pools),
    ("waste_driver", |rows, _| {
        each(rows, None, |program, way| {
            let ms = |row: &Row| row.driver_time_ns as f64 / 1e6;
            program.roomy(way, |row| Some(format!("{:.1}", ms(row))))
        })
    }),
];

/// The columns of figures of many programs.
const FIGURES: [&str; 5] = [
    "efficiency",
    "efficiency on the least device",
    "late calls per 1000",
    "driver time",
    "host time",
];

/// The policy's name, marked if it knows the program in advance.
fn marked(way: &str) -> String {
    let policy = way.split('/').next().unwrap_or(way);
    let mark = if is_offline(policy) { "°" } else { "" };
    format!("{way}{mark}")
}

/// A line for each policy: the recorded programs above 1 GiB that all policies serve.
fn headline(rows: &[Row], _: &Measured) -> String {
    let programs = Programs::of(rows);
    let recorded = programs.large(|group| group != Group::Preset);
    let common = programs.served_by_all(&recorded);
    let judged: Vec<_> = common
        .iter()
        .copied()
        .filter(|p| p.group.judges())
        .collect();
    let [efficiency, others @ ..] = FIGURES;
    let headings = ["serves", efficiency, "efficiency, not tuned on"];
    let headings = headings
        .iter()
        .chain(&others)
        .map(|name| Column::right(*name));
    let mut table = Table::new(std::iter::once(Column::left("policy")).chain(headings));
    for way in &programs.ways {
        let served = Figures::of(way, &recorded).served;
        let (all, judged) = (Figures::of(way, &common), Figures::of(way, &judged));
        let [efficiency, others @ ..] = texts(&all);
        let cells = [
            marked(way),
            format!("{served}/{}", recorded.len()),
            efficiency,
            pair(judged.efficiency),
        ];
        table.row(cells.into_iter().chain(others));
    }
    table.markdown()
}

/// A line for `quilt` and for each of its mechanisms that is off: all recorded programs above 1 GiB.
fn ablation(rows: &[Row], _: &Measured) -> String {
    let programs = Programs::ablated(rows);
    let recorded = programs.large(|group| group != Group::Preset);
    let headings = FIGURES.iter().map(|name| Column::right(*name));
    let mut table = Table::new(std::iter::once(Column::left("policy")).chain(headings));
    for way in programs.ways.iter().filter(|way| way.starts_with("quilt")) {
        let cells = texts(&Figures::of(way, &recorded));
        table.row(std::iter::once(way.clone()).chain(cells));
    }
    table.markdown()
}

/// A line for each group and policy.
fn groups(rows: &[Row], _: &Measured) -> String {
    let programs = Programs::of(rows);
    let left = ["programs", "policy"].map(Column::left);
    let headings = ["serves"]
        .iter()
        .chain(&FIGURES)
        .map(|name| Column::right(*name));
    let mut table = Table::new(left.into_iter().chain(headings));
    for group in Group::ALL {
        let of_group = programs.large(|other| other == group);
        if of_group.is_empty() {
            continue;
        }
        for (number, way) in programs.ways.iter().enumerate() {
            let figures = Figures::of(way, &of_group);
            let title = if number == 0 { group.title() } else { "" };
            let cells = [
                title.to_owned(),
                marked(way),
                format!("{}/{}", figures.served, of_group.len()),
            ];
            table.row(cells.into_iter().chain(texts(&figures)));
        }
    }
    table.markdown()
}

/// A figure of a program under a policy, or a word that says why there is none.
type Cell = fn(&Program<'_>, &str) -> String;

/// The share of a program in what was measured on a GPU.
type OnGpu<'a> = &'a dyn Fn(&Program<'_>) -> Option<f64>;

/// A line for each program, a column for each policy.
fn each(rows: &[Row], on_gpu: Option<OnGpu<'_>>, cell: Cell) -> String {
    let programs = Programs::of(rows);
    let has_any = |way: &&String| {
        let mut cells = programs.all.iter().map(|program| cell(program, way));
        cells.any(|text| !text.is_empty())
    };
    let ways: Vec<&String> = programs.ways.iter().filter(has_any).collect();
    let left = ["programs", "program"].map(Column::left);
    let mut headings = vec![Column::right("requested, GiB")];
    headings.extend(ways.iter().map(|way| Column::right(marked(way))));
    headings.extend(on_gpu.map(|_| Column::right("cudaMallocAsync on an H200")));
    let mut table = Table::new(left.into_iter().chain(headings));
    for group in Group::ALL {
        let of_group = programs.all.iter().filter(|program| program.group == group);
        let has_cells = |program: &&Program<'_>| {
            let mut cells = ways.iter().map(|way| cell(program, way));
            cells.any(|text| !text.is_empty())
        };
        for (number, program) in of_group.filter(has_cells).enumerate() {
            let title = if number == 0 { group.title() } else { "" };
            let gib = program.requested as f64 / (1_u64 << 30) as f64;
            let mut cells = vec![title.to_owned(), program.name.to_owned()];
            cells.push(format!("{gib:.2}"));
            cells.extend(ways.iter().map(|way| cell(program, way)));
            cells.extend(on_gpu.map(|share| share(program).map_or_else(String::new, percent)));
            table.row(cells);
        }
    }
    table.markdown()
}

/// Driver calls in each step of the second half, or the first step after which there are none.
fn in_steps(row: &Row) -> Option<String> {
    let calls = row.late_calls_per_step?;
    Some(match row.quiet_from_step {
        Some(step) if calls == 0.0 => format!("0 (from {step})"),
        _ => format!("{calls:.1}"),
    })
}

/// A line for each recorded program with private pools: how much of the reserved memory must be reserved, because it is
/// requested or a pool has to keep it. Only the ways that serve all of them.
fn pools(rows: &[Row], _: &Measured) -> String {
    let programs = Programs::of(rows);
    let of_group = |program: &&Program<'_>| program.group == Group::Pools;
    let all: Vec<_> = programs.all.iter().filter(of_group).collect();
    let serves_all = |way: &&String| all.iter().all(|program| program.served(way).is_some());
    let ways: Vec<&String> = programs.ways.iter().filter(serves_all).collect();
    let sizes = ["requested, GiB", "with what pools keep, GiB"];
    let headings = sizes.into_iter().map(str::to_owned);
    let headings = headings.chain(ways.iter().map(|way| marked(way)));
    let left = std::iter::once(Column::left("program"));
    let mut table = Table::new(left.chain(headings.map(Column::right)));
    for program in &all {
        let gib = |bytes: u64| format!("{:.2}", bytes as f64 / (1_u64 << 30) as f64);
        let sizes = [program.requested, program.with_pools].map(gib);
        let shares = ways.iter().map(|way| {
            let share = program.served(way).and_then(figures::of_what_must_be);
            share.map_or_else(String::new, percent)
        });
        let name = std::iter::once(program.name.to_owned());
        table.row(name.chain(sizes).chain(shares));
    }
    let together = |way: &&String| {
        let rows = all.iter().filter_map(|program| program.served(way));
        let shares: Vec<f64> = rows.filter_map(figures::of_what_must_be).collect();
        pair(Pair::of(&shares))
    };
    let name = ["mean (worst)", "", ""].map(str::to_owned);
    table.row(name.into_iter().chain(ways.iter().map(together)));
    table.markdown()
}

/// The cells of the columns in [`FIGURES`].
fn texts(figures: &Figures) -> [String; 5] {
    let times =
        |ratio: Option<f64>| ratio.map_or_else(String::new, |ratio| format!("× {ratio:.2}"));
    let late = figures.late.map_or_else(String::new, |late| {
        format!("{:.1} ({:.1})", late.median, late.together)
    });
    [
        pair(figures.efficiency),
        pair(figures.on_least),
        late,
        times(figures.driver_time),
        times(figures.host_time),
    ]
}

/// The mean and the worst share.
fn pair(shares: Option<Pair>) -> String {
    shares.map_or_else(String::new, |shares| {
        format!("{} ({})", percent(shares.mean), percent(shares.worst))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(workload: &str, policy: &str, capacity: &str) -> Row {
        Row {
            workload: workload.to_owned(),
            policy: policy.to_owned(),
            setting: "default".to_owned(),
            capacity: capacity.to_owned(),
            capacity_bytes: 4 << 30,
            family: "recorded".to_owned(),
            lower_bound_bytes: 2 << 30,
            peak_reserved_bytes: 4 << 30,
            efficiency: Some(0.5),
            allocations: 2000,
            late_calls: Some(3),
            late_calls_per_1000: Some(3.0),
            steps: Some(4),
            quiet_from_step: (policy == "pytorch").then_some(3),
            late_calls_per_step: Some(if policy == "pytorch" { 0.0 } else { 1.5 }),
            streams: Some(1),
            pools: Some(0),
            driver_time_ns: if policy == "pytorch" { 10 } else { 20 },
            ns_per_pair: Some(if policy == "pytorch" { 100.0 } else { 900.0 }),
            ns_per_pair_samples: match policy {
                "pytorch" => String::new(),
                _ => "900;150;1000".to_owned(),
            },
            ..Row::default()
        }
    }

    /// A program that quilt was tuned on, a recording, one with private pools, one on several streams, a small one.
    fn rows() -> Vec<Row> {
        let mut rows = Vec::new();
        for policy in ["pytorch", "gmlake"] {
            for name in ["llama1b_bf16", "lora", "graph_step", "ddp_0", "small"] {
                for capacity in ["1TiB", "least"] {
                    let mut row = row(name, policy, capacity);
                    match name {
                        "lora" if policy == "gmlake" => row.efficiency = Some(1.0),
                        "graph_step" => {
                            row.pools = Some(1);
                            row.lower_bound_with_pools_bytes = Some(3 << 30);
                        }
                        "ddp_0" => row.streams = Some(2),
                        "small" => row.lower_bound_bytes = 1 << 20,
                        _ => {}
                    }
                    rows.push(row);
                }
            }
        }
        rows
    }

    fn table(name: &str, rows: &[Row], measured: &str) -> String {
        let measured = Measured::read(measured.as_bytes()).unwrap();
        let found = TABLES.iter().find(|(other, _)| *other == name).unwrap();
        (found.1)(rows, &measured)
    }

    #[test]
    fn the_headline_has_programs_that_all_policies_serve() {
        let table = table("waste", &rows(), "program,rank,what,peak_reserved_bytes\n");
        let lines: Vec<&str> = table.lines().skip(2).collect();
        let expected = [
            "| pytorch | 4/4 | 50.0 % (50.0 %) | 50.0 % (50.0 %) | 50.0 % (50.0 %) | 3.0 (3.0) | × 1.00 | × 1.00 |",
            "| gmlake | 3/4 | 66.7 % (50.0 %) | 75.0 % (50.0 %) | 50.0 % (50.0 %) | 3.0 (3.0) | × 2.00 | × 1.50 |",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn groups_are_apart_and_pools_need_a_policy_that_has_them() {
        let table = table(
            "waste_groups",
            &rows(),
            "program,rank,what,peak_reserved_bytes\n",
        );
        let lines: Vec<&str> = table.lines().skip(2).collect();
        assert_eq!(lines.len(), 8, "{table}");
        let [
            _,
            _,
            one_pytorch,
            one_gmlake,
            _,
            _,
            pools_pytorch,
            pools_gmlake,
        ] = lines[..]
        else {
            panic!("{table}");
        };
        assert!(one_pytorch.contains("one stream | pytorch | 1/1 |"));
        assert!(one_gmlake.contains("|  | gmlake | 1/1 | 100.0 % (100.0 %)"));
        assert!(pools_pytorch.contains("pools | pytorch | 1/1 | 50.0 %"));
        assert_eq!(pools_gmlake, "|  | gmlake | 0/1 |  |  |  |  |  |");
    }

    #[test]
    fn programs_with_pools_are_compared_with_what_pools_keep() {
        let table = table(
            "waste_pools",
            &rows(),
            "program,rank,what,peak_reserved_bytes\n",
        );
        let lines: Vec<&str> = table.lines().skip(2).collect();
        let expected = [
            "| graph_step | 2.00 | 3.00 | 75.0 % |",
            "| mean (worst) |  |  | 75.0 % (75.0 %) |",
        ];
        assert_eq!(lines, expected, "gmlake has no pools");
    }

    #[test]
    fn steps_are_quiet_or_have_calls() {
        let table = table(
            "waste_steps",
            &rows(),
            "program,rank,what,peak_reserved_bytes\n",
        );
        assert!(
            table.contains("| lora | 2.00 | 0 (from 3) | 1.5 |\n"),
            "{table}"
        );
    }

    #[test]
    fn every_program_has_a_line_with_what_was_measured_on_a_gpu() {
        let measured = "program,rank,what,peak_reserved_bytes\nlora,,async,4294967296\nlora,,settings,1\nddp,0,async,2147483648\n";
        let all = table("waste_efficiency", &rows(), measured);
        let has = |part: &str| assert!(all.contains(part), "no '{part}' in:\n{all}");
        has("| llama1b_bf16 | 2.00 | 50.0 % | 50.0 % |  |\n");
        has("| lora | 2.00 | 50.0 % | 100.0 % | 50.0 % |\n");
        has("| ddp_0 | 2.00 | 50.0 % | 50.0 % | 100.0 % |\n");
        has("| graph_step | 2.00 | 50.0 % | unsup. |  |\n");
        has("| small | 0.00 |");
        let least = table(
            "waste_least",
            &rows(),
            "program,rank,what,peak_reserved_bytes\n",
        );
        assert!(
            least.contains("| lora | 2.00 | 50.0 % | 50.0 % |\n"),
            "{least}"
        );
    }
}
