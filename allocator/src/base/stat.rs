//! A figure over time, as PyTorch counts it.

/// One figure over time.
///
/// Invariants between two resets: `current = allocated − freed` if the figure started at zero, and
/// `peak ≥ current`. Totals beyond 2^63 wrap around, as in PyTorch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stat {
    /// The current value.
    pub current: i64,
    /// The highest value since the last reset of peaks.
    pub peak: i64,
    /// The sum of all increases since the last reset of totals.
    pub allocated: i64,
    /// The sum of all decreases since the last reset of totals.
    pub freed: i64,
}

impl Stat {
    /// Adds `amount`.
    pub fn increase(&mut self, amount: u64) {
        let amount = amount.cast_signed();
        self.current = self.current.wrapping_add(amount);
        self.peak = self.peak.max(self.current);
        self.allocated = self.allocated.wrapping_add(amount);
    }

    /// Subtracts `amount`.
    pub fn decrease(&mut self, amount: u64) {
        let amount = amount.cast_signed();
        self.current = self.current.wrapping_sub(amount);
        self.freed = self.freed.wrapping_add(amount);
    }

    /// Sets the peak to the current value.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    /// Sets the totals to zero.
    pub fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }
}
