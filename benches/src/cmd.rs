//! The verbs of the program, one a file.

pub mod replay;
pub mod report;
pub mod script;
