//! Embeddings.

use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Parameter, Tensor};

const TAG: &str = "embedding_dense_backward";
/// The most indices that one kernel handles without sorting.
const UNSORTED: u64 = 3072;
/// Rows summed together.
const TOGETHER: u64 = 10;

impl Eager<'_> {
    /// Looks up a row of the table for each index.
    pub(crate) fn embedding(&self, indices: &Tensor, table: &Parameter) -> Tensor {
        let table = table.tensor();
        let mut record = self.record(&[table]);
        record.save(indices);
        let width = table.width();
        let rows = indices.elements();
        let output = self.alloc(rows * width, width, table.dtype(), "index_select");
        let (elements, dtype) = (table.elements(), table.dtype());
        record.finish(output, move |eager, _, _| {
            let of_table = || eager.alloc(elements, width, dtype, "zeros");
            vec![Some(if rows > UNSORTED {
                eager.sorted_sums(rows, elements / width.max(1), width, of_table)
            } else {
                of_table()
            })]
        })
    }

    /// Sorts the indices and sums the rows of each, first in parts, then the parts.
    fn sorted_sums(
        &self,
        indices: u64,
        table: u64,
        width: u64,
        of_table: impl FnOnce() -> Tensor,
    ) -> Tensor {
        let longs = |elements: u64| self.alloc(elements, 1, DType::Long, TAG);
        let distinct = indices.min(table);
        let sorted = [longs(indices), longs(indices)];
        let range = self.alloc(indices, 1, DType::Long, "arange");
        drop(self.alloc_bytes(16 * indices + indices / 4 + 16_895, TAG));
        drop(range);
        let of_table = of_table();
        let counts = [longs(indices), longs(1)];
        let counted = longs(indices);
        drop(self.alloc_bytes(1279, TAG));
        drop(counted);
        let segments = [longs(distinct), longs(distinct)];
        drop(self.alloc_bytes(1279, TAG));
        let number = longs(1);
        let parts = distinct + indices / TOGETHER;
        let offsets = longs(parts);
        drop(self.alloc(parts * width, width, DType::Single, TAG));
        drop((offsets, number, segments, counts, sorted));
        of_table
    }
}
