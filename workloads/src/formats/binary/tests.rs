use super::*;

#[test]
fn signs_are_in_the_lowest_bit() {
    for (number, expected) in [
        (0_i64, 0),
        (-1, 1),
        (1, 2),
        (i64::MAX, u64::MAX - 1),
        (i64::MIN, u64::MAX),
    ] {
        assert_eq!(signed(number.cast_unsigned()), expected);
        assert_eq!(unsigned(expected), number.cast_unsigned());
    }
}
