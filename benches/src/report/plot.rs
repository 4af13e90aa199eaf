//! Plots, as SVG.
//!
//! Every plot has an opaque white background with a margin, so that its text is legible on light and dark pages. The
//! size of text is estimated, because the viewer chooses the font: labels get space for a wide font.

pub(crate) mod canvas;
pub mod driver_time;
#[cfg(test)]
mod edges;
pub mod efficiency;
pub(crate) mod frame;
pub mod releases;
pub(crate) mod shade;
pub mod speed;
pub mod timeline;
pub mod tradeoff;
pub mod waste;
