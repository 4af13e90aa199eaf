//! Every packer, on random buffers.

use proptest::collection::vec;
use proptest::prelude::*;

use super::branch_and_bound::MOST_BUFFERS;
use super::order::Key;
use super::sections::Span;
use super::*;

/// Few times and sizes, so that many coincide.
fn buffers(most: usize) -> impl Strategy<Value = Vec<Buffer>> {
    let size = prop_oneof![1..=4_u64, 1..=40_u64, Just(1 << 40)];
    let buffer = (0..30_u64, 1..12_u64, size).prop_map(|(lower, lifetime, size)| Buffer {
        lower,
        upper: lower + lifetime,
        size,
    });
    vec(buffer, 1..most)
}

/// Instances without a placement at the lower bound, although all memory is live at all times. Found by
/// random search: they are rare with so few buffers.
#[rustfmt::skip]
const STUCK: [&[(u64, u64, u64)]; 6] = [
    &[(0, 1, 5), (0, 3, 1), (1, 2, 3), (1, 4, 2), (2, 5, 2), (2, 3, 1), (3, 4, 2), (4, 5, 4)],
    &[(0, 1, 6), (0, 4, 2), (1, 3, 2), (1, 5, 4), (3, 6, 1), (3, 4, 1), (4, 5, 3), (5, 6, 7)],
    &[(0, 3, 2), (0, 4, 4), (3, 6, 1), (3, 5, 1), (4, 6, 2), (4, 5, 2), (5, 7, 3), (6, 7, 3)],
    &[(0, 4, 6), (0, 2, 2), (2, 6, 1), (2, 5, 1), (4, 6, 5), (4, 5, 1), (5, 7, 2), (6, 7, 6)],
    &[(0, 3, 2), (0, 2, 4), (2, 4, 2), (2, 5, 1), (2, 6, 1), (3, 5, 1), (3, 4, 1), (4, 6, 3), (5, 6, 2)],
    &[(0, 4, 7), (0, 2, 3), (2, 5, 2), (2, 6, 1), (4, 6, 2), (4, 5, 2), (4, 6, 3), (5, 7, 4), (6, 7, 6)],
];

/// One of these with another buffer or a changed size.
fn nearly_stuck() -> impl Strategy<Value = Vec<Buffer>> {
    let stuck = (0..STUCK.len()).prop_map(|index| {
        let buffer = |&(lower, upper, size): &(u64, u64, u64)| Buffer { lower, upper, size };
        STUCK[index].iter().map(buffer).collect::<Vec<Buffer>>()
    });
    let change = (any::<prop::sample::Index>(), 0..3_u64);
    (stuck, buffers(2), any::<bool>(), change).prop_map(|(mut all, one, more, (index, size))| {
        let changed = index.index(all.len());
        all[changed].size = (all[changed].size + size).saturating_sub(1).max(1);
        if more && one[0].size < 1 << 40 {
            all.extend(one);
        }
        all
    })
}

/// 64 bytes over 64 units of time, cut into buffers without waste, so that a placement at the lower bound
/// exists.
fn cut_to_pieces() -> impl Strategy<Value = Vec<Buffer>> {
    let cut = (any::<prop::sample::Index>(), 0..3_u8, 1..64_u64, 1..64_u64);
    let pieces = vec(cut, 1..12).prop_map(|cuts| {
        // Time and memory, from and to.
        let mut pieces = vec![((0, 64), (0, 64))];
        for (which, how, time, memory) in cuts {
            let index = which.index(pieces.len());
            let ((t0, t1), (m0, m1)) = pieces[index];
            let (t, m) = (t0 + time % (t1 - t0), m0 + memory % (m1 - m0));
            let (t2, m2) = ((t + t1).div_ceil(2), (m + m1).div_ceil(2));
            let parts = match how {
                0 => vec![((t0, t), (m0, m1)), ((t, t1), (m0, m1))],
                1 => vec![((t0, t1), (m0, m)), ((t0, t1), (m, m1))],
                // A wheel: no straight cut divides it.
                _ => vec![
                    ((t0, t2), (m0, m)),
                    ((t2, t1), (m0, m2)),
                    ((t, t1), (m2, m1)),
                    ((t0, t), (m, m1)),
                    ((t, t2), (m, m2)),
                ],
            };
            if parts
                .iter()
                .all(|(time, memory)| time.0 < time.1 && memory.0 < memory.1)
            {
                pieces.splice(index..=index, parts);
            }
        }
        let buffer = |((lower, upper), (bottom, top))| Buffer {
            lower,
            upper,
            size: top - bottom,
        };
        pieces.into_iter().map(buffer).collect::<Vec<Buffer>>()
    });
    pieces.prop_shuffle()
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

/// Returns the height if the offsets are a valid placement.
fn height_if_valid(buffers: &[Buffer], offsets: &[u64]) -> Option<u64> {
    let end = |index: usize| offsets[index] + buffers[index].size;
    for a in 0..buffers.len() {
        for b in 0..a {
            let in_time = overlap(
                (buffers[a].lower, buffers[a].upper),
                (buffers[b].lower, buffers[b].upper),
            );
            if in_time && overlap((offsets[a], end(a)), (offsets[b], end(b))) {
                return None;
            }
        }
    }
    Some((0..buffers.len()).map(end).max().unwrap_or(0))
}

/// Returns the peak of live bytes.
fn most_live(buffers: &[Buffer]) -> u64 {
    let live = |moment: u64| {
        let here = buffers
            .iter()
            .filter(|b| (b.lower..b.upper).contains(&moment));
        here.map(|b| b.size).sum()
    };
    (0..50).map(live).max().unwrap_or(0)
}

/// Returns the lowest height, by first fit in all orders.
///
/// First fit in the order of a placement's offsets makes a placement that is no higher. Repeating this ends
/// with ascending offsets, so only such placements are tried.
fn lowest_height(buffers: &[Buffer]) -> u64 {
    let mut lowest = u64::MAX;
    try_all_orders(buffers, &mut Vec::new(), 0, &mut lowest);
    lowest
}

/// `placed`: buffers and their offsets.
fn try_all_orders(
    buffers: &[Buffer],
    placed: &mut Vec<(usize, u64)>,
    height: u64,
    lowest: &mut u64,
) {
    if height >= *lowest {
        return;
    }
    if placed.len() == buffers.len() {
        *lowest = height;
    }
    let last = placed.last().map_or(0, |&(_, offset)| offset);
    for next in 0..buffers.len() {
        if placed.iter().any(|&(other, _)| other == next) {
            continue;
        }
        let size = buffers[next].size;
        // `placed` is in ascending order of offsets.
        let below = placed
            .iter()
            .filter(|&&(other, _)| buffers[next].lives_with(&buffers[other]));
        let offset = below.fold(0, |offset, &(other, start)| {
            let fits = offset + size <= start;
            if fits {
                offset
            } else {
                offset.max(start + buffers[other].size)
            }
        });
        if offset >= last {
            placed.push((next, offset));
            try_all_orders(buffers, placed, height.max(offset + size), lowest);
            placed.pop();
        }
    }
}

/// Best fit with the height of each section in a list.
fn filled_from_the_bottom(problem: &Problem, mut order: Vec<usize>) -> Vec<u64> {
    let mut heights = vec![0; problem.sections()];
    let mut offsets = vec![0; problem.len()];
    while !order.is_empty() {
        let lowest = *heights.iter().min().unwrap();
        let first = heights.iter().position(|&height| height == lowest).unwrap();
        let after = heights[first..].iter().position(|&height| height > lowest);
        let end = after.map_or(heights.len(), |length| first + length);
        let stretch = Span { first, end };
        let within = |&buffer: &usize| problem.spans[buffer].is_within(stretch);
        if let Some(rank) = order.iter().position(within) {
            let buffer = order.remove(rank);
            offsets[buffer] = lowest;
            heights[problem.spans[buffer].sections()].fill(lowest + problem.sizes[buffer]);
        } else {
            let neighbours = [first.wrapping_sub(1), end];
            let neighbours = neighbours.iter().filter_map(|&at| heights.get(at));
            let raised = *neighbours.min().unwrap();
            heights[stretch.sections()].fill(raised);
        }
    }
    offsets
}

fn unlimited() -> Budget {
    Budget::new(Effort::Steps(u64::MAX))
}

proptest! {
    #[test]
    fn spans_meet_exactly_if_buffers_live_together(buffers in buffers(40)) {
        let problem = Problem::new(&buffers);
        for (a, span) in buffers.iter().zip(&problem.spans) {
            prop_assert!(span.first < span.end);
            for (b, other) in buffers.iter().zip(&problem.spans) {
                prop_assert_eq!(a.lives_with(b), span.meets(*other));
            }
        }
        prop_assert_eq!(problem.lower_bound(), most_live(&buffers));
        prop_assert_eq!(lower_bound(&buffers), most_live(&buffers));
    }

    #[test]
    fn packers_place_without_overlap(buffers in buffers(40)) {
        let problem = Problem::new(&buffers);
        let keys = [Key::Size, Key::Lifetime, Key::Area, Key::Pressure, Key::Start];
        for order in keys.map(|key| order::by(&problem, &[key])) {
            for offsets in [first_fit::place(&problem, &order), best_fit::place(&problem, &order)] {
                let height = height_if_valid(&buffers, &offsets);
                prop_assert_eq!(height, Some(problem.height(&offsets)));
            }
        }
        let height = u64::MAX >> 1;
        let mut all_valid = true;
        let mut heights = Vec::new();
        let mut found = |offsets: &[u64]| {
            all_valid &= height_if_valid(&buffers, offsets).is_some();
            heights.push(problem.height(offsets));
        };
        let mut budget = Budget::new(Effort::Steps(20_000));
        local_search::improve(&problem, height, 5, &mut budget, &mut found);
        branch_and_bound::improve(&problem, height, &mut budget, &mut found);
        prop_assert!(all_valid);
        prop_assert!(heights.iter().all(|&height| height >= problem.lower_bound()));
    }

    #[test]
    fn best_fit_fills_the_lowest_stretch_first(buffers in buffers(40)) {
        let problem = Problem::new(&buffers);
        for key in [Key::Size, Key::Lifetime, Key::Start] {
            let order = order::by(&problem, &[key]);
            let offsets = best_fit::place(&problem, &order);
            prop_assert_eq!(offsets, filled_from_the_bottom(&problem, order));
        }
    }

    #[test]
    fn first_fit_takes_the_lowest_free_offset(buffers in buffers(40)) {
        let problem = Problem::new(&buffers);
        let order: Vec<usize> = (0..buffers.len()).collect();
        let offsets = first_fit::place(&problem, &order);
        for index in order {
            let mut lower = offsets.clone();
            // Lower candidates: the bottom, and the top of another buffer.
            let ends = (0..index).map(|below| offsets[below] + buffers[below].size);
            for offset in ends.chain([0]).filter(|&offset| offset < offsets[index]) {
                lower[index] = offset;
                let earlier = &buffers[..=index];
                prop_assert_eq!(height_if_valid(earlier, &lower[..=index]), None);
            }
        }
    }

    #[test]
    fn buffers_of_one_size_reach_the_lower_bound(mut buffers in buffers(40), size in 1..100_u64) {
        for buffer in &mut buffers {
            buffer.size = size;
        }
        let problem = Problem::new(&buffers);
        let offsets = colouring::place(&problem).unwrap();
        prop_assert_eq!(height_if_valid(&buffers, &offsets), Some(problem.lower_bound()));
    }

    #[test]
    fn branch_and_bound_ends_at_the_lowest_height(
        buffers in prop_oneof![buffers(9), nearly_stuck()],
    ) {
        let problem = Problem::new(&buffers);
        let mut height = buffers.iter().map(|buffer| buffer.size).sum::<u64>() + 1;
        branch_and_bound::improve(&problem, height, &mut unlimited(), &mut |offsets| {
            height = problem.height(offsets);
        });
        prop_assert_eq!(height, lowest_height(&buffers));
    }

    #[test]
    fn branch_and_bound_finds_placements_without_waste(buffers in cut_to_pieces()) {
        let problem = Problem::new(&buffers);
        let mut height = 65;
        branch_and_bound::improve(&problem, height, &mut unlimited(), &mut |offsets| {
            height = problem.height(offsets);
        });
        prop_assert_eq!(height, 64);
    }

    #[test]
    fn the_check_agrees_with_a_naive_check(
        buffers in buffers(12),
        offsets in vec(0..60_u64, 12),
        height in 0..100_u64,
    ) {
        let offsets = offsets[..buffers.len()].to_vec();
        let placement = Placement { offsets, height, packer: "a test" };
        match placement.check(&buffers) {
            Ok(()) => {
                prop_assert_eq!(height_if_valid(&buffers, &placement.offsets), Some(height));
            }
            Err(Fault::Height { given, actual }) => {
                prop_assert_eq!(given, height);
                prop_assert_eq!(height_if_valid(&buffers, &placement.offsets), Some(actual));
            }
            Err(Fault::Overlap(a, b)) => {
                let two = [buffers[a], buffers[b]];
                let offsets = [placement.offsets[a], placement.offsets[b]];
                prop_assert_eq!(height_if_valid(&two, &offsets), None);
            }
            Err(Fault::Count { .. }) => prop_assert!(false),
        }
    }
}

/// All buffers are live at once, so the recursion has a call for each.
#[test]
fn the_stack_is_deep_enough() {
    let buffer = |index: u64| Buffer {
        lower: index,
        upper: 10_000 + index,
        size: index + 1,
    };
    let buffers: Vec<Buffer> = (0..MOST_BUFFERS as u64).map(buffer).collect();
    let problem = Problem::new(&buffers);
    let mut height = u64::MAX >> 1;
    branch_and_bound::improve(&problem, height, &mut unlimited(), &mut |offsets| {
        height = problem.height(offsets);
    });
    assert_eq!(height, problem.lower_bound());
}
