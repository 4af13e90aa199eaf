//! Settings strings that differ in one key.

/// `conf` with `key` set to a value, or without it.
pub fn with(conf: &str, key: &str, value: Option<&str>) -> String {
    let is_other = |item: &&str| {
        let name = item.split_once(':').map_or(*item, |(name, _)| name);
        !name.trim().is_empty() && name.trim() != key
    };
    let mut items: Vec<String> = items(conf)
        .into_iter()
        .filter(is_other)
        .map(str::to_owned)
        .collect();
    items.extend(value.map(|value| format!("{key}:{value}")));
    items.join(",")
}

/// The pairs of a string. A list in brackets has commas of its own.
fn items(conf: &str) -> Vec<&str> {
    let mut depth = 0_u32;
    let is_comma = move |c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    };
    conf.split(is_comma).collect()
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
