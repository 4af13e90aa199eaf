//! `coalesce workloads`: lists families and presets.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::bail;
use coalesce_workloads::catalog::{self, Unknown};
use coalesce_workloads::presets;
use schemars::JsonSchema;
use serde::Serialize;

use super::output::{print, print_json};

/// List workload families with their parameters, and presets.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  coalesce workloads fragmentation")]
pub struct Args {
    /// A family or a preset to describe.
    name: Option<String>,
    /// Print a JSON object, which `coalesce schema workloads` describes.
    #[arg(long)]
    json: bool,
}

/// Families and presets.
#[derive(JsonSchema, Serialize)]
pub struct Listed {
    families: Vec<ListedFamily>,
    presets: Vec<ListedPreset>,
}

/// A workload family.
#[derive(JsonSchema, Serialize)]
struct ListedFamily {
    name: &'static str,
    /// What its workloads do, in a line.
    summary: String,
    parameters: Vec<ListedParameter>,
}

/// A parameter of a family.
#[derive(JsonSchema, Serialize)]
struct ListedParameter {
    name: &'static str,
    /// The default value, written as in a sweep.
    default: String,
    /// Its meaning, in a line.
    doc: String,
}

/// A preset.
#[derive(JsonSchema, Serialize)]
struct ListedPreset {
    name: String,
    family: String,
    /// The property of allocators that it shows, in a line.
    shows: String,
    /// The parameters that differ from the defaults of the family, as TOML.
    parameters: String,
}

impl Listed {
    /// All families and presets, or those with a name.
    fn of(name: Option<&str>) -> anyhow::Result<Self> {
        let is_wanted = |known: &str| name.is_none_or(|name| name == known);
        let known = catalog::families().iter().filter(|one| is_wanted(one.name));
        let listed_families = known.map(|family| ListedFamily {
            name: family.name,
            summary: family.summary(),
            parameters: family.parameters().into_iter().map(listed).collect(),
        });
        let families: Vec<ListedFamily> = listed_families.collect();
        let known = match name {
            Some(_) if !families.is_empty() => Vec::new(),
            Some(name) => vec![found(name)?],
            None => presets::list()?,
        };
        let presets = known.into_iter().map(|preset| ListedPreset {
            name: preset.name,
            family: preset.family,
            shows: preset.shows,
            parameters: preset.parameters.to_string(),
        });
        Ok(Self {
            families,
            presets: presets.collect(),
        })
    }
}

fn listed(parameter: catalog::Parameter) -> ListedParameter {
    let catalog::Parameter { name, default, doc } = parameter;
    ListedParameter { name, default, doc }
}

fn found(name: &str) -> anyhow::Result<presets::Preset> {
    presets::find(name).or_else(|_| {
        let presets = presets::list()?.into_iter().map(|preset| preset.name);
        let families = catalog::families().iter().map(|one| one.name.to_owned());
        bail!(
            "no family or preset is called {}",
            Unknown::new(name, families.chain(presets))
        )
    })
}

pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    if args.json {
        print_json(&Listed::of(args.name.as_deref())?)?;
        return Ok(ExitCode::SUCCESS);
    }
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
    let preset = found(name)?;
    let mut text = format!(
        "{}: {}\n\nfamily = \"{}\"\n",
        preset.name, preset.shows, preset.family
    );
    text.push_str(&preset.parameters.to_string());
    Ok(text)
}
