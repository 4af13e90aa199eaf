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
    /// Whether settings of the allocator can help.
    pub may_help: bool,
    /// What is proved, the most important first.
    pub sentences: Vec<String>,
}

/// No device has more: 1 PiB.
const ABSURD: u64 = 1 << 50;
/// A context, cuBLAS and NCCL take up to so much: 2 GiB.
const USUAL_BESIDE: u64 = 2 << 30;
/// Free memory that waits for streams matters from this part of the device on: 5 %.
const PENDING_PART: u64 = 20;

/// Others hold much if it is this part of the device: a quarter.
const MUCH_PART: u64 = 4;
/// Hardly anything is free if it is less than this part of the device: 5 %.
const FREE_PART: u64 = 20;

struct Judge<'a> {
    message: &'a Message,
    unit: Unit,
    /// What the allocator asked the driver for: the request, rounded up to a segment
    /// (c10/cuda/CUDACachingAllocator.cpp, `get_allocation_size`).
    request: Amount,
}

/// What the figures of a message prove; `None` if they are too few.
pub(super) fn judge(message: &Message) -> Option<Judgement> {
    let largest = message.figures.values().map(|amount| amount.stated);
    let judge = |request| Judge {
        message,
        unit: Unit::of(largest.filter(|&bytes| bytes < ABSURD).max().unwrap_or(0)),
        request,
    };
    let Some(request) = message.get(Figure::Request) else {
        return judge(Amount::default()).without_request();
    };
    let judge = judge(request);
    let found = judge
        .misreported()
        .or_else(|| judge.request_exceeds_device())
        .or_else(|| judge.own_limit())
        .or_else(|| judge.demand_exceeds_device())
        .or_else(|| judge.waits_for_streams())
        .or_else(|| judge.others_hold())
        .or_else(|| judge.private_pools())
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
            _ => [
                self.beside(situation),
                self.private(situation),
                self.unreported(),
            ]
            .into_iter()
            .flatten()
            .collect(),
        };
        Judgement {
            situation,
            may_help: matches!(situation, Situation::Fragmentation | Situation::JustEnough),
            sentences: std::iter::once(first).chain(more).collect(),
        }
    }

    fn amount(&self, amount: Amount) -> String {
        match amount.stated {
            0 => "0".to_owned(),
            bytes => self.unit.amount(bytes),
        }
    }

    /// What is missing, which may be less than the rounding of the figures.
    fn missing(&self, amount: Amount) -> String {
        let most = Unit::of(amount.most).amount(amount.most);
        match amount.least {
            0 => format!("up to {most}"),
            _ => format!("at least {}", Unit::of(amount.least).amount(amount.least)),
        }
    }

    /// The request in its own unit: it is often small.
    fn requested(&self) -> String {
        Unit::of(self.request.stated).amount(self.request.stated)
    }

    fn get(&self, figure: Figure) -> Option<Amount> {
        self.message.get(figure)
    }

    /// What the request and live tensors need together.
    fn demand(&self) -> Option<Amount> {
        Some(self.message.live()? + self.request)
    }

    /// What is neither free nor held by the allocator: contexts, other libraries, other processes.
    fn beside_bytes(&self) -> Option<Amount> {
        let capacity = self.get(Figure::Capacity)?;
        Some(capacity - self.get(Figure::Free)? - self.message.held()?)
    }

    /// A message that lacks its request still tells who holds the device.
    fn without_request(&self) -> Option<Judgement> {
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

    fn misreported(&self) -> Option<Judgement> {
        let of = |amount: Amount| Unit::of(amount.stated).amount(amount.stated);
        let (capacity, free) = (self.get(Figure::Capacity), self.get(Figure::Free));
        let what = match capacity.zip(free) {
            Some((capacity, free)) if free.exceeds(capacity) => {
                format!("{} is free, and the device has {}", of(free), of(capacity))
            }
            _ if capacity.is_none() && self.request.exceeds(Amount::exactly(ABSURD)) => {
                format!("{} is requested", of(self.request))
            }
            _ => return None,
        };
        Some(self.of(
            Situation::Misreported,
            format!(
                "The figures cannot be true: {what}. Either the device or the size of the request is misreported, so that \
                 nothing follows about memory. Compare them with what nvidia-smi or rocm-smi shows, and look at how the size of \
                 the tensor is computed."
            ),
        ))
    }

    fn request_exceeds_device(&self) -> Option<Judgement> {
        let capacity = self.get(Figure::Capacity)?;
        let then = if self.request.exceeds(Amount::exactly(ABSURD)) {
            "No device has so much: a size was computed wrongly, such as a negative one."
        } else {
            "No setting can help; the tensor must become smaller."
        };
        self.request.exceeds(capacity).then(|| {
            self.of(
                Situation::RequestExceedsDevice,
                format!(
                    "The request alone is larger than the device: {} of {}. {then}",
                    self.requested(),
                    Unit::of(capacity.stated).amount(capacity.stated)
                ),
            )
        })
    }

    fn own_limit(&self) -> Option<Judgement> {
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
    fn watermark(&self, allowed: Amount) -> Option<Judgement> {
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

    fn demand_exceeds_device(&self) -> Option<Judgement> {
        let (capacity, demand) = (self.get(Figure::Capacity)?, self.demand()?);
        let live = self.message.live()?;
        if live.exceeds(capacity) {
            return Some(self.of(
                Situation::DemandExceedsDevice,
                format!(
                    "The program needs too much memory: its tensors hold {} before the request for {}, more than the {} of the \
                     device. The driver has moved some of it to the memory of the host (Windows and WSL do), which is slow. No \
                     setting can help; at least {} must go.",
                    self.amount(live),
                    self.requested(),
                    self.amount(capacity),
                    self.missing(demand - capacity)
                ),
            ));
        }
        demand.exceeds(capacity).then(|| {
            self.of(
                Situation::DemandExceedsDevice,
                format!(
                    "The program needs too much memory: its tensors hold {}, and with the request for {} they would take {}, \
                     more than the {} of the device. No setting can help; {} must go.",
                    self.amount(live),
                    self.requested(),
                    self.amount(demand),
                    self.amount(capacity),
                    self.missing(demand - capacity)
                ),
            )
        })
    }

    fn waits_for_streams(&self) -> Option<Judgement> {
        let waits = self.get(Figure::Active)? - self.get(Figure::Allocated)?;
        let matters = waits.least >= self.get(Figure::Capacity)?.stated / PENDING_PART;
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

    /// Others hold much of the device, and hardly anything is free.
    fn others_hold(&self) -> Option<Judgement> {
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
    fn private_pools(&self) -> Option<Judgement> {
        let private = self.get(Figure::Private)?;
        let cached = self.message.cached()?;
        (self.request.fits_into(private) && private.exceeds(cached)).then(|| {
            self.of(
                Situation::PrivatePools,
                format!(
                    "Private pools, such as those of CUDA graphs, keep {} that no tensor uses and that serves no other request. \
                     Outside of them, PyTorch held {} without a tensor in it, and the request for {} failed. Capture fewer \
                     graphs, or let them share a pool.",
                    self.amount(private),
                    self.amount(cached),
                    self.requested()
                ),
            )
        })
    }

    fn driver_refused(&self) -> Option<Judgement> {
        let free = self.get(Figure::Free)?;
        self.request.fits_into(free).then(|| {
            self.of(
                Situation::DriverRefused,
                format!(
                    "The driver refused memory although {} of the device was free when the message was written, and {} \
                     was requested. No setting of the allocator is indicated. Look for another process that held memory at that \
                     moment, a limit of the process (PyTorch 2.1 to 2.4 do not state it) or the container, the size of a MIG \
                     instance, and errors of the driver (dmesg).",
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
                     {} must go.",
                    self.amount(cached),
                    self.amount(free),
                    self.requested(),
                    self.amount(both - self.request),
                    self.missing(self.request - free)
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
        let (situation, reason) = if others.least >= USUAL_BESIDE.max(missing.most) {
            (
                Situation::OthersHold,
                format!(
                    "Others hold what is missing: {} of the device is neither free nor held by this allocator, and it lacks {}",
                    self.amount(others),
                    self.amount(missing)
                ),
            )
        } else {
            (
                Situation::TooMuch,
                format!(
                    "The program needs too much memory: {} must go",
                    self.missing(missing)
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
                 say what holds the rest.",
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
    fn beside(&self, situation: Situation) -> Option<String> {
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
    fn outside(&self) -> Option<Amount> {
        let own = self.get(Figure::ThisProcess);
        let known = own
            .zip(self.message.held())
            .filter(|(own, held)| own.exceeds(*held) && own.least < ABSURD);
        known.map(|(own, held)| own - held)
    }

    fn private(&self, situation: Situation) -> Option<String> {
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
    fn unreported(&self) -> Option<String> {
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
