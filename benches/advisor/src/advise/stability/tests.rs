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

/// Eight perturbed runs, of which some need less, by a part of the demand that varies by `noise`.
pub(in crate::advise) fn perturbed(needs_less: u64, median: f64, noise: f64) -> Stability {
    let spread = Spread {
        min: 1.0,
        median: 1.1,
        max: 1.2,
    };
    let spreads = Spreads {
        least_capacity: spread,
        peak_reserved: spread,
    };
    let gain = Gain {
        min: 0.0,
        median,
        max: 0.2,
        noise,
    };
    Stability {
        conf: "expandable_segments:True".to_owned(),
        copies: 8,
        wanted: 8,
        present: spreads,
        other: spreads,
        needs_less,
        reserves_less: 0,
        least_capacity_gain: gain,
        peak_reserved_gain: gain,
    }
}

/// Six runs, which reserve less if they do not need less.
fn stability(better: u64, median: f64, noise: f64) -> Stability {
    let mut stability = perturbed(better, median, noise);
    (stability.copies, stability.reserves_less) = (6, 6 - better);
    stability.present.least_capacity.median = 2.0;
    stability.peak_reserved_gain.median = 0.5;
    stability
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
    let tried = tried.into_inner().into_iter().map(|bytes| bytes >> 20);
    (tried.take(4).collect(), bracket.suffices() >> 20)
}

/// Steps of a quarter of a percent that double.
#[test]
fn the_minimum_is_searched_near_a_guess() {
    for (guess, minimum, found) in [
        (400, 404, "([400, 401, 403, 407], 404)"),
        (400, 388, "([400, 248, 324, 362], 388)"),
        (400, 800, "([400, 401, 403, 407], 800)"),
        (50, 300, "([498, 298, 398, 348], 300)"),
    ] {
        assert_eq!(format!("{:?}", search(guess, minimum << 20)), found);
    }
}
