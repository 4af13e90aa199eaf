//! Who holds memory, with the call stacks to expand.

use coalesce_bench::text::{count, escape};

use super::findings::expandable;
use crate::advise::advice::Advice;
use crate::advise::report::text;

/// The holders, largest first.
pub(super) fn holders(advice: &Advice) -> String {
    let holdings = &advice.holdings;
    if holdings.total_bytes == 0 {
        return String::new();
    }
    let unit = text::unit(advice);
    let holders = holdings.holders.iter().take(text::MOST_HOLDERS);
    let mut rows: String = holders
        .map(|holder| {
            let share = 100.0 * holder.bytes as f64 / holdings.total_bytes as f64;
            let line = format!(
                "<b>{}</b> {} <span class=\"tag\">{}</span> <span class=\"faint\">{}</span>\
                 <i class=\"share\" style=\"width:{share:.1}%\"></i>",
                unit.amount(holder.bytes),
                escape(&holder.to_string()),
                holder.category.name(),
                count(holder.blocks, "block")
            );
            expandable(&line, &holder.frames)
        })
        .collect();
    if let Some((number, bytes)) = text::further_holders(advice) {
        let line = format!("<b>{}</b> {number} more", unit.amount(bytes));
        rows.push_str(&expandable(&line, &[]));
    }
    format!(
        "<h2>{}</h2><p>{}</p>{rows}",
        escape(&text::holders_title(advice)),
        escape(&text::categories(advice))
    )
}
