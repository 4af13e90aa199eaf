//! What PyTorch's NCCL watchdogs see of events.
//!
//! From PyTorch 2.8 on, a collective keeps its tensors until the program waits for it, or until a thread that looks every
//! tenth of a second finds it complete. DistributedDataParallel does not wait, so this thread decides when its buckets are
//! freed. A program can make that a matter of its steps instead of time.

use std::cell::OnceCell;
use std::fs;

/// The name of the threads, as `c10d::ProcessGroupNCCL` sets it.
const NAME: &str = "pt_nccl_watchdg";

/// Which events are hidden from the watchdogs.
#[derive(Debug, Default)]
pub(crate) struct Watchdogs {
    /// The clock of the machine at the last call of [`show`](Self::show); `None` before the first.
    shown: Option<u64>,
}

impl Watchdogs {
    /// Shows the events that were recorded before now, and hides later ones.
    pub(crate) fn show(&mut self, now: u64) {
        self.shown = Some(now);
    }

    /// Whether an event that was recorded at a time looks incomplete to this thread.
    pub(crate) fn are_hidden(&self, recorded: u64) -> bool {
        self.shown.is_some_and(|shown| recorded > shown) && is_watchdog()
    }
}

fn is_watchdog() -> bool {
    thread_local! {
        static IS_WATCHDOG: OnceCell<bool> = const { OnceCell::new() };
    }
    let read =
        || fs::read_to_string("/proc/thread-self/comm").is_ok_and(|name| name.trim() == NAME);
    IS_WATCHDOG.with(|is| *is.get_or_init(read))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watchdog_sees_the_events_before_the_last_call() {
        let look = |watchdogs: &Watchdogs| {
            std::thread::scope(|scope| {
                let thread = std::thread::Builder::new().name(NAME.to_owned());
                let hidden = thread.spawn_scoped(scope, || watchdogs.are_hidden(5));
                hidden.map(std::thread::ScopedJoinHandle::join)
            })
        };
        let mut watchdogs = Watchdogs::default();
        let mut seen = Vec::new();
        for now in [0, 10, 20] {
            watchdogs.show(now);
            seen.push(!look(&watchdogs).expect("a thread").expect("no panic"));
        }
        assert_eq!(seen, [false, true, true]);
        assert!(!watchdogs.are_hidden(15), "this thread is no watchdog");
    }
}
