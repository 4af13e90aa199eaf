//! Relations between buffers that do not depend on the placement.

use std::collections::HashMap;

use crate::placement::sections::Problem;

pub(super) struct Relations {
    /// The buffers that are live together with each buffer at some time.
    pub companions: Vec<Vec<u32>>,
    /// The buffers that are live in each section, never none.
    pub inhabitants: Vec<Vec<u32>>,
    /// For each buffer, the next lower one of the same size and span.
    pub elder_twins: Vec<Option<u32>>,
}

impl Relations {
    pub(super) fn new(problem: &Problem) -> Self {
        Self {
            companions: companions(problem),
            inhabitants: inhabitants(problem),
            elder_twins: elder_twins(problem),
        }
    }
}

fn companions(problem: &Problem) -> Vec<Vec<u32>> {
    let first = |buffer: usize| problem.spans[buffer].first;
    let mut by_first: Vec<usize> = (0..problem.len()).collect();
    by_first.sort_unstable_by_key(|&buffer| first(buffer));
    let mut companions = vec![Vec::new(); problem.len()];
    for (index, &buffer) in by_first.iter().enumerate() {
        let end = problem.spans[buffer].end;
        let later = by_first[index + 1..].iter();
        for &other in later.take_while(|&&other| first(other) < end) {
            companions[buffer].push(other as u32);
            companions[other].push(buffer as u32);
        }
    }
    companions
}

fn inhabitants(problem: &Problem) -> Vec<Vec<u32>> {
    let mut inhabitants = vec![Vec::new(); problem.sections()];
    for (buffer, span) in problem.spans.iter().enumerate() {
        for here in &mut inhabitants[span.sections()] {
            here.push(buffer as u32);
        }
    }
    inhabitants
}

fn elder_twins(problem: &Problem) -> Vec<Option<u32>> {
    let mut youngest = HashMap::new();
    let kinds = problem.spans.iter().zip(&problem.sizes);
    kinds
        .enumerate()
        .map(|(buffer, kind)| youngest.insert(kind, buffer as u32))
        .collect()
}
