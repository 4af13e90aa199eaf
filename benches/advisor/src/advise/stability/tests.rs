use super::*;

#[test]
fn the_spread_of_figures() {
    let spread = |ratios: &[f64]| Spread::of(ratios.to_vec()).map(|s| (s.min, s.median, s.max));
    assert_eq!(spread(&[]), None);
    assert_eq!(spread(&[3.0]), Some((3.0, 3.0, 3.0)));
    assert_eq!(spread(&[4.0, 1.0]), Some((1.0, 1.0, 4.0)));
    assert_eq!(spread(&[5.0, 1.0, 2.0, 4.0, 3.0]), Some((1.0, 3.0, 5.0)));
}

#[test]
fn the_noise_of_a_gain() {
    let gain = Gain::of(vec![8.0, 1.0, 4.0, 2.0, 5.0]).unwrap();
    assert_eq!((gain.min, gain.median, gain.max), (1.0, 4.0, 8.0));
    // Distances from 4: 4, 3, 0, 2, 1.
    assert_eq!(gain.noise, 2.0);
}

fn stability(better: u64, median: f64, noise: f64) -> Stability {
    let spread = |median| Spread {
        min: 1.0,
        median,
        max: 3.0,
    };
    let spreads = Spreads {
        least_capacity: spread(2.0),
        peak_reserved: spread(1.0),
    };
    let gain = |median| Gain {
        min: 0.0,
        median,
        max: 1.0,
        noise,
    };
    Stability {
        conf: String::new(),
        copies: 6,
        wanted: 8,
        present: spreads,
        other: spreads,
        needs_less: better,
        reserves_less: 6 - better,
        least_capacity_gain: gain(median),
        peak_reserved_gain: gain(0.5),
    }
}

#[test]
fn a_gain_is_confirmed_by_more_than_two_thirds() {
    let confirms =
        |better, median, noise| stability(better, median, noise).confirms(Aim::LeastCapacity);
    assert!(confirms(5, 0.02, 0.0) && !confirms(4, 0.02, 0.0));
    // 1 % of the current figure.
    assert!(!confirms(5, 0.019, 0.0));
    assert!(confirms(5, 0.1, 0.09) && !confirms(5, 0.1, 0.1));
    let few = stability(1, 0.0, 0.1);
    assert!(few.confirms(Aim::Reserved) && few.confirms(Aim::DriverTime));
    assert!(!few.confirms(Aim::LeastCapacity));
    let better = |aim| few.better(aim);
    assert_eq!(Aim::ALL.map(better), [Some(1), None, Some(5)]);
}

/// The amounts that are tried, and the minimum that is found.
fn search(guess: u64, minimum: u64) -> (Vec<u64>, u64) {
    let tried = std::cell::RefCell::new(Vec::new());
    let fits = |bytes: u64| {
        tried.borrow_mut().push(bytes);
        Ok(bytes >= minimum)
    };
    let mut bracket = Bracket::new(100 << 20, 900 << 20);
    narrow(&mut bracket, guess << 20, &fits).unwrap();
    let first = tried
        .borrow()
        .iter()
        .take(4)
        .map(|bytes| bytes >> 20)
        .collect();
    (first, bracket.suffices() >> 20)
}

/// Steps of a quarter of a percent that double.
#[test]
fn the_minimum_is_searched_near_a_guess() {
    assert_eq!(
        format!("{:?}", search(400, 404 << 20)),
        "([400, 401, 403, 407], 404)"
    );
    assert_eq!(
        format!("{:?}", search(400, 388 << 20)),
        "([400, 248, 324, 362], 388)"
    );
    assert_eq!(
        format!("{:?}", search(400, 800 << 20)),
        "([400, 401, 403, 407], 800)"
    );
    assert_eq!(
        format!("{:?}", search(50, 300 << 20)),
        "([498, 298, 398, 348], 300)"
    );
}
