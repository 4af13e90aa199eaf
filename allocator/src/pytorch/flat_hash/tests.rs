//! The table is a map, and iterates in PyTorch's order.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

impl FlatKey for u64 {
    fn flat_hash(self) -> u64 {
        self
    }
}

proptest! {
    /// Compares with the standard library's map. The conformance runs with several streams check
    /// the order against PyTorch's binary.
    #[test]
    fn behaves_as_a_btree_map(ops in prop::collection::vec((any::<bool>(), 0_u64..300), 1..600)) {
        let mut map = FlatHashMap::default();
        let mut model = BTreeMap::new();
        for (i, (insert, key)) in ops.into_iter().enumerate() {
            if insert {
                map.insert(key, i);
                model.entry(key).or_insert(i);
            } else {
                map.remove(key);
                model.remove(&key);
            }
            prop_assert_eq!(map.get(key), model.get(&key).copied());
            prop_assert_eq!(map.is_empty(), model.is_empty());
        }
        let mut keys: Vec<u64> = map.keys().collect();
        keys.sort_unstable();
        prop_assert!(keys.iter().eq(model.keys()));
    }
}

#[test]
fn a_reset_table_behaves_like_a_new_one() {
    for is_emptied in [false, true] {
        let mut new = FlatHashMap::default();
        let mut reset = FlatHashMap::default();
        (0..100).for_each(|key: u64| reset.insert(key * 0x1000, ()));
        if is_emptied {
            (0..100).for_each(|key: u64| reset.remove(key * 0x1000));
        }
        reset.reset();
        assert!(reset.is_empty());
        for map in [&mut new, &mut reset] {
            (0..4).for_each(|key: u64| map.insert(key * 0x1000, ()));
        }
        let is_alike = reset.keys().eq(new.keys());
        assert!(is_alike, "the order differs from that of a new table");
    }
}

#[test]
fn a_cleared_table_is_empty_and_keeps_its_size() {
    let [mut cleared, mut emptied] = [FlatHashMap::default(), FlatHashMap::default()];
    for map in [&mut cleared, &mut emptied] {
        (0..100).for_each(|key: u64| map.insert(key * 0x1000, ()));
    }
    cleared.clear();
    (0..100).for_each(|key: u64| emptied.remove(key * 0x1000));
    assert!(cleared.is_empty());
    assert_eq!(cleared.get(0x1000), None);
    for map in [&mut cleared, &mut emptied] {
        (0..4).for_each(|key: u64| map.insert(key * 0x1000, ()));
    }
    assert!(cleared.keys().eq(emptied.keys()));
}

/// Keys whose hashes are the numbers from `first` on.
fn keys_with_hashes_from(first: u64) -> impl Iterator<Item = u64> {
    let inverse = inverse();
    (first..).map(move |hash| hash.wrapping_mul(inverse))
}

#[test]
fn keys_that_all_collide_do_not_exhaust_memory() {
    // In the first slot, and in the last one.
    for first in [1, u64::MAX - 1000] {
        let keys = || keys_with_hashes_from(first).take(500);
        let mut map = FlatHashMap::default();
        keys().for_each(|key| map.insert(key, key));
        assert!(keys().all(|key| map.get(key) == Some(key)));
        assert_eq!(map.keys().count(), 500);
        assert_eq!(map.buckets, HUGE);
        keys().for_each(|key| map.remove(key));
        assert!(map.is_empty());
    }
}

#[test]
fn a_huge_table_grows_if_a_64th_of_it_is_in_use() {
    let mut map = FlatHashMap::default();
    let mut keys = keys_with_hashes_from(1);
    keys.by_ref()
        .take(HUGE / 64)
        .for_each(|key| map.insert(key, ()));
    assert_eq!(map.buckets, HUGE);
    keys.take(1).for_each(|key| map.insert(key, ()));
    assert_eq!(map.buckets, 2 * HUGE);
}

/// An entry that is displaced in the last slots goes behind them.
#[test]
fn entries_behind_the_last_slot_are_found() {
    let mut map = FlatHashMap::default();
    // Of 16 slots, three entries belong into the last one, and two that come later into the one before.
    let last = keys_with_hashes_from(15 << 60).take(3);
    let before = keys_with_hashes_from(14 << 60).take(2);
    let keys: Vec<u64> = last.chain(before).collect();
    (1..4).for_each(|hash| map.insert(keys_with_hashes_from(hash << 60).next().unwrap(), 0));
    (0..).zip(&keys).for_each(|(at, &key)| map.insert(key, at));
    assert_eq!(map.buckets, 16);
    let found: Vec<_> = keys.iter().map(|&key| map.get(key)).collect();
    assert_eq!(found, [0, 1, 2, 3, 4].map(Some));
    let order: Vec<u64> = map.keys().skip(3).collect();
    assert_eq!(order, [3, 4, 1, 2, 0].map(|at| keys[at]));
    for key in keys {
        map.remove(key);
    }
    assert_eq!(map.keys().count(), 3);
}

#[test]
fn an_iteration_with_removals_visits_every_entry_once() {
    let mut map = FlatHashMap::default();
    (0..100).for_each(|key: u64| map.insert(key * 0x1000, ()));
    let mut seen = 0;
    let mut slot = 0;
    while let Some((at, _, ())) = map.at_or_after(slot) {
        seen += 1;
        map.remove_at(at);
        slot = at;
    }
    assert_eq!(seen, 100);
    assert!(map.is_empty());
}

/// The factor that undoes the multiplication of Fibonacci hashing.
fn inverse() -> u64 {
    (0..6).fold(FIBONACCI, |inverse, _| {
        let error = FIBONACCI.wrapping_mul(inverse);
        inverse.wrapping_mul(2_u64.wrapping_sub(error))
    })
}

/// splitmix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// A stream, or a key with 12 bits that decide the slot and are alike in many keys.
    fn key(&mut self, run: u64) -> u64 {
        if run.is_multiple_of(2) {
            return self.below(4 + 4 * run) << 12;
        }
        let parts = [8, 1 + run % 5, 1 + run].map(|end| self.below(end));
        let slot = parts[0] << 9 | parts[1] << 6 | parts[2];
        (slot << 52).wrapping_mul(inverse())
    }
}

/// The order after each of 400 insertions and removals is that of PyTorch's table.
/// `scripts/conformance/src/flat_hash_orders.cpp` printed the digests.
#[test]
fn the_order_is_pytorchs() {
    const PRIME: u64 = 0x100_0000_01b3;
    for (run, expected) in (0..).zip(ORDERS) {
        let mut random = Random(run);
        let mut set = FlatHashMap::default();
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        for _ in 0..400 {
            let inserts = random.below(8) < 5;
            let key = random.key(run);
            if inserts {
                set.insert(key, ())
            } else {
                set.remove(key)
            }
            let size = set.keys().count() as u64;
            for number in set.keys().chain([size]) {
                digest = (digest ^ number).wrapping_mul(PRIME);
            }
        }
        assert_eq!(digest, expected, "run {run}");
    }
}

#[rustfmt::skip]
const ORDERS: [u64; 32] = [
    0xa75a_b37f_8a80_5144, 0xc741_4feb_e373_6eff, 0x681c_7344_d188_fd1a, 0x18c3_b997_16ee_8e67,
    0x99f2_5d98_fd27_4af3, 0xb2ed_a201_2719_7ee4, 0xb7e7_c948_5544_a21e, 0xcd45_bb1e_d03d_4c99,
    0xb012_a4d7_4213_3bb7, 0x520d_f63d_6275_747d, 0x55f7_fd92_51b3_2616, 0x8880_42d8_0677_f234,
    0x996e_5bae_cf7f_de29, 0x472a_acbf_a1c2_f49e, 0x790f_fcba_4f0c_3423, 0x8830_d50e_b7d6_7f35,
    0x7b7f_b7f3_b6ba_276f, 0x8ff6_7585_3d03_94aa, 0xc763_05d4_aa87_dbbd, 0xa04d_07d1_b775_9a69,
    0x6c98_26c2_1200_4266, 0xc0cc_df0a_9a77_b6c2, 0xd865_2ed1_c40c_ce00, 0xab0f_7c38_0348_9411,
    0x0340_1d17_4911_c99c, 0x9d4c_1e00_231e_c0bf, 0x8865_5d33_ff03_b065, 0x3cea_1c29_90aa_aa2d,
    0x97e1_176b_7b40_57ef, 0xe056_fdcc_f7d6_ae44, 0xa1b6_626f_c455_ae50, 0x44d3_04aa_ce38_915a,
];
