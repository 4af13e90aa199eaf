//! Who holds memory, with the call stacks to expand.

use coalesce_bench::text::escape;

use super::findings::expandable;
use crate::advise::advice::Advice;
use crate::advise::report::text;

/// The holders, largest first.
pub(super) fn holders(advice: &Advice) -> String {
    let unit = text::unit(advice);
    let total = advice.holdings.total_bytes.max(1) as f64;
    let holders = advice.holdings.holders.iter().take(text::MOST_HOLDERS);
    let rows: String = holders
        .map(|holder| {
            let share = 100.0 * holder.bytes as f64 / total;
            let line = format!(
                "<b>{}</b> {} <span class=\"tag\">{}</span><i class=\"share\" \
                 style=\"width:{share:.1}%\"></i>",
                unit.amount(holder.bytes),
                escape(&holder.to_string()),
                holder.category.name()
            );
            expandable(&line, &holder.frames)
        })
        .collect();
    format!(
        "<h2>{}</h2><p>{}</p>{rows}",
        escape(&text::holders_title(advice)),
        escape(&text::categories(advice))
    )
}
