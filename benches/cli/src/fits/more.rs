//! What would give a server a larger KV cache: each change is tried by running the server with it.

use std::fmt::Write;

use coalesce_bench::text::grouped;

use super::program::{Device, Program};
use super::server::{Change, Server};
use crate::output::notice;

/// What is tried: smaller batches, fewer CUDA graphs, none, and segments that grow.
fn settings(server: &Server) -> Vec<String> {
    let mut all = Vec::new();
    if let Some(tokens) = server.found.batched_tokens {
        all.push(format!("--max-num-batched-tokens {}", tokens / 2));
    }
    if server.graph_bytes.is_some_and(|bytes| bytes > 0) {
        let fewer = ["--max-cudagraph-capture-size 64", "--enforce-eager"];
        all.extend(fewer.map(str::to_owned));
    }
    all.push("PYTORCH_ALLOC_CONF=expandable_segments:True".to_owned());
    all
}

/// Runs the server that a command starts with each change. One that it refuses is left out. Nothing that was compiled before is
/// used, as compiling takes memory, too.
///
/// # Errors
/// If no temporary folder can be made.
pub fn changes(command: &[String], device: Device, server: &Server) -> anyhow::Result<Vec<Change>> {
    let mut changes = Vec::new();
    for setting in settings(server) {
        let command = command.iter().cloned();
        let command: Vec<String> = if setting.contains('=') {
            let before = ["env".to_owned(), setting.clone()];
            before.into_iter().chain(command).collect()
        } else {
            let after = setting.split(' ').map(str::to_owned);
            command.chain(after).collect()
        };
        match Program::new(&command, None)?.run(device, None) {
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
                writeln!(
                    text,
                    "  {setting:<46}{:>12}{change}",
                    grouped(&tokens.to_string())
                )
            }
        };
    }
    text
}
