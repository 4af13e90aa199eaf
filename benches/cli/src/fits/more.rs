//! What would give a server a larger KV cache: each change is tried by running the server with it.

use std::fmt::Write;

use super::program::{Device, Program};
use super::server::{Change, Server, grouped};
use crate::output::notice;

/// Tokens of the smaller of the batches that are tried.
const FEWEST_BATCHED_TOKENS: u64 = 512;

/// What is tried: smaller batches, fewer CUDA graphs, none, and segments that grow.
fn settings(server: &Server) -> Vec<String> {
    let batch = server.found.batched_tokens.map(|tokens| tokens / 2);
    let batch = batch.filter(|&tokens| tokens >= FEWEST_BATCHED_TOKENS);
    let mut all: Vec<String> = batch
        .map(|tokens| format!("--max-num-batched-tokens {tokens}"))
        .into_iter()
        .collect();
    if server.graph_bytes.is_some_and(|bytes| bytes > 0) {
        all.push("--max-cudagraph-capture-size 64".to_owned());
        all.push("--enforce-eager".to_owned());
    }
    all.push("PYTORCH_ALLOC_CONF=expandable_segments:True".to_owned());
    all
}

/// Runs the server with each change. One that it refuses is left out. Nothing that was compiled before is used, as that takes
/// memory, too.
///
/// # Errors
/// If no temporary folder can be made.
pub fn changes(program: &Program, device: Device, server: &Server) -> anyhow::Result<Vec<Change>> {
    let mut changes = Vec::new();
    for setting in settings(server) {
        let changed = match setting.split_once('=') {
            Some((name, value)) => program.with_arguments(&[])?.with(name, value),
            None => program.with_arguments(&setting.split(' ').collect::<Vec<_>>())?,
        };
        match changed.run(device, None) {
            Ok(run) => {
                let ready = run.server.filter(|server| server.is_ready);
                let tokens = ready.and_then(|server| server.capacity).map(|it| it.tokens);
                changes.push(Change { setting, tokens });
            }
            Err(error) => notice(&format!("no answer with {setting}: {error:#}")),
        }
    }
    Ok(changes)
}

/// What the changes give, as text; nothing without any.
pub fn lines(server: &Server) -> String {
    let now = server.capacity.map_or(0, |it| it.tokens);
    let mut text = String::new();
    if !server.changes.is_empty() {
        text += "\nTokens of the KV cache with\n";
    }
    for Change { setting, tokens } in &server.changes {
        let _ = match tokens {
            None => writeln!(text, "  {setting:<46}  does not start"),
            Some(tokens) => {
                let percent = 100.0 * (*tokens as f64 - now as f64) / now.max(1) as f64;
                let change = if now == 0 {
                    String::new()
                } else {
                    format!("  {percent:+.1} %")
                };
                writeln!(text, "  {setting:<46}{:>12}{change}", grouped(*tokens))
            }
        };
    }
    text
}
