//! The settings to show, in order.

use std::collections::BTreeSet;

use coalesce_bench::measure::deadline::Deadline;

use super::advice::RankedSettings;
use super::preference;
use super::request::Aim;
use super::search::settings::CandidateSettings;
use super::search::{MinimumMemory, PRESENT, Search, TriedSettings};

/// Finds the minimum memory of the settings to show and returns their indices: the current settings, the
/// defaults, the best for each aim, the best of each kind alone, and those that findings evaluated.
pub(super) fn shown(search: &mut Search<'_>, aim: Aim, deadline: Deadline) -> BTreeSet<usize> {
    let mut shown = BTreeSet::from([PRESENT]);
    shown.extend(Aim::ALL.into_iter().filter_map(|aim| search.best(aim)));
    shown.extend(preference::of(search, aim));
    let mut show = |kind: &dyn Fn(&CandidateSettings) -> bool| {
        let best = search.best_where(aim, kind);
        // If none of the kind suits the aim, the one that reserves least is shown, or the one that needs least.
        shown.extend(
            best.or_else(|| search.best_where(Aim::Reserved, kind))
                .or_else(|| search.best_where(Aim::LeastCapacity, kind)),
        );
    };
    show(&|settings| settings.keys() == 0);
    for kind in CandidateSettings::KINDS {
        show(&|settings| settings.is_single() && kind(settings));
    }
    let tried = search.tried.iter().enumerate();
    let suggested = tried.filter(|(_, tried)| !tried.suggested_by.is_empty());
    shown.extend(suggested.map(|(index, _)| index));
    search.complete(&shown, deadline);
    // The minimum memory just found may change which settings are best.
    shown.extend(Aim::ALL.into_iter().filter_map(|aim| search.best(aim)));
    shown.extend(preference::of(search, aim));
    shown
}

/// The settings to show as rows: the current ones first, then by the aim.
pub(super) fn rank(
    search: &Search<'_>,
    shown: &BTreeSet<usize>,
    aim: Aim,
    advised: Option<usize>,
) -> Vec<RankedSettings> {
    let best_for = |index: usize| {
        let aims = Aim::ALL.into_iter();
        aims.filter(|&aim| search.best(aim) == Some(index))
            .collect()
    };
    let all: Vec<(usize, &TriedSettings)> = shown
        .iter()
        .filter_map(|&index| Some((index, search.tried.get(index)?)))
        .filter(|(index, tried)| *index == PRESENT || tried.error.is_none())
        .collect();
    let mut rows: Vec<(Option<u64>, RankedSettings)> = Vec::new();
    for &(index, tried) in &all {
        let row = RankedSettings {
            conf: tried.conf.clone(),
            is_present: index == PRESENT,
            is_advised: Some(index) == advised,
            best_for: best_for(index),
            on_front: !all.iter().any(|(_, other)| dominates(other, tried)),
            least_capacity_bytes: tried.minimum.known(),
            least_capacity_at_least_bytes: match tried.minimum {
                MinimumMemory::Exactly(bytes) | MinimumMemory::AtLeast(bytes) => bytes,
            },
            fails_above_bytes: tried.fails_above,
            peak_reserved_bytes: tried.with_room.peak_reserved_bytes,
            on_device: tried.on_device,
            suggested_by: tried.suggested_by.clone(),
            error: tried.error.clone(),
        };
        rows.push((tried.score(aim), row));
    }
    // Settings with an unknown score, or under which the program fails, come last.
    rows.sort_by_key(|(score, row)| {
        let last = score.is_none();
        (!row.is_present, last, *score, row.peak_reserved_bytes)
    });
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Whether one setting is better than another for some aim and worse for none.
fn dominates(one: &TriedSettings, other: &TriedSettings) -> bool {
    let scores = |tried: &TriedSettings| Aim::ALL.map(|aim| tried.score(aim).unwrap_or(u64::MAX));
    let (one, other) = (scores(one), scores(other));
    one != other && one.iter().zip(&other).all(|(one, other)| one <= other)
}
