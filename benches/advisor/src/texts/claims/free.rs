//! Whether what is free or cached would have sufficed.

use super::super::wording::Figure;
use super::{Judge, Judgement, Situation, USUAL_BESIDE};

impl Judge<'_> {
    pub(super) fn driver_refused(&self) -> Option<Judgement> {
        let free = self.get(Figure::Free)?;
        let fits = self.request.fits_into(free);
        self.claim(fits, Situation::DriverRefused, || {
            format!(
                "The driver refused memory although {} of the device was free when the message was written, and {} was \
                 requested. No setting of the allocator is indicated. Look for another process that held memory at that moment, \
                 a limit of the process (PyTorch 2.1 to 2.4 do not state it) or the container, the size of a MIG instance, and \
                 errors of the driver (dmesg).",
                self.amount(free),
                self.requested()
            )
        })
    }

    pub(super) fn fragmentation(&self) -> Option<Judgement> {
        let cached = self.message.cached()?;
        let fits = self.request.fits_into(cached);
        self.claim(fits, Situation::Fragmentation, || {
            let together = match self.get(Figure::Free) {
                Some(free) => format!(
                    " If settings join all of it with what is free, up to {} is available for the request.",
                    self.amount(cached + free)
                ),
                None => String::new(),
            };
            format!(
                "The request failed because of fragmentation: PyTorch held {} that no tensor used, more than the {} that were \
                 requested, but in pieces that could not serve the request: each too small, or of another stream or \
                 pool.{together}",
                self.amount(cached),
                self.requested()
            )
        })
    }

    pub(super) fn just_enough(&self) -> Option<Judgement> {
        let (cached, free) = (self.message.cached()?, self.get(Figure::Free)?);
        let both = cached + free;
        let fits = self.request.fits_into(both);
        self.claim(fits, Situation::JustEnough, || {
            let missing = self.missing(self.request - free);
            let spare = both - self.request;
            let [cached, free, spare] = [cached, free, spare].map(|amount| self.amount(amount));
            format!(
                "The {cached} that PyTorch held unused and the {free} that were free would have sufficed for the request for {}, \
                 but only in one piece. Expandable segments can give that at best, with {spare} to spare; without them, \
                 {missing} must go.",
                self.requested()
            )
        })
    }

    /// All that is cached or free is less than the request, though the device has more.
    pub(super) fn not_enough(&self) -> Option<Judgement> {
        let (cached, free) = (self.message.cached()?, self.get(Figure::Free)?);
        let both = cached + free;
        if !self.request.exceeds(both) {
            return None;
        }
        let missing = self.request - both;
        let others = self.beside_bytes().unwrap_or_default();
        let (situation, reason) = if others.least >= USUAL_BESIDE.max(missing.most) {
            let [held, lacks] = [others, missing].map(|amount| self.amount(amount));
            let reason = format!(
                "Others hold what is missing: {held} of the device is neither free nor held by this allocator, and it lacks \
                 {lacks}"
            );
            (Situation::OthersHold, reason)
        } else {
            let must_go = self.missing(missing);
            let reason = format!("The program needs too much memory: {must_go} must go");
            (Situation::TooMuch, reason)
        };
        Some(self.of(
            situation,
            format!(
                "{reason}. Even in one piece, the {} that PyTorch held unused and the {} that were free are less than the request \
                 for {}, so that no setting suffices.",
                self.amount(cached),
                self.amount(free),
                self.requested()
            ),
        ))
    }
}
