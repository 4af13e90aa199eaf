//! Tells the forward pass from the backward pass without stacks and marks. Between two steps of the optimizer,
//! the memory that is freed before the second step rises in the forward pass and falls in the backward pass.

use std::ops::Range;

use super::role::Role;
use crate::diagnose::log::{Allocation, Log};

/// The role of each allocation, given the optimizer's steps: [`Role::Rise`] and [`Role::Backward`] where the
/// memory rises and falls, [`Role::Optimizer`] within the steps, and [`Role::Unknown`] elsewhere.
pub(super) fn roles(log: &Log, updates: &[Range<u64>]) -> Vec<Role> {
    let mut roles = vec![Role::Unknown; log.allocations.len()];
    let mut fill = |events: Range<u64>, role: Role| {
        let indices = log.index_from(events.start)..log.index_from(events.end);
        if let Some(roles) = roles.get_mut(indices) {
            roles.fill(role);
        }
    };
    let mut start = 0;
    for update in updates {
        for hump in humps(log, start..update.start) {
            fill(hump.start..hump.top + 1, Role::Rise);
            fill(hump.top + 1..hump.end, Role::Backward);
        }
        fill(update.clone(), Role::Optimizer);
        start = update.end;
    }
    roles
}

/// Memory that rises and falls.
struct Hump {
    start: u64,
    /// The event with most memory.
    top: u64,
    end: u64,
}

/// The humps of the memory that is allocated and freed in these events.
fn humps(log: &Log, events: Range<u64>) -> Vec<Hump> {
    let is_transient = |a: &&Allocation| !a.failed && a.freed < events.end;
    let transient = log.born_in(&events).iter().filter(is_transient);
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for allocation in transient {
        let bytes = i64::try_from(allocation.bytes).unwrap_or(i64::MAX);
        changes.push((allocation.born, bytes));
        changes.push((allocation.freed, -bytes));
    }
    changes.sort_unstable();
    let levels: Vec<(u64, i64)> = changes
        .iter()
        .scan(0_i64, |level, &(event, change)| {
            *level = level.saturating_add(change);
            Some((event, *level))
        })
        .collect();
    let highest = levels.iter().map(|&(_, level)| level).max().unwrap_or(0);
    let mut humps = Vec::new();
    let mut rest = levels.as_slice();
    while let Some(&(start, _)) = rest.first() {
        // A hump ends where nearly all of it is freed.
        let mut top = (start, 0);
        let mut length = rest.len();
        for (at, &(event, level)) in rest.iter().enumerate() {
            if level > top.1 {
                top = (event, level);
            } else if level * 10 <= top.1 && top.1 * 2 >= highest {
                length = at + 1;
                break;
            }
        }
        let (hump, after) = rest.split_at(length);
        if top.1 * 2 >= highest {
            humps.push(Hump {
                start,
                top: top.0,
                end: hump.last().map_or(start, |&(event, _)| event),
            });
        }
        rest = after;
    }
    // What follows the last hump belongs to it: the last gradients, and small amounts.
    if let Some(last) = humps.last_mut() {
        last.end = events.end;
    }
    humps
}

#[cfg(test)]
mod tests;
