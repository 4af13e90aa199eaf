//! How much memory each policy wastes, and what it costs to waste less: tables in Markdown.
//!
//! The programs are kept apart by where they come from ([`group`]): parameters of `quilt` were set on some of them, so only
//! the others judge it.
//!
//! - `headline`: the recorded programs together, a line for each policy; `groups`: the same for each group;
//! - `ablation`: a line for `quilt`, and for `quilt` without each of its mechanisms;
//! - `efficiency`, `on_least`, `late_calls`, `steps`, `driver_time`: a line for each program, a column for each
//!   policy; `pools`: the same for programs with private pools, compared with what the pools must keep.

mod figures;
pub mod group;
pub mod measured;
pub(crate) mod programs;

use crate::measure::record::Row;
use crate::report::pareto::marked;
use crate::text::{Table, percent};

use self::figures::{Figures, Pair};
use self::group::Group;
use self::measured::Measured;
use self::programs::{Program, Programs};

/// What a column says of the figures of many programs.
type Cell = fn(&Figures) -> String;

/// The columns of figures of many programs.
const FIGURES: [(&str, Cell); 5] = [
    ("efficiency", |of| pair(of.efficiency)),
    ("efficiency on the least device", |of| pair(of.on_least)),
    ("late calls per 1000", |of| {
        of.late.map_or_else(String::new, |late| {
            format!("{:.1} ({:.1})", late.median, late.together)
        })
    }),
    ("driver time", |of| times(of.driver_time)),
    ("host time", |of| times(of.host_time)),
];

fn texts(figures: &Figures) -> impl Iterator<Item = String> {
    FIGURES.iter().map(|(_, text)| text(figures))
}

fn times(ratio: Option<f64>) -> String {
    ratio.map_or_else(String::new, |ratio| format!("× {ratio:.2}"))
}

/// The mean and the worst share.
fn pair(shares: Option<Pair>) -> String {
    shares.map_or_else(String::new, |shares| {
        format!("{} ({})", percent(shares.mean), percent(shares.worst))
    })
}

/// A line for each policy: the recorded programs above 1 GiB that all policies serve.
pub(super) fn headline(rows: &[Row]) -> String {
    let programs = Programs::of(rows);
    let recorded = programs.large(|group| group != Group::Preset);
    let common = programs.served_by_all(&recorded);
    let judges = |program: &&&Program<'_>| program.group.judges();
    let judged: Vec<_> = common.iter().filter(judges).copied().collect();
    let [efficiency, others @ ..] = FIGURES.map(|(name, _)| name);
    let headings = ["serves", efficiency, "efficiency, not tuned on"];
    let mut table = Table::of(["policy"], headings.into_iter().chain(others));
    for way in &programs.ways {
        let served = Figures::of(way, &recorded).served;
        let mut cells = vec![marked(way), format!("{served}/{}", recorded.len())];
        cells.extend(texts(&Figures::of(way, &common)));
        cells.insert(3, pair(Figures::of(way, &judged).efficiency));
        table.row(cells);
    }
    table.markdown()
}

/// A figure for prose: the `mean` or the `worst` efficiency of a policy, or the number of `programs` that it serves, in a set of
/// recorded programs above 1 GiB. The sets are `common` (all policies serve them), `pools` (those with private pools) and
/// `recorded` (all).
/// The set `kept` has the shares of the table `pools`.
pub(super) fn of_set(rows: &[Row], way: &str, name: &str, set: &str) -> Option<String> {
    let programs = Programs::of(rows);
    let recorded = programs.large(|group| group != Group::Preset);
    let efficiency = |program: &Program<'_>| program.served(way)?.efficiency;
    let of_set: Vec<f64> = match set {
        "common" => {
            let common = programs.served_by_all(&recorded);
            common.into_iter().filter_map(efficiency).collect()
        }
        "pools" => {
            let pools = recorded.into_iter().filter(|it| it.group == Group::Pools);
            pools.filter_map(efficiency).collect()
        }
        "recorded" => recorded.into_iter().filter_map(efficiency).collect(),
        "kept" => {
            let pools = programs.all.iter().filter(|it| it.group == Group::Pools);
            pools
                .filter_map(|program| kept_share(program, way))
                .collect()
        }
        _ => return None,
    };
    let shares = Pair::of(&of_set)?;
    Some(match name {
        "mean" => percent(shares.mean),
        "worst" => percent(shares.worst),
        _ => of_set.len().to_string(),
    })
}

/// A line for `quilt` and for each of its mechanisms that is off: all recorded programs above 1 GiB.
pub(super) fn ablation(rows: &[Row]) -> String {
    let programs = Programs::ablated(rows);
    let recorded = programs.large(|group| group != Group::Preset);
    let mut table = Table::of(["policy"], FIGURES.map(|(name, _)| name));
    for way in programs.ways.iter().filter(|way| way.starts_with("quilt")) {
        table.row(
            [way.clone()]
                .into_iter()
                .chain(texts(&Figures::of(way, &recorded))),
        );
    }
    table.markdown()
}

/// A line for each group and policy.
pub(super) fn groups(rows: &[Row]) -> String {
    let programs = Programs::of(rows);
    let headings = ["serves"].into_iter().chain(FIGURES.map(|(name, _)| name));
    let mut table = Table::of(["programs", "policy"], headings);
    for group in Group::ALL {
        let of_group = programs.large(|other| other == group);
        let ways = programs.ways.iter().filter(|_| !of_group.is_empty());
        for (number, way) in ways.enumerate() {
            let figures = Figures::of(way, &of_group);
            let served = format!("{}/{}", figures.served, of_group.len());
            let cells = [group.title_at(number).to_owned(), marked(way), served];
            table.row(cells.into_iter().chain(texts(&figures)));
        }
    }
    table.markdown()
}

/// Peak requested / peak reserved.
pub(super) fn efficiency(rows: &[Row], measured: &Measured) -> String {
    let on_gpu = |program: &Program<'_>| measured.efficiency(program.name, program.requested);
    each(rows, Some(&on_gpu), |program, way| {
        program.roomy(way, |row| row.efficiency.map(percent))
    })
}

/// Peak requested / minimum device memory.
pub(super) fn on_least(rows: &[Row]) -> String {
    each(rows, None, |program, way| {
        program.least(way, |row| Some(percent(figures::on_least(row))))
    })
}

/// Driver calls per thousand allocations in the second half.
pub(super) fn late_calls(rows: &[Row]) -> String {
    each(rows, None, |program, way| {
        let calls = |row: &Row| row.late_calls_per_1000.map(|calls| format!("{calls:.1}"));
        program.roomy(way, calls)
    })
}

/// Driver calls in each step of the second half, or the first step after which there are none.
pub(super) fn steps(rows: &[Row]) -> String {
    let calls = |row: &Row| match (row.late_calls_per_step?, row.quiet_from_step) {
        (0.0, Some(step)) => Some(format!("0 (from {step})")),
        (calls, _) => Some(format!("{calls:.1}")),
    };
    each(rows, None, |program, way| program.roomy(way, calls))
}

/// Modelled driver time in milliseconds.
pub(super) fn driver_time(rows: &[Row]) -> String {
    let ms = |row: &Row| Some(format!("{:.1}", row.driver_time_ns as f64 / 1e6));
    each(rows, None, |program, way| program.roomy(way, ms))
}

/// The share of a program in what was measured on a GPU.
type OnGpu<'a> = &'a dyn Fn(&Program<'_>) -> Option<f64>;

/// A line for each program, a column for each policy: a figure, or a word that says why there is none.
fn each(
    rows: &[Row],
    on_gpu: Option<OnGpu<'_>>,
    cell: impl Fn(&Program<'_>, &str) -> String,
) -> String {
    let programs = Programs::of(rows);
    let has_any = |way: &&String| programs.all.iter().any(|it| !cell(it, way).is_empty());
    let ways: Vec<&String> = programs.ways.iter().filter(has_any).collect();
    let mut headings = vec!["requested, GiB".to_owned()];
    headings.extend(ways.iter().map(|way| marked(way)));
    headings.extend(on_gpu.map(|_| "cudaMallocAsync on an H200".to_owned()));
    let mut table = Table::of(["programs", "program"], headings);
    for group in Group::ALL {
        let of_group = programs.all.iter().filter(|program| program.group == group);
        let has_cells = |it: &&Program<'_>| ways.iter().any(|way| !cell(it, way).is_empty());
        for (number, program) in of_group.filter(has_cells).enumerate() {
            let title = group.title_at(number).to_owned();
            let mut cells = vec![title, program.name.to_owned(), gib(program.requested)];
            cells.extend(ways.iter().map(|way| cell(program, way)));
            cells.extend(on_gpu.map(|share| share(program).map_or_else(String::new, percent)));
            table.row(cells);
        }
    }
    table.markdown()
}

fn gib(bytes: u64) -> String {
    format!("{:.2}", bytes as f64 / (1_u64 << 30) as f64)
}

/// The share of a program in the table `pools`.
fn kept_share(program: &Program<'_>, way: &str) -> Option<f64> {
    program.served(way).and_then(figures::of_what_must_be)
}

/// A line for each recorded program with private pools: how much of the reserved memory must be reserved, because it is
/// requested or a pool has to keep it. Only the ways that serve all of them.
pub(super) fn pools(rows: &[Row]) -> String {
    let programs = Programs::of(rows);
    let of_group = |program: &&Program<'_>| program.group == Group::Pools;
    let all: Vec<_> = programs.all.iter().filter(of_group).collect();
    let serves_all = |way: &&String| all.iter().all(|program| program.served(way).is_some());
    let ways: Vec<&String> = programs.ways.iter().filter(serves_all).collect();
    let sizes = ["requested, GiB", "with what pools keep, GiB"].map(str::to_owned);
    let headings = sizes.into_iter().chain(ways.iter().map(|way| marked(way)));
    let mut table = Table::of(["program"], headings);
    for program in &all {
        let [requested, kept] = [program.requested, program.with_pools].map(gib);
        let shares = ways
            .iter()
            .map(|way| kept_share(program, way).map_or_else(String::new, percent));
        table.row(
            [program.name.to_owned(), requested, kept]
                .into_iter()
                .chain(shares),
        );
    }
    let together = ways.iter().map(|way| {
        let shares: Vec<f64> = all
            .iter()
            .filter_map(|program| kept_share(program, way))
            .collect();
        pair(Pair::of(&shares))
    });
    let name = ["mean (worst)", "", ""].map(str::to_owned);
    table.row(name.into_iter().chain(together));
    table.markdown()
}
