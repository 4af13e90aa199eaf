//! Advice as a page of text, or as an HTML page to explore.

pub mod html;
pub mod job;
pub mod text;
