//! Gathering and scattering of rows.

use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Tensor};

impl Eager<'_> {
    /// The largest elements of each row, and their positions.
    pub(crate) fn top_k(&self, x: &Tensor, count: u64) -> (Tensor, Tensor) {
        let mut record = self.record(&[x]);
        let elements = x.rows() * count;
        let values = self.alloc(elements, count, x.dtype(), "topk");
        let positions = self.alloc(elements, count, DType::Long, "topk");
        record.save(&positions);
        (record.finish_as_input(values, "zeros"), positions)
    }

    /// The positions of nonzero elements, as two coordinates.
    pub(crate) fn nonzero(&self, elements: u64, found: u64) -> [Tensor; 2] {
        let longs = |elements: u64, tag: &str| self.alloc(elements, 1, DType::Long, tag);
        let list = longs(elements, "clone");
        let count = self.alloc_bytes(4, "nonzero");
        drop(self.alloc_bytes(5631, "nonzero"));
        drop(self.alloc_bytes(1023, "nonzero"));
        drop(count);
        drop(list);
        [(); 2].map(|()| longs(found, "empty"))
    }

    /// Gathers the elements at positions given by one or more coordinates.
    pub(crate) fn index(&self, x: &Tensor, shape: (u64, u64), positions: &[&Tensor]) -> Tensor {
        let mut record = self.record(&[x]);
        for coordinate in positions {
            record.save(coordinate);
        }
        let output = self.alloc(shape.0, shape.1, x.dtype(), "index").as_matrix();
        record.finish(output, |eager, gradient, call| {
            let of_x = call.alloc(eager, 0, gradient, "new_zeros");
            eager.sort_positions(call.saved);
            vec![Some(of_x.as_view())]
        })
    }

    /// Allocates scratch to accumulate at repeated positions.
    fn sort_positions(&self, coordinates: &[Tensor]) {
        const TAG: &str = "_index_put_impl_";
        let Some(first) = coordinates.first() else {
            return;
        };
        let new = |tag: &str| self.alloc_like(first, tag);
        let wrapped = || {
            let remainder = new("remainder");
            let scaled = new("mul");
            drop(remainder);
            scaled
        };
        let linear = wrapped();
        for _ in coordinates.iter().skip(1) {
            drop(wrapped());
        }
        let sorted = [new(TAG), new(TAG)];
        let range = new("arange");
        drop(self.alloc_bytes(1, TAG));
        drop(range);
        sorted.into_iter().rev().for_each(drop);
        drop(linear);
    }

    /// Adds rows at positions, in place.
    pub(crate) fn index_add(&self, to: Tensor, positions: &Tensor, rows: &Tensor) -> Tensor {
        let mut record = self.record(&[&to, rows]);
        record.save(positions);
        record.save_for(1, rows);
        record.finish(to.detached(), |eager, gradient, call| {
            let of_rows = call.wants[1].then(|| call.alloc(eager, 1, gradient, "index_select"));
            vec![call.wants[0].then(|| gradient.clone()), of_rows]
        })
    }
}
