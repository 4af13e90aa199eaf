//! What others hold, and what private pools keep.

use super::super::amount::Amount;
use super::super::wording::Figure;
use super::{ABSURD, FREE_PART, Judge, Judgement, MUCH_PART, Situation, USUAL_BESIDE};

impl Judge<'_> {
    /// A message that lacks its request still tells who holds the device.
    pub(super) fn without_request(&self) -> Option<Judgement> {
        let (capacity, free) = (self.get(Figure::Capacity)?, self.get(Figure::Free)?);
        // The process holds no more than it may.
        let held = self.message.held().or(self.get(Figure::Allowed))?;
        let others = capacity - free - held;
        let is_much = others.least >= capacity.stated / MUCH_PART;
        let situation = if is_much {
            Situation::OthersHold
        } else {
            Situation::Unclear
        };
        let holds = match self.message.held() {
            Some(_) => "holds",
            None => "holds at most",
        };
        Some(self.of(
            situation,
            format!(
                "Of the {} of the device, {} is free, this allocator {holds} {}, and others hold {}: contexts, libraries and \
                 other processes. The text does not state the request that failed.",
                self.amount(capacity),
                self.amount(free),
                self.amount(held),
                self.amount(others)
            ),
        ))
    }

    /// Others hold much of the device, and hardly anything is free.
    pub(super) fn others_hold(&self) -> Option<Judgement> {
        let (capacity, free) = (self.get(Figure::Capacity)?, self.get(Figure::Free)?);
        let others = self.beside_bytes()?;
        let is_much = others.least >= USUAL_BESIDE.max(capacity.stated / MUCH_PART);
        let is_full = self.request.exceeds(free) || free.stated < capacity.stated / FREE_PART;
        let would_fit = self.demand()?.fits_into(capacity);
        if !(is_much && is_full && would_fit) {
            return None;
        }
        let cached = self.message.cached().unwrap_or_default();
        let also = if self.request.fits_into(cached) {
            format!(
                " PyTorch also held {} that no tensor used, in pieces that could not serve the request.",
                self.amount(cached)
            )
        } else {
            String::new()
        };
        let who = match self.outside() {
            Some(own) if own.least > USUAL_BESIDE => format!(
                "{} of it belongs to this process itself (recorded graphs, NCCL and other libraries)",
                self.amount(own)
            ),
            _ => format!(
                "contexts, libraries and other processes ({} shows which)",
                self.message.platform.tool()
            ),
        };
        Some(self.of(
            Situation::OthersHold,
            format!(
                "{} of the {} of the device is held outside of this allocator: {who}. The \
                 tensors of this program and the request for {} need {}, and {} was free.{also}",
                self.amount(others),
                self.amount(capacity),
                self.requested(),
                self.amount(self.demand()?),
                self.amount(free)
            ),
        ))
    }

    /// Free blocks of private pools are what is missing.
    pub(super) fn private_pools(&self) -> Option<Judgement> {
        let private = self.get(Figure::Private)?;
        let cached = self.message.cached()?;
        let is_missing = self.request.fits_into(private) && private.exceeds(cached);
        self.claim(is_missing, Situation::PrivatePools, || {
            format!(
                "Private pools, such as those of CUDA graphs, keep {} that no tensor uses and that serves no other request. \
                 Outside of them, PyTorch held {} unused, and the request for {} failed. Capture fewer graphs, or let them share \
                 a pool.",
                self.amount(private),
                self.amount(cached),
                self.requested()
            )
        })
    }

    /// What is neither free nor held by the allocator: contexts, other libraries, other processes.
    pub(super) fn beside_bytes(&self) -> Option<Amount> {
        let capacity = self.get(Figure::Capacity)?;
        Some(capacity - self.get(Figure::Free)? - self.message.held()?)
    }

    /// What the device holds beside the allocator's memory, if it is more than a context and libraries usually take.
    pub(super) fn beside(&self, situation: Situation) -> Option<String> {
        let beside = self.beside_bytes()?;
        if beside.least <= USUAL_BESIDE || situation == Situation::OthersHold {
            return None;
        }
        Some(match self.outside() {
            Some(outside) => format!(
                "{} of the device is neither free nor in this allocator: {} of it belongs to this process (context, \
                 libraries), the rest to others.",
                self.amount(beside),
                self.amount(outside)
            ),
            None => format!(
                "{} of the device is neither free nor in this allocator: contexts, libraries and other processes.",
                self.amount(beside)
            ),
        })
    }

    /// What this process holds outside of the allocator.
    pub(super) fn outside(&self) -> Option<Amount> {
        let own = self.get(Figure::ThisProcess);
        let known = own
            .zip(self.message.held())
            .filter(|(own, held)| own.exceeds(*held) && own.least < ABSURD);
        known.map(|(own, held)| own - held)
    }

    pub(super) fn private(&self, situation: Situation) -> Option<String> {
        let private = self.get(Figure::Private)?;
        let matters = private.least > 0 && private.stated >= self.request.stated / 2;
        (matters && situation != Situation::PrivatePools).then(|| {
            format!(
                "{} lies unused in private pools, such as those of CUDA graphs, which serve no other request.",
                self.amount(private)
            )
        })
    }

    /// Figures of processes that no device has: where the driver reports none, they are the largest numbers.
    pub(super) fn unreported(&self) -> Option<String> {
        let own = self.get(Figure::ThisProcess);
        let mut figures = own.iter().chain(&self.message.processes);
        let is_absurd = figures.any(|figure| figure.least >= ABSURD);
        let is_too_small = own
            .zip(self.message.held())
            .is_some_and(|(own, held)| held.exceeds(own + Amount::exactly(USUAL_BESIDE)));
        (is_absurd || is_too_small).then(|| {
            "The figures of processes in the message cannot be true: the driver does not report them here (WSL and containers). \
             Nothing is concluded from them."
                .to_owned()
        })
    }
}
