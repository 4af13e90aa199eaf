//! First fit: buffers in a given order, each at the lowest offset that is free during its whole life.

use super::{Buffer, Placement};

/// First fit, the largest buffers first.
pub(super) fn by_size(buffers: &[Buffer]) -> Placement {
    let mut order: Vec<usize> = (0..buffers.len()).collect();
    order.sort_by_key(|&index| std::cmp::Reverse(buffers[index].size));
    let mut offsets = vec![0; buffers.len()];
    let mut height = 0;
    let mut placed: Vec<usize> = Vec::new();
    for index in order {
        let buffer = buffers[index];
        let mut taken: Vec<(u64, u64)> = placed
            .iter()
            .filter(|&&other| buffer.lives_with(&buffers[other]))
            .map(|&other| (offsets[other], offsets[other] + buffers[other].size))
            .collect();
        taken.sort_unstable();
        let mut offset = 0;
        for (start, end) in taken {
            if start >= offset + buffer.size {
                break;
            }
            offset = end.max(offset);
        }
        if buffer.lives() {
            offsets[index] = offset;
            height = height.max(offset + buffer.size);
            placed.push(index);
        }
    }
    Placement {
        offsets,
        height,
        packer: "first fit by size",
    }
}
