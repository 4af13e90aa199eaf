//! `coalesce workloads` and `coalesce policies`.

use crate::coalesce;

#[test]
fn families_presets_and_policies_are_listed_with_a_description() {
    let text = coalesce(&["workloads"], "", &[]).success();
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
            "no description: {line}"
        );
    }
    let text = coalesce(&["workloads", "fragmentation"], "", &[]).success();
    assert!(text.contains("rounds = "), "{text}");
    let text = coalesce(&["workloads", "fragmentation_article"], "", &[]).success();
    assert!(text.contains("family = \"fragmentation\""), "{text}");
    let text = coalesce(&["policies"], "", &[]).success();
    assert!(
        text.contains("pytorch") && text.contains("2.6 to 2.15"),
        "{text}"
    );
}

#[test]
fn an_unknown_name_is_answered_with_the_nearest() {
    coalesce(&["workloads", "fragmentation_artcle"], "", &[])
        .failure(1, &["did you mean 'fragmentation_article'"]);
}

#[test]
fn lists_are_printed_as_json() {
    let json = |arguments: &[&str]| -> serde_json::Value {
        serde_json::from_str(&coalesce(arguments, "", &[]).success()).unwrap()
    };
    let policies = json(&["policies", "--json"]);
    assert_eq!(policies[0]["name"], "pytorch");
    let family = json(&["workloads", "fragmentation", "--json"]);
    assert_eq!(family["families"][0]["name"], "fragmentation");
    assert_eq!(family["presets"].as_array().unwrap().len(), 0);
    let preset = json(&["workloads", "fragmentation_article", "--json"]);
    assert_eq!(preset["presets"][0]["family"], "fragmentation");
    coalesce(&["workloads", "fragmentation_artcle", "--json"], "", &[])
        .failure(1, &["did you mean 'fragmentation_article'"]);
}
