//! `coalesce workloads` and `coalesce policies`.

use crate::coalesce;

#[test]
fn families_presets_and_policies_are_listed_with_what_they_are() {
    let text = coalesce(&["workloads"], "", &[]).well();
    for name in [
        "fragmentation ",
        "grad_accumulation ",
        "transformer_gpt2_small ",
    ] {
        let line = text
            .lines()
            .find(|line| line.trim_start().starts_with(name));
        let line = line.unwrap_or_else(|| panic!("no {name} in: {text}"));
        assert!(
            line.trim_start().len() > name.len() + 20,
            "it says what it is: {line}"
        );
    }
    let text = coalesce(&["workloads", "fragmentation"], "", &[]).well();
    assert!(text.contains("rounds = "), "{text}");
    let text = coalesce(&["workloads", "fragmentation_article"], "", &[]).well();
    assert!(text.contains("family = \"fragmentation\""), "{text}");
    let text = coalesce(&["policies"], "", &[]).well();
    assert!(text.contains("pytorch") && text.contains("2.11"), "{text}");
}

#[test]
fn a_name_that_is_not_there_is_answered_with_the_nearest() {
    coalesce(&["workloads", "fragmentation_artcle"], "", &[])
        .with_error(1, &["did you mean 'fragmentation_article'"]);
}
