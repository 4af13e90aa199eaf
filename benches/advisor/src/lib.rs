//! Finds the PyTorch allocator settings that suit a workload, and explains where its memory went.
//!
//! All parts replay a workload (a PyTorch memory snapshot, a trace or a generated workload) on a simulated
//! device. None needs a GPU.
//!
//! - [`diagnose`](diagnose()) replays the workload under its own settings and reports [`Finding`]s: known
//!   pitfalls of PyTorch's allocator and common mistakes of training and inference programs, each with
//!   figures and a remedy.
//! - [`advise`](advise()) replays it under many settings and returns [`Advice`]: the settings to use, what
//!   they cost, and how reliable that result is. [`report`] shows it as text or as an HTML page.
//! - [`Holders`] tells who holds memory at an event: by line of the program, category, stream and pool.
//! - [`View`](view::View) is a replay for viewers, such as the one for browsers.
//! - [`Difference`](difference::Difference) compares two workloads at their peaks.
//!
//! The command line offers them as `coalesce diagnose`, `coalesce advise` and `coalesce diff`.
// Text from outside is printed only where its control characters are taken out.
#![cfg_attr(not(test), warn(clippy::disallowed_macros, clippy::disallowed_methods))]

pub mod advise;
pub mod conditions;
pub mod diagnose;
pub mod difference;
pub mod holders;
#[cfg(test)]
mod invented;
pub mod phases;
pub mod present;
pub mod profile;
mod settings_string;
pub mod texts;
pub mod view;

pub use self::advise::{Advice, AdviceRequest, Aim, Goal, Opened, advise, one_for_all, report};
pub use self::diagnose::{Evidence, Finding, Subject, diagnose};
pub use self::holders::{Holder, Holders, Holdings};
