//! The verbs of the program, one a file.

pub mod script;
