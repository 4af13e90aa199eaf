//! What the figures of a message prove.
//!
//! Each claim names the figures from which it follows, and holds however they were rounded. The first that applies is the
//! situation.

use coalesce_bench::text::Unit;
use schemars::JsonSchema;
use serde::Serialize;

use super::amount::Amount;
use super::message::{Message, Platform};
use super::wording::Figure;

/// Why a request failed, as far as a message proves it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Situation {
    /// The figures contradict each other.
    Misreported,
    /// The request alone is larger than the device.
    RequestExceedsDevice,
    /// The process may reserve no more, although the device has more.
    OwnLimit,
    /// The tensors and the request are larger than the device.
    DemandExceedsDevice,
    /// Freed memory waits for other streams.
    WaitsForStreams,
    /// The allocator held enough that no tensor used, in pieces that were each too small.
    Fragmentation,
    /// The driver refused memory although enough was free.
    DriverRefused,
    /// What was cached and what was free would have sufficed, but only together.
    JustEnough,
    /// Other processes, or other libraries of this one, hold what is missing.
    OthersHold,
    /// Private pools hold what is missing.
    PrivatePools,
    /// All that was cached or free is less than the request.
    TooMuch,
    /// The figures do not decide it.
    Unclear,
}

/// What is concluded from a message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Judgement {
    pub situation: Situation,
    /// What is proved, the most important first.
    pub sentences: Vec<String>,
}

/// No device has more: 1 PiB.
const ABSURD: u64 = 1 << 50;
/// A context, cuBLAS and NCCL take up to so much: 2 GiB.
const USUAL_BESIDE: u64 = 2 << 30;
/// Free memory that waits for streams matters from this part of the device on: 5 %.
const PENDING_PART: u64 = 20;

struct Judge<'a> {
    message: &'a Message,
    unit: Unit,
    request: Amount,
}

/// What the figures of a message prove; `None` if it states no request.
pub(super) fn judge(message: &Message) -> Option<Judgement> {
    let request = message.get(Figure::Request)?;
    let largest = message.figures.values().map(|amount| amount.bytes());
    let judge = Judge {
        message,
        unit: Unit::of(largest.filter(|&bytes| bytes < ABSURD).max().unwrap_or(0)),
        request,
    };
    let found = judge
        .misreported()
        .or_else(|| judge.request_exceeds_device())
        .or_else(|| judge.own_limit())
        .or_else(|| judge.demand_exceeds_device())
        .or_else(|| judge.waits_for_streams())
        .or_else(|| judge.driver_refused())
        .or_else(|| judge.fragmentation())
        .or_else(|| judge.just_enough())
        .or_else(|| judge.not_enough());
    Some(found.unwrap_or_else(|| judge.of(Situation::Unclear, judge.unclear())))
}

impl Judge<'_> {
    fn of(&self, situation: Situation, first: String) -> Judgement {
        let more = match situation {
            Situation::Misreported | Situation::RequestExceedsDevice => Vec::new(),
            _ => [self.beside(), self.private()]
                .into_iter()
                .flatten()
                .collect(),
        };
        Judgement {
            situation,
            sentences: std::iter::once(first).chain(more).collect(),
        }
    }

    fn amount(&self, amount: Amount) -> String {
        match amount.bytes() {
            0 => "0".to_owned(),
            bytes => self.unit.amount(bytes),
        }
    }

    /// The request in its own unit: it is often small.
    fn requested(&self) -> String {
        Unit::of(self.request.bytes()).amount(self.request.bytes())
    }

    fn get(&self, figure: Figure) -> Option<Amount> {
        self.message.get(figure)
    }

    /// What the request and live tensors need together.
    fn demand(&self) -> Option<Amount> {
        Some(self.message.allocated()? + self.request)
    }

    /// What is neither free nor held by the allocator: contexts, other libraries, other processes.
    fn beside_bytes(&self) -> Option<Amount> {
        let capacity = self.get(Figure::Capacity)?;
        Some(capacity - self.get(Figure::Free)? - self.message.held()?)
    }

    /// What the allocator would have to take from the driver for the request, which it rounds up
    /// (c10/cuda/CUDACachingAllocator.cpp, `get_allocation_size`).
    fn segment(&self) -> Amount {
        const SMALL: u64 = 1 << 20;
        const MIDDLE: u64 = 10 << 20;
        let rounded = |bytes: u64| match bytes {
            0..=SMALL => 2 << 20,
            ..MIDDLE => 20 << 20,
            bytes => bytes.saturating_add((2 << 20) - 1) / (2 << 20) * (2 << 20),
        };
        Amount {
            least: rounded(self.request.least),
            most: rounded(self.request.most),
        }
    }

    fn misreported(&self) -> Option<Judgement> {
        let capacity = self.get(Figure::Capacity)?;
        let wrong = [
            (Figure::Free, "free"),
            (Figure::Allocated, "allocated"),
            (Figure::ThisProcess, "in use by this process"),
        ];
        let all = Amount::exactly(ABSURD);
        let is_wrong = |amount: Amount| amount.exceeds(capacity) || amount.exceeds(all);
        let found = wrong
            .into_iter()
            .find(|(figure, _)| self.get(*figure).is_some_and(is_wrong));
        let (amount, what) = match found {
            Some((figure, what)) => (self.get(figure)?, what),
            None if self.request.exceeds(all) => (self.request, "requested"),
            None => return None,
        };
        let of = |amount: Amount| Unit::of(amount.bytes()).amount(amount.bytes());
        Some(self.of(
            Situation::Misreported,
            format!(
                "The figures contradict each other: {} is {what}, and the device has {}. Either the size of the \
                 request or the device is misreported, so that nothing follows about memory. Compare them with what \
                 nvidia-smi or rocm-smi shows, and look at how the size of the tensor is computed.",
                of(amount),
                of(capacity)
            ),
        ))
    }

    fn request_exceeds_device(&self) -> Option<Judgement> {
        let capacity = self.get(Figure::Capacity)?;
        self.request.exceeds(capacity).then(|| {
            self.of(
                Situation::RequestExceedsDevice,
                format!(
                    "The request alone is larger than the device: {} of {}. No setting can help; the tensor must become \
                     smaller.",
                    self.amount(self.request),
                    self.amount(capacity)
                ),
            )
        })
    }

    fn own_limit(&self) -> Option<Judgement> {
        let allowed = self.get(Figure::Allowed)?;
        if self.message.platform == Platform::Mps {
            return self.watermark(allowed);
        }
        let (free, demand) = (self.get(Figure::Free)?, self.demand()?);
        if !self.segment().fits_into(free) {
            return None;
        }
        let first = format!(
            "The process limits itself to {} (torch.cuda.set_per_process_memory_fraction, or \
             per_process_memory_fraction in the settings), while {} of the device is free.",
            self.amount(allowed),
            self.amount(free)
        );
        let then = if demand.fits_into(allowed) {
            format!(
                "Within that limit, its tensors and the request for {} need {}: {} that it held was used by no tensor, but \
                 lay in pieces that were each too small. A setting can help, and so can a higher limit.",
                self.requested(),
                self.amount(demand),
                self.amount(self.message.cached()?),
            )
        } else {
            format!(
                "Its tensors and the request for {} need {}: raise the limit to more than that, or free at least {}.",
                self.requested(),
                self.amount(demand),
                self.amount(demand - allowed)
            )
        };
        Some(self.of(Situation::OwnLimit, format!("{first} {then}")))
    }

    /// The limit of Apple's devices (aten/src/ATen/mps/MPSAllocator.mm).
    fn watermark(&self, allowed: Amount) -> Option<Judgement> {
        let allocated = self.message.allocated()?;
        let outside = self.get(Figure::Outside).unwrap_or_default();
        let demand = allocated + outside + self.request;
        Some(self.of(
            Situation::OwnLimit,
            format!(
                "PyTorch limits itself to {} on this device: its tensors hold {}, other allocations {}, and the request \
                 for {} makes {}. PYTORCH_MPS_HIGH_WATERMARK_RATIO sets the limit; beyond it, the system may swap or fail. \
                 At least {} must go otherwise.",
                self.amount(allowed),
                self.amount(allocated),
                self.amount(outside),
                self.requested(),
                self.amount(demand),
                self.amount(demand - allowed)
            ),
        ))
    }

    fn demand_exceeds_device(&self) -> Option<Judgement> {
        let (capacity, demand) = (self.get(Figure::Capacity)?, self.demand()?);
        demand.exceeds(capacity).then(|| {
            self.of(
                Situation::DemandExceedsDevice,
                format!(
                    "The program needs too much memory: its tensors hold {}, and with the request for {} they would take {}, \
                     more than the {} of the device. No setting can help; at least {} must go.",
                    self.amount(demand - self.request),
                    self.requested(),
                    self.amount(demand),
                    self.amount(capacity),
                    self.amount(demand - capacity)
                ),
            )
        })
    }

    fn waits_for_streams(&self) -> Option<Judgement> {
        let waits = self.get(Figure::Active)? - self.message.allocated()?;
        let matters = waits.least >= self.get(Figure::Capacity)?.bytes() / PENDING_PART;
        matters.then(|| {
            self.of(
                Situation::WaitsForStreams,
                format!(
                    "{} was freed, but waits until other streams no longer use it (record_stream): it can serve no request \
                     until then. Let the stream that allocates wait for the one that uses the memory.",
                    self.amount(waits)
                ),
            )
        })
    }

    fn driver_refused(&self) -> Option<Judgement> {
        let free = self.get(Figure::Free)?;
        self.segment().fits_into(free).then(|| {
            self.of(
                Situation::DriverRefused,
                format!(
                    "The driver refused memory although {} of the device was free when the message was written, and {} \
                     was requested. No setting of the allocator is indicated. Look for another process that holds memory \
                     for a moment, a limit of the process or the container, the size of a MIG instance, and errors of the \
                     driver (dmesg).",
                    self.amount(free),
                    self.requested()
                ),
            )
        })
    }

    fn fragmentation(&self) -> Option<Judgement> {
        let cached = self.message.cached()?;
        self.request.fits_into(cached).then(|| {
            let together = match self.get(Figure::Free) {
                Some(free) => format!(
                    " If settings join all of it with what is free, up to {} is available for the request.",
                    self.amount(cached + free)
                ),
                None => String::new(),
            };
            self.of(
                Situation::Fragmentation,
                format!(
                    "The request failed because of fragmentation: PyTorch held {} that no tensor used, more than the {} \
                     that were requested, but in pieces that could not serve the request: each too small, or of another \
                     stream or pool.{together}",
                    self.amount(cached),
                    self.requested()
                ),
            )
        })
    }

    fn just_enough(&self) -> Option<Judgement> {
        let (cached, free) = (self.message.cached()?, self.get(Figure::Free)?);
        let both = cached + free;
        self.request.fits_into(both).then(|| {
            self.of(
                Situation::JustEnough,
                format!(
                    "What PyTorch held without a tensor in it, {}, and what was free, {}, would have sufficed for the request \
                     for {}, but only in one piece. Expandable segments can give that at best, with {} to spare; without them, \
                     at least {} must go.",
                    self.amount(cached),
                    self.amount(free),
                    self.requested(),
                    self.amount(both - self.request),
                    self.amount(self.request - free)
                ),
            )
        })
    }

    /// All that is cached or free is less than the request, though the device has more.
    fn not_enough(&self) -> Option<Judgement> {
        let (cached, free) = (self.message.cached()?, self.get(Figure::Free)?);
        let both = cached + free;
        if !self.request.exceeds(both) {
            return None;
        }
        let missing = self.request - both;
        let others = self.beside_bytes().unwrap_or_default();
        let private = self.get(Figure::Private).unwrap_or_default();
        let (situation, reason) = if others.least >= USUAL_BESIDE.max(missing.most) {
            (
                Situation::OthersHold,
                format!(
                    "Others hold what is missing: {} of the device is neither free nor held by this allocator, and it lacks {}",
                    self.amount(others),
                    self.amount(missing)
                ),
            )
        } else if private.least >= missing.most.max(1) {
            (
                Situation::PrivatePools,
                format!(
                    "Private pools, such as those of CUDA graphs, hold {} that no other request can use; {} is missing",
                    self.amount(private),
                    self.amount(missing)
                ),
            )
        } else {
            (
                Situation::TooMuch,
                format!(
                    "The program needs too much memory: at least {} must go",
                    self.amount(missing)
                ),
            )
        };
        Some(self.of(
            situation,
            format!(
                "{reason}. Even in one piece, what PyTorch held without a tensor in it, {}, and what was free, {}, are less \
                 than the request for {}, so that no setting suffices.",
                self.amount(cached),
                self.amount(free),
                self.requested()
            ),
        ))
    }

    fn unclear(&self) -> String {
        match (self.demand(), self.get(Figure::Capacity)) {
            (Some(demand), Some(capacity)) => format!(
                "The request for {} failed; with it, the tensors would take {} of the {} of the device. The figures do not \
                 say whether fragmentation is the reason.",
                self.requested(),
                self.amount(demand),
                self.amount(capacity)
            ),
            _ => format!(
                "A request for {} failed. The message does not say what held the memory.",
                self.requested()
            ),
        }
    }

    /// What the device holds beside the allocator's memory, if it is more than a context and libraries usually take.
    fn beside(&self) -> Option<String> {
        let beside = self.beside_bytes()?;
        (beside.least > USUAL_BESIDE).then(|| {
            let own = self.get(Figure::ThisProcess);
            let outside = own.zip(self.message.held()).map(|(own, held)| own - held);
            match outside {
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
            }
        })
    }

    fn private(&self) -> Option<String> {
        let private = self.get(Figure::Private)?;
        let matters = private.least > 0 && private.bytes() >= self.request.bytes() / 2;
        matters.then(|| {
            format!(
                "{} of what its tensors hold is in private pools, such as those of CUDA graphs.",
                self.amount(private)
            )
        })
    }
}
