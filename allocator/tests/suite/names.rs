//! What has a name can be found by it.

use std::fmt::Debug;

use coalesce_alloc::driver::calls::CallKind;
use coalesce_alloc::history::Action;
use coalesce_alloc::pytorch::decide_alike;
use coalesce_alloc::release::v2;
use coalesce_alloc::snapshot::BlockState;
use coalesce_alloc::stats::PoolKind;

fn are_found<T: Copy + PartialEq + Debug>(
    all: &[T],
    name: impl Fn(T) -> &'static str,
    named: impl Fn(&str) -> Option<T>,
) {
    for &one in all {
        assert_eq!(named(name(one)), Some(one));
    }
    assert_eq!(named(""), None);
}

#[test]
fn each_is_found_by_its_name() {
    are_found(&Action::ALL, Action::name, Action::named);
    are_found(&CallKind::ALL, CallKind::name, CallKind::named);
    are_found(&PoolKind::ALL, PoolKind::name, PoolKind::named);
    are_found(&BlockState::ALL, BlockState::name, BlockState::named);
}

/// Releases whose rules differ in messages and statistics alone place memory alike.
#[test]
fn releases_that_decide_alike() {
    for (one, other, alike) in [
        (6, 7, true),
        (7, 8, true),
        (11, 11, true),
        (10, 11, false),
        (11, 12, false),
        (13, 14, true),
        (14, 15, false),
    ] {
        assert_eq!(decide_alike(v2(one), v2(other)), alike, "2.{one} 2.{other}");
        assert_eq!(decide_alike(v2(other), v2(one)), alike);
    }
}
