//! Limits that a process sets itself.

use super::super::amount::Amount;
use super::super::message::Platform;
use super::super::wording::Figure;
use super::{ABSURD, Judge, Judgement, Situation};

impl Judge<'_> {
    pub(super) fn own_limit(&self) -> Option<Judgement> {
        // The largest number means that there is no limit.
        let allowed = self
            .get(Figure::Allowed)
            .filter(|limit| limit.least < ABSURD)?;
        if self.message.platform == Platform::Mps {
            return self.watermark(allowed);
        }
        let (free, demand) = (self.get(Figure::Free)?, self.demand());
        let has_room = self.request.fits_into(free);
        let is_beyond = demand.is_some_and(|demand| demand.exceeds(allowed));
        // The limit counts what is reserved. What would stay below it was refused for another reason.
        let held = self.message.held();
        let is_below = held.is_some_and(|held| (held + self.request).fits_into(allowed));
        if is_below || !has_room && !is_beyond {
            return None;
        }
        let first = format!(
            "The process limits itself to {} (torch.cuda.set_per_process_memory_fraction, or \
             per_process_memory_fraction in the settings), while {} of the device is free.",
            self.amount(allowed),
            self.amount(free)
        );
        let then = match (demand, self.message.cached()) {
            (Some(demand), Some(cached)) if demand.fits_into(allowed) => format!(
                "Within that limit, its tensors and the request for {} need {}: {} that it held was used by no tensor, but \
                 could not serve the request. A setting can help, and so can a higher limit.",
                self.requested(),
                self.amount(demand),
                self.amount(cached),
            ),
            (Some(demand), _) if has_room => format!(
                "Its tensors and the request for {} need {}: raise the limit to more than that, or free {}.",
                self.requested(),
                self.amount(demand),
                self.missing(demand - allowed)
            ),
            (Some(demand), _) => format!(
                "Its tensors and the request for {} need {}. A higher limit alone helps little, because the device has no \
                 more: {} must go.",
                self.requested(),
                self.amount(demand),
                self.missing(demand - allowed)
            ),
            (None, _) => format!(
                "Raise the limit, or request less than {}.",
                self.requested()
            ),
        };
        Some(Judgement {
            may_help: demand.is_some_and(|demand| demand.fits_into(allowed)),
            ..self.of(Situation::OwnLimit, format!("{first} {then}"))
        })
    }

    /// The limit of Apple's devices (aten/src/ATen/mps/MPSAllocator.mm).
    pub(super) fn watermark(&self, allowed: Amount) -> Option<Judgement> {
        let allocated = self.message.live()?;
        let outside = self.get(Figure::Outside).unwrap_or_default();
        let demand = allocated + outside + self.request;
        Some(self.of(
            Situation::OwnLimit,
            format!(
                "PyTorch limits itself to {} on this device: its tensors hold {}, other allocations {}, and the request \
                 for {} makes {}. PYTORCH_MPS_HIGH_WATERMARK_RATIO sets the limit; beyond it, the system may swap or fail. \
                 Otherwise {} must go.",
                self.amount(allowed),
                self.amount(allocated),
                self.amount(outside),
                self.requested(),
                self.amount(demand),
                self.missing(demand - allowed)
            ),
        ))
    }
}
