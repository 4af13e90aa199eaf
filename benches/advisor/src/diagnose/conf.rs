//! Settings strings that differ in one key.

use coalesce_alloc::settings::written;

/// `conf` with `key` set to a value, or without it.
pub fn with(conf: &str, key: &str, value: Option<&str>) -> String {
    let others = written(conf).filter(|&(other, _)| !other.is_empty() && other != key);
    let mut settings: Vec<String> = others.map(|(_, setting)| setting.to_owned()).collect();
    settings.extend(value.map(|value| format!("{key}:{value}")));
    settings.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_key_changes() {
        let conf =
            "max_split_size_mb:64, roundup_power2_divisions:[256:1,>:2],expandable_segments:True";
        assert_eq!(
            with(conf, "roundup_power2_divisions", None),
            "max_split_size_mb:64,expandable_segments:True"
        );
        assert_eq!(
            with(conf, "max_split_size_mb", Some("128")),
            " roundup_power2_divisions:[256:1,>:2],expandable_segments:True,max_split_size_mb:128"
        );
        assert_eq!(
            with("", "expandable_segments", Some("True")),
            "expandable_segments:True"
        );
        assert_eq!(
            with("expandable_segments:True", "expandable_segments", None),
            ""
        );
    }
}
