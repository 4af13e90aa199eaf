//! Call stacks as text, each frame once.

use std::collections::HashMap;

use coalesce_workloads::formats::snapshot::Recording;
use serde::Serialize;

/// All stacks of a recording.
#[derive(Default, Serialize)]
pub struct Frames {
    /// The frames: `FILE:LINE FUNCTION`.
    names: Vec<String>,
    /// The frames of each stack, innermost first, as indices of `names`.
    stacks: Vec<Vec<u32>>,
}

impl Frames {
    /// The stacks of a recording; none without one.
    #[must_use]
    pub fn of(recording: Option<&Recording>) -> Self {
        let mut frames = Self::default();
        let mut known: HashMap<String, u32> = HashMap::new();
        for stack in recording.map_or(&[][..], |recording| &recording.stacks) {
            let stack = stack
                .readable()
                .into_iter()
                .map(|name| {
                    let next = frames.names.len() as u32;
                    *known.entry(name).or_insert_with_key(|name| {
                        frames.names.push(name.clone());
                        next
                    })
                })
                .collect();
            frames.stacks.push(stack);
        }
        frames
    }
}
