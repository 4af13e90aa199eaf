//! Sums, which need scratch if they are shared among blocks of threads.

use crate::families::eager::Eager;
use crate::families::eager::tensor::Tensor;

/// Multiprocessors of the device, and resident threads of each.
const PROCESSORS: u64 = 132;
const THREADS_A_PROCESSOR: u64 = 2048;
/// Threads of a warp and of a block.
const WARP: u64 = 32;
const BLOCK: u64 = 512;
/// Fewest and most values that one thread sums if others could help.
const LEAST_VALUES: u64 = 16;
const MOST_VALUES: u64 = 256;

/// Bytes of the partial sums and of the counters of finished blocks, for `columns` sums over `rows`.
/// `None` if no sum is shared among several blocks.
fn scratch_of_sums(rows: u64, columns: u64) -> Option<[u64; 2]> {
    // Columns per vectorised load.
    let vector = [4, 2, 1].into_iter().find(|v| columns.is_multiple_of(*v))?;
    let threads = BLOCK / vector;
    let fit = |wanted: u64| 1 << wanted.clamp(1, threads).ilog2();
    let (across, down) = (fit(columns / vector), fit(rows));
    let height = u64::min(down, threads / u64::min(across, WARP));
    let width = u64::min(across, threads / height);
    let values = rows.div_ceil(height);
    if rows < u64::min(height * LEAST_VALUES, MOST_VALUES) || values < MOST_VALUES {
        return None;
    }
    let grid = (columns / vector).div_ceil(width);
    let most_blocks = PROCESSORS * (THREADS_A_PROCESSOR / (width * height));
    if grid > most_blocks {
        return None;
    }
    let sharing = u64::min(most_blocks.div_ceil(grid), values.div_ceil(LEAST_VALUES))
        .max(values.div_ceil(MOST_VALUES));
    (sharing > 1).then(|| [4 * columns * sharing * width * vector, 4 * grid])
}

impl Eager<'_> {
    /// The sum of each column, without recording it.
    pub(crate) fn column_sums(&self, x: &Tensor, columns: u64) -> Tensor {
        let sums = self.alloc(columns, columns, x.dtype(), "sum");
        let rows = x.elements() / columns.max(1);
        if let Some([partial, counters]) = scratch_of_sums(rows, columns) {
            let partial = self.alloc_bytes(partial, "sum");
            drop(self.alloc_bytes(counters, "sum"));
            drop(partial);
        }
        sums
    }

    /// The sum of each row.
    pub(crate) fn row_sums(&self, x: &Tensor) -> Tensor {
        let record = self.record(&[x]);
        let sums = self.alloc(x.rows(), 1, x.dtype(), "sum");
        let (elements, width) = (x.elements(), x.width());
        record.finish(sums, move |_, gradient, _| {
            // The gradient of a row is broadcast, as a view.
            vec![Some(gradient.part(elements, width))]
        })
    }

    /// Sums a gradient over its broadcast dimensions.
    pub(crate) fn sum_to(&self, x: &Tensor, elements: u64, width: u64) -> Tensor {
        if width == 1 {
            return self.alloc(elements, 1, x.dtype(), "sum");
        }
        self.column_sums(x, elements).reshaped(width)
    }
}

#[cfg(test)]
mod tests {
    use super::scratch_of_sums;

    /// Recorded rows, columns, partial sums and counters.
    #[test]
    fn scratch_matches_the_recordings() {
        for (rows, columns, partial, counters) in [
            (8192, 768, 50_331_648, 24),
            (8192, 3072, 138_412_032, 96),
            (8192, 2304, 139_198_464, 72),
            (16384, 768, 100_663_296, 24),
            (4096, 2048, 67_108_864, 64),
        ] {
            let scratch = scratch_of_sums(rows, columns);
            assert_eq!(scratch, Some([partial, counters]), "{rows} × {columns}");
        }
        assert_eq!(scratch_of_sums(32, 768), None);
        assert_eq!(scratch_of_sums(8, 1024 * 768), None);
    }
}
