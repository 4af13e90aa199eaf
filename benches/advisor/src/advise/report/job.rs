//! The advice for a job as text.

use coalesce_bench::measure::capacity::ROOMY;
use coalesce_bench::text::{Column, Table, Unit};

use super::text::{command, known, paragraphs};
use crate::advise::job::JobAdvice;

/// The page: the answer for all ranks, then what each rank needs.
#[must_use]
pub fn page(job: &JobAdvice) -> String {
    let mut text = paragraphs(job.sentences.iter().cloned());
    if job.command.is_some() {
        text.push_str(&format!("\n{}", command(job.command.as_deref())));
    }
    let all = job.needs.iter().filter_map(|rank| rank.current_bytes);
    let unit = Unit::of(all.max().unwrap_or(0));
    let mut table = Table::new([
        Column::right("holds now"),
        Column::right("then"),
        Column::right("needs now"),
        Column::right("then"),
        Column::right("available"),
        Column::left("rank"),
        Column::left("confidence"),
    ]);
    for (rank, advice) in job.needs.iter().zip(&job.ranks) {
        table.row([
            known(rank.holds_bytes, unit),
            known(rank.holds_then_bytes, unit),
            known(rank.current_bytes, unit),
            known(rank.then_bytes, unit),
            match rank.available_bytes {
                ROOMY => "no limit".to_owned(),
                bytes => unit.amount(bytes),
            },
            rank.rank.clone(),
            advice.answer.confidence.level.name().to_owned(),
        ]);
    }
    format!(
        "{text}\n{}{}",
        table.text(),
        paragraphs([
            "holds: the peak of reserved memory, unknown where the rank does not complete. needs: the least memory with which \
             the rank completes."
                .to_owned()
        ])
    )
}
