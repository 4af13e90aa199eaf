//! Settings strings, the values of `PYTORCH_CUDA_ALLOC_CONF`: changed in one key, and shown to people.

use coalesce_alloc::settings::written;

/// The settings string without some keys.
pub fn without(conf: &str, keys: &[&str]) -> String {
    let others = written(conf).filter(|(key, _)| !key.is_empty() && !keys.contains(key));
    let others: Vec<&str> = others.map(|(_, setting)| setting.trim()).collect();
    others.join(",")
}

/// The settings string with a key set to a value.
pub fn with(conf: &str, key: &str, value: &str) -> String {
    let setting = format!("{key}:{value}");
    match without(conf, &[key]) {
        others if others.is_empty() => setting,
        others => format!("{others},{setting}"),
    }
}

/// The settings in a table.
pub fn label(conf: &str) -> &str {
    match conf {
        "" => "(defaults)",
        conf => conf,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_changes() {
        let conf =
            "max_split_size_mb:64, roundup_power2_divisions:[256:1,>:2],expandable_segments:True";
        assert_eq!(
            without(conf, &["roundup_power2_divisions"]),
            "max_split_size_mb:64,expandable_segments:True"
        );
        assert_eq!(
            with(conf, "max_split_size_mb", "128"),
            "roundup_power2_divisions:[256:1,>:2],expandable_segments:True,max_split_size_mb:128"
        );
        let expandable = "expandable_segments:True";
        assert_eq!(with("", "expandable_segments", "True"), expandable);
        assert_eq!(without(expandable, &["expandable_segments"]), "");
    }
}
