//! Rows that are picked out, and put back.

use crate::families::eager::Eager;
use crate::families::eager::tensor::{DType, Tensor};

impl Eager<'_> {
    /// The largest numbers of each row, and where they are.
    pub(crate) fn top_k(&self, x: &Tensor, count: u64) -> (Tensor, Tensor) {
        let mut record = self.record(&[x]);
        let numbers = x.rows() * count;
        let values = self.alloc(numbers, count, x.dtype(), "topk");
        let places = self.alloc(numbers, count, DType::Long, "topk");
        record.save(&places);
        let (all, width) = (x.numbers(), x.width());
        let values = record.finish(values, move |eager, gradient, _| {
            vec![Some(eager.alloc(all, width, gradient.dtype(), "zeros"))]
        });
        (values, places)
    }

    /// Where the numbers of a list are that are not zero, in two coordinates.
    pub(crate) fn nonzero(&self, numbers: u64, found: u64) -> [Tensor; 2] {
        let longs = |numbers: u64, tag: &str| self.alloc(numbers, 1, DType::Long, tag);
        let list = longs(numbers, "clone");
        let count = self.alloc_bytes(4, "nonzero");
        drop(self.alloc_bytes(5631, "nonzero"));
        drop(self.alloc_bytes(1023, "nonzero"));
        drop(count);
        drop(list);
        [(); 2].map(|()| longs(found, "empty"))
    }

    /// What is at some places, which one or more coordinates say.
    pub(crate) fn index(&self, x: &Tensor, shape: (u64, u64), places: &[&Tensor]) -> Tensor {
        let mut record = self.record(&[x]);
        for coordinate in places {
            record.save(coordinate);
        }
        let output = self.alloc(shape.0, shape.1, x.dtype(), "index").as_matrix();
        let (all, width) = (x.numbers(), x.width());
        record.finish(output, move |eager, gradient, call| {
            let of_x = eager.alloc(all, width, gradient.dtype(), "new_zeros");
            eager.sort_places(call.saved);
            vec![Some(of_x.as_view())]
        })
    }

    /// Scratch for adding where a place may come more than once.
    fn sort_places(&self, coordinates: &[Tensor]) {
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

    /// Adds rows to those at some places, in place.
    pub(crate) fn index_add(&self, to: Tensor, places: &Tensor, rows: &Tensor) -> Tensor {
        let mut record = self.record(&[&to, rows]);
        record.save(places);
        record.save_for(1, rows);
        let (numbers, width) = (rows.numbers(), rows.width());
        record.finish(to.detached(), move |eager, gradient, call| {
            let of_rows = call.wants[1]
                .then(|| eager.alloc(numbers, width, gradient.dtype(), "index_select"));
            vec![call.wants[0].then(|| gradient.clone()), of_rows]
        })
    }
}
