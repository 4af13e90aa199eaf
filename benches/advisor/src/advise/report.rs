//! Advice as a page of text, or as an HTML page with charts.

mod chart;
pub mod html;
pub mod job;
mod map;
mod picture;
pub mod text;
