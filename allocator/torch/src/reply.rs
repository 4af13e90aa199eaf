//! Replies to Python: JSON with a value or an error.

use serde::Serialize;
use serde_json::{Map, Value, json};

use coalesce_alloc::release::Release;
use coalesce_alloc::stats::DeviceStats;

use crate::failure::Failure;

/// `{"value": …}` or `{"error": "…"}`.
#[must_use]
pub fn reply(answer: Result<impl Serialize, Failure>) -> String {
    let answer = answer.and_then(|value| {
        let value = serde_json::to_value(value);
        value.map_err(|error| Failure::new(error.to_string()))
    });
    match answer {
        Ok(value) => json!({ "value": value }),
        Err(failure) => json!({ "error": failure.message }),
    }
    .to_string()
}

/// Returns the dictionary of `torch.cuda.memory_stats()` in a release, with the keys in PyTorch's order.
#[must_use]
pub fn memory_stats(stats: &DeviceStats, release: Release) -> Map<String, Value> {
    let flat = stats.flatten(release).into_iter();
    flat.map(|(key, value)| (key, Value::from(value))).collect()
}

#[cfg(test)]
mod tests {
    use coalesce_alloc::release::v2;

    use super::*;

    #[test]
    fn a_reply_is_a_value_or_an_error() {
        assert_eq!(reply(Ok([1, 2])), r#"{"value":[1,2]}"#);
        let failure = Failure::new("no \"such\" device");
        assert_eq!(
            reply(Err::<(), _>(failure)),
            r#"{"error":"no \"such\" device"}"#
        );
        let stats = reply(Ok(memory_stats(&DeviceStats::default(), v2(12))));
        assert!(stats.starts_with(r#"{"value":{"active.all.allocated":0,"active.all.current":0,"#));
        assert!(stats.contains(r#""num_oom_rejections":0"#));
    }
}
