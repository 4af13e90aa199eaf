//! Memory layers: tensors of one size side by side.
//!
//! A layer is a stripe of the arena for tensors of one size, one at a time. Sizes are placed largest first.
//! Tensors first fill the gaps of existing layers, stacked on top of each other. The others get new layers
//! of their size on top, as few as interval colouring needs.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::skyline::Skyline;
use super::time::{FirstEnds, Life, Period, heap_order, rows};

/// Rounds that try out orders of tensors before they are placed.
const REHEARSALS: usize = 6;
/// Product of tensors and layers from which on no orders are tried. The original tries them even then and
/// takes hours.
const TOO_MANY: usize = 1 << 22;

/// A planned request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Tensor {
    /// Its index in the workload.
    pub(super) request: usize,
    /// Bytes in the arena.
    pub(super) bytes: u64,
    pub(super) life: Life,
}

/// A stripe of the arena.
#[derive(Clone, Debug)]
struct Layer {
    offset: u64,
    bytes: u64,
    /// The filled height over time.
    skyline: Skyline,
}

impl Layer {
    /// Whether the layer has room for one of the tensors of `bytes` with these first ends.
    fn has_room_for_any(&self, first_ends: &FirstEnds, bytes: u64) -> bool {
        let limit = self.bytes.checked_sub(bytes);
        limit.is_some_and(|limit| {
            let mut lows = self.skyline.lows(limit);
            lows.any(|low| first_ends.any_within(low))
        })
    }

    fn has_room_for(&self, tensor: &Tensor) -> bool {
        let Tensor { bytes, life, .. } = *tensor;
        self.skyline.floor(life, bytes, self.bytes).is_some()
    }

    /// Places a tensor on top of the layer's tensors during its life, if there is room. Returns its offset
    /// in the arena.
    fn fill(&mut self, tensor: &Tensor) -> Option<u64> {
        let floor = self.skyline.stack(tensor.life, tensor.bytes, self.bytes);
        floor.map(|floor| self.offset + floor)
    }
}

/// Layers on top of each other, and the tensors in them.
#[derive(Debug, Default)]
pub(super) struct Stack {
    layers: Vec<Layer>,
    /// Offset of each placed request.
    pub(super) offsets: BTreeMap<usize, u64>,
}

impl Stack {
    /// The end of the topmost layer.
    pub(super) fn height(&self) -> u64 {
        self.layers.last().map_or(0, |top| top.offset + top.bytes)
    }

    /// Adds a layer on top with tensors, each at an offset in the layer. Nothing is placed below `ground`
    /// later. As in the original, a tensor fills the layer from the event before its request until the
    /// event before its end.
    pub(super) fn push(&mut self, bytes: u64, ground: u64, mut tensors: Vec<(u64, Tensor)>) {
        let offset = self.height();
        let mut skyline = Skyline::flat(ground);
        tensors.sort_by_key(|(within, tensor)| within + tensor.bytes);
        for (within, tensor) in tensors {
            let Life { from, until } = tensor.life;
            let top = ground.max(within + tensor.bytes);
            skyline.set(from.saturating_sub(1), until - 1, top);
            self.offsets.insert(tensor.request, offset + within);
        }
        self.layers.push(Layer {
            offset,
            bytes,
            skyline,
        });
    }

    /// Places tensors, largest first.
    pub(super) fn place(&mut self, tensors: &[Tensor], period: Period) {
        let mut sizes: BTreeMap<Reverse<u64>, Vec<Tensor>> = BTreeMap::new();
        for &tensor in tensors {
            sizes.entry(Reverse(tensor.bytes)).or_default().push(tensor);
        }
        for (Reverse(bytes), alike) in sizes {
            let alike = heap_order(alike, |tensor| tensor.life.from);
            self.place_alike(bytes, &by_rows(&alike, period), period);
        }
    }

    /// Places tensors of one size.
    fn place_alike(&mut self, bytes: u64, tensors: &[Tensor], period: Period) {
        let order = self.rehearse(bytes, tensors);
        let mut left: Vec<Tensor> = order.into_iter().map(|index| tensors[index]).collect();
        let offsets = &mut self.offsets;
        for layer in &mut self.layers {
            if left.is_empty() {
                return;
            }
            left.retain(|tensor| match layer.fill(tensor) {
                Some(offset) => {
                    offsets.insert(tensor.request, offset);
                    false
                }
                None => true,
            });
        }
        left.sort_by_key(|tensor| tensor.life.from);
        let lives: Vec<Life> = left.iter().map(|tensor| tensor.life).collect();
        for row in rows(&lives, period) {
            let tensors = row.into_iter().map(|index| (0, left[index]));
            self.push(bytes, 0, tensors.collect());
        }
    }

    /// Returns the order in which tensors of one size are placed in the layers: first those that fit no
    /// layer when every layer is offered all tensors. As in the original, whose plans depend on it, the
    /// positions in the last order then serve as tensor numbers.
    fn rehearse(&self, bytes: u64, tensors: &[Tensor]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        if order.len() == 1 {
            return order;
        }
        let first_ends = FirstEnds::of(tensors.iter().map(|tensor| tensor.life));
        let has_room = |layer: &&Layer| layer.has_room_for_any(&first_ends, bytes);
        let open: Vec<&Layer> = self.layers.iter().filter(has_room).collect();
        if open.len().saturating_mul(tensors.len()) >= TOO_MANY {
            return order;
        }
        for _ in 0..REHEARSALS {
            let mut homeless = vec![true; order.len()];
            for layer in &open {
                // Only tensors without a place in any layer before can change the result.
                let is_candidate =
                    |&place: &usize| homeless[place] && layer.has_room_for(&tensors[order[place]]);
                let Some(last) = (0..order.len()).rfind(is_candidate) else {
                    continue;
                };
                let mut layer = Layer::clone(layer);
                for (&index, homeless) in order.iter().zip(&mut homeless[..=last]) {
                    *homeless &= layer.fill(&tensors[index]).is_none();
                }
            }
            let first = (0..order.len()).filter(|&index| homeless[index]);
            let last = order.iter().copied().filter(|&index| !homeless[index]);
            let next: Vec<usize> = first.chain(last).collect();
            if next == order {
                break;
            }
            order = next;
        }
        order
    }
}

/// Returns the tensors in the order of their rows, if each row had its own layer.
fn by_rows(tensors: &[Tensor], period: Period) -> Vec<Tensor> {
    let lives: Vec<Life> = tensors.iter().map(|tensor| tensor.life).collect();
    let indices = rows(&lives, period).into_iter().flatten();
    indices.map(|index| tensors[index]).collect()
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// The order after all rehearsals, each of all tensors in all layers.
    fn fully_rehearsed(stack: &Stack, tensors: &[Tensor]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..tensors.len()).collect();
        for _ in 0..REHEARSALS {
            let mut layers = stack.layers.clone();
            let mut homeless = vec![true; order.len()];
            for layer in &mut layers {
                for (&index, homeless) in order.iter().zip(&mut homeless) {
                    *homeless &= layer.fill(&tensors[index]).is_none();
                }
            }
            let first = (0..order.len()).filter(|&index| homeless[index]);
            let last = order.iter().copied().filter(|&index| !homeless[index]);
            order = first.chain(last).collect();
        }
        order
    }

    proptest! {
        #[test]
        fn rehearsals_leave_out_only_what_changes_nothing(
            lives in vec((0..60_u64, 1..30_u64, 1..5_u64), 2..60),
        ) {
            let mut sizes: BTreeMap<Reverse<u64>, Vec<Tensor>> = BTreeMap::new();
            for (request, (from, length, units)) in lives.into_iter().enumerate() {
                let life = Life { from, until: from + length };
                let bytes = units * 512;
                sizes.entry(Reverse(bytes)).or_default().push(Tensor { request, bytes, life });
            }
            let mut stack = Stack::default();
            for (Reverse(bytes), alike) in sizes {
                prop_assert_eq!(stack.rehearse(bytes, &alike), fully_rehearsed(&stack, &alike));
                stack.place_alike(bytes, &alike, Period::default());
            }
        }
    }
}
