//! Every packer, on random buffers.

use proptest::collection::vec;
use proptest::prelude::*;

use super::order::Key;
use super::*;

/// Few moments and few sizes, so that there are many coincidences.
fn buffers(most: usize) -> impl Strategy<Value = Vec<Buffer>> {
    let size = prop_oneof![1..=4_u64, 1..=40_u64, Just(1 << 40)];
    let buffer = (0..30_u64, 1..12_u64, size).prop_map(|(lower, lifetime, size)| Buffer {
        lower,
        upper: lower + lifetime,
        size,
    });
    vec(buffer, 1..most)
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

/// Whether offsets are a placement, and its height.
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

/// The most that live at one moment.
fn most_live(buffers: &[Buffer]) -> u64 {
    let live = |moment: u64| {
        let here = buffers
            .iter()
            .filter(|b| (b.lower..b.upper).contains(&moment));
        here.map(|b| b.size).sum()
    };
    (0..50).map(live).max().unwrap_or(0)
}

proptest! {
    #[test]
    fn sections_say_who_lives_with_whom(buffers in buffers(40)) {
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
    fn whatever_places_places_without_overlap(buffers in buffers(40)) {
        let problem = Problem::new(&buffers);
        let keys = [Key::Size, Key::Lifetime, Key::Area, Key::Pressure, Key::Start];
        for order in keys.map(|key| order::by(&problem, &[key])) {
            for offsets in [first_fit::place(&problem, &order), best_fit::place(&problem, &order)] {
                let height = height_if_valid(&buffers, &offsets);
                prop_assert_eq!(height, Some(problem.height(&offsets)));
            }
        }
    }

    #[test]
    fn first_fit_takes_the_lowest_offset_that_is_free(buffers in buffers(40)) {
        let problem = Problem::new(&buffers);
        let order: Vec<usize> = (0..buffers.len()).collect();
        let offsets = first_fit::place(&problem, &order);
        for index in order {
            let mut lower = offsets.clone();
            // Where it could lie lower: at the bottom, or on top of another.
            let ends = (0..index).map(|below| offsets[below] + buffers[below].size);
            for offset in ends.chain([0]).filter(|&offset| offset < offsets[index]) {
                lower[index] = offset;
                let earlier = &buffers[..=index];
                prop_assert_eq!(height_if_valid(earlier, &lower[..=index]), None);
            }
        }
    }

    #[test]
    fn buffers_of_one_size_are_at_the_lower_bound(mut buffers in buffers(40), size in 1..100_u64) {
        for buffer in &mut buffers {
            buffer.size = size;
        }
        let problem = Problem::new(&buffers);
        let offsets = colouring::place(&problem).unwrap();
        prop_assert_eq!(height_if_valid(&buffers, &offsets), Some(problem.lower_bound()));
    }

    #[test]
    fn a_check_finds_what_two_loops_find(
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
            Err(Fault::Height { said, is }) => {
                prop_assert_eq!(said, height);
                prop_assert_eq!(height_if_valid(&buffers, &placement.offsets), Some(is));
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
