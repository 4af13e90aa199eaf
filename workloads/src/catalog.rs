//! The families by name, with their parameters.
//!
//! A family is a struct. Its fields are the parameters, its [`Default`] has their default values, and its
//! documentation is the text that [`families`] shows. To add a family, write the struct, implement
//! [`Workload`] for it, and add a line to `FAMILIES`.

mod error;

use documented::{Documented, DocumentedFields};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};

pub use self::error::{CatalogError, Unknown};
use crate::families::batch_probe::BatchProbe;
use crate::families::cnn::Cnn;
use crate::families::experiment::Experiment;
use crate::families::fragmentation::{
    Adversary, Churn, Comb, Fragmentation, Growth, Phases, Sawtooth, Survivors,
};
use crate::families::grad_accumulation::GradAccumulation;
use crate::families::in_turns::InTurns;
use crate::families::inference::Inference;
use crate::families::moe::Moe;
use crate::families::shared_gpu::SharedGpu;
use crate::families::streams::Streams;
use crate::families::transformer::Transformer;
use crate::op::{Answer, Op, Workload, WorkloadError};

static FAMILIES: &[Family] = &[
    Family::of::<Transformer>("transformer"),
    Family::of::<Moe>("moe"),
    Family::of::<Cnn>("cnn"),
    Family::of::<Inference>("inference"),
    Family::of::<Fragmentation>("fragmentation"),
    Family::of::<Comb>("comb"),
    Family::of::<Growth>("growth"),
    Family::of::<Sawtooth>("sawtooth"),
    Family::of::<Phases>("phases"),
    Family::of::<Survivors>("survivors"),
    Family::of::<Churn>("churn"),
    Family::of::<Adversary>("adversary"),
    Family::of::<GradAccumulation>("grad_accumulation"),
    Family::of::<Streams>("streams"),
    Family::of::<SharedGpu>("shared_gpu"),
    Family::of::<InTurns>("in_turns"),
    Family::of::<BatchProbe>("batch_probe"),
    Family::of::<Experiment>("experiment"),
];

/// The field that is not a parameter: the name of a workload in results. Every family has it.
const NAME: &str = "name";

/// The default of an optional parameter, as [`Parameter::default`] shows it.
pub const NOT_GIVEN: &str = "none";

/// A parameterised kind of workload.
pub struct Family {
    /// The name by which presets and commands refer to it.
    pub name: &'static str,
    docs: &'static str,
    fields: &'static [&'static str],
    field_docs: &'static [&'static str],
    defaults: fn() -> Result<Table, toml::ser::Error>,
    read: fn(Table) -> Result<Box<dyn Workload>, toml::de::Error>,
}

/// A parameter of a family.
#[derive(Clone, PartialEq, Debug)]
pub struct Parameter {
    /// The key in TOML.
    pub name: &'static str,
    /// Its default value, as in TOML.
    pub default: String,
    /// Its meaning, in a line.
    pub doc: String,
}

/// All families, in display order.
#[must_use]
pub fn families() -> &'static [Family] {
    FAMILIES
}

/// The family called `name`.
///
/// # Errors
/// If no family has this name.
pub fn family(name: &str) -> Result<&'static Family, CatalogError> {
    let found = FAMILIES.iter().find(|family| family.name == name);
    let names = || FAMILIES.iter().map(|family| family.name);
    found.ok_or_else(|| CatalogError::Family(Unknown::new(name, names())))
}

/// A workload of a family, called `name` in results. Missing parameters have their default values.
///
/// # Errors
/// If the family or a parameter does not exist, or a value is invalid.
pub fn build(
    name: &str,
    family: &str,
    parameters: Table,
) -> Result<Box<dyn Workload>, CatalogError> {
    self::family(family)?.build(name, parameters)
}

impl Family {
    /// The family of type `F`, whose documentation begins with a summary of one paragraph.
    const fn of<F>(name: &'static str) -> Self
    where
        F: Workload
            + Default
            + Serialize
            + DeserializeOwned
            + Documented
            + DocumentedFields
            + 'static,
    {
        Self {
            name,
            docs: F::DOCS,
            fields: F::FIELD_NAMES,
            field_docs: F::FIELD_DOCS,
            defaults: || Table::try_from(F::default()),
            read: |parameters| Ok(Box::new(parameters.try_into::<F>()?)),
        }
    }

    /// Its summary, in a line.
    #[must_use]
    pub fn summary(&self) -> String {
        first_paragraph(self.docs)
    }

    /// Its parameters.
    #[must_use]
    pub fn parameters(&self) -> Vec<Parameter> {
        let defaults = (self.defaults)().unwrap_or_default();
        let documented = self.fields.iter().zip(self.field_docs);
        let parameters = documented.filter(|(field, _)| **field != NAME);
        parameters
            .map(|(name, docs)| Parameter {
                name,
                default: defaults
                    .get(*name)
                    .map_or_else(|| NOT_GIVEN.to_owned(), Value::to_string),
                doc: first_paragraph(docs),
            })
            .collect()
    }

    /// A workload with these parameters, called `name`.
    fn build(&self, name: &str, mut parameters: Table) -> Result<Box<dyn Workload>, CatalogError> {
        for (parameter, value) in &parameters {
            self.check(parameter, value)?;
        }
        parameters.insert(NAME.to_owned(), Value::String(name.to_owned()));
        let workload = (self.read)(parameters)
            .map_err(|error| self.wrong_type("parameters", error.message()))?;
        // A family validates its parameters before it sends its first operation.
        let unwanted = || WorkloadError::Stopped(String::new());
        let first = workload.emit(&mut |_: Op<'_>| -> Result<Answer, _> { Err(unwanted()) });
        match first {
            Ok(()) | Err(WorkloadError::Stopped(_)) => Ok(workload),
            Err(error) => Err(error.into()),
        }
    }

    /// Fails if the parameter does not exist or has another type.
    fn check(&self, parameter: &str, value: &Value) -> Result<(), CatalogError> {
        let known = || self.fields.iter().filter(|field| **field != NAME);
        if !known().any(|field| *field == parameter) {
            return Err(CatalogError::Parameter {
                family: self.name,
                unknown: Unknown::new(parameter, known()),
            });
        }
        // All others have their defaults, so an error is about this one.
        let alone = Table::from_iter([(parameter.to_owned(), value.clone())]);
        match (self.read)(alone) {
            Ok(_) => Ok(()),
            Err(error) => Err(self.wrong_type(parameter, error.message())),
        }
    }

    fn wrong_type(&self, parameter: &str, reason: &str) -> CatalogError {
        CatalogError::WrongType {
            family: self.name,
            parameter: parameter.to_owned(),
            reason: reason.lines().collect::<Vec<_>>().join(" "),
        }
    }
}

/// The first paragraph of a text, as a line.
fn first_paragraph(docs: &str) -> String {
    let lines = docs.lines().map(str::trim);
    let paragraph = lines.take_while(|line| !line.is_empty());
    paragraph.collect::<Vec<_>>().join(" ")
}
