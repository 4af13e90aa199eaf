//! `coalesce workloads`: lists families and presets.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context;
use coalesce_workloads::catalog;
use coalesce_workloads::presets;

use super::output::print;

/// List workload families with their parameters, and presets.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  coalesce workloads fragmentation")]
pub struct Args {
    /// A family or a preset to describe.
    name: Option<String>,
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let text = match &args.name {
        None => overview()?,
        Some(name) if catalog::family(name).is_ok() => family(catalog::family(name)?),
        Some(name) => preset(name)?,
    };
    print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn overview() -> anyhow::Result<String> {
    let mut text = String::from("Families\n");
    for family in catalog::families() {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "  {:32} {}", family.name, family.summary());
    }
    text.push_str("\nPresets\n");
    for preset in presets::list()? {
        let _ = writeln!(text, "  {:32} {}", preset.name, preset.shows);
    }
    text.push_str("\n`coalesce workloads NAME` describes a family or a preset.\n");
    Ok(text)
}

fn family(family: &catalog::Family) -> String {
    let mut text = format!("{}: {}\n\n", family.name, family.summary());
    for parameter in family.parameters() {
        let catalog::Parameter { name, default, doc } = parameter;
        let _ = writeln!(text, "{name} = {default}\n    {doc}");
    }
    text
}

fn preset(name: &str) -> anyhow::Result<String> {
    let preset = presets::find(name).with_context(|| {
        format!("'{name}' is not a family or a preset; `coalesce workloads` lists them")
    })?;
    let mut text = format!(
        "{}: {}\n\nfamily = \"{}\"\n",
        preset.name, preset.shows, preset.family
    );
    text.push_str(&preset.parameters.to_string());
    Ok(text)
}
