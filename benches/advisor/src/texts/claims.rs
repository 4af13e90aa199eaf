//! What the figures of a message prove.
//!
//! Each claim names the figures from which it follows, and holds however they were rounded. The first that applies is the
//! situation.

mod free;
mod limit;
mod others;

use coalesce_bench::text::Unit;
use schemars::JsonSchema;
use serde::Serialize;

use super::amount::Amount;
use super::message::Message;
use super::wording::Figure;

/// Why a request failed, as far as a message proves it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, JsonSchema, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Situation {
    /// The figures cannot be true.
    Misreported,
    /// The request alone is larger than the device.
    RequestExceedsDevice,
    /// The process may reserve no more, although the device has more.
    OwnLimit,
    /// The tensors and the request are larger than the device.
    DemandExceedsDevice,
    /// Freed memory waits for other streams.
    WaitsForStreams,
    /// The allocator held enough memory that no tensor used, in pieces that could not serve the request.
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

    /// A judgement, if its condition holds.
    fn claim(
        &self,
        holds: bool,
        situation: Situation,
        first: impl FnOnce() -> String,
    ) -> Option<Judgement> {
        holds.then(|| self.of(situation, first()))
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
        let exceeds = self.request.exceeds(capacity);
        self.claim(exceeds, Situation::RequestExceedsDevice, || {
            let (request, capacity) = (self.requested(), capacity.stated);
            let capacity = Unit::of(capacity).amount(capacity);
            format!("The request alone is larger than the device: {request} of {capacity}. {then}")
        })
    }

    fn demand_exceeds_device(&self) -> Option<Judgement> {
        let (capacity, demand) = (self.get(Figure::Capacity)?, self.demand()?);
        let live = self.message.live()?;
        let is_beyond = live.exceeds(capacity);
        let missing = self.missing(demand - capacity);
        let [held, taken, all] = [live, demand, capacity].map(|amount| self.amount(amount));
        let request = self.requested();
        let exceeds = is_beyond || demand.exceeds(capacity);
        self.claim(exceeds, Situation::DemandExceedsDevice, || {
            let how_much = if is_beyond {
                format!(
                    "{held} before the request for {request}, more than the {all} of the device. The driver has moved some of it \
                     to the memory of the host (Windows and WSL do), which is slow."
                )
            } else {
                format!(
                    "{held}, and with the request for {request} they would take {taken}, more than the {all} of the device."
                )
            };
            format!(
                "The program needs too much memory: its tensors hold {how_much} No setting can help; {missing} must go."
            )
        })
    }

    fn waits_for_streams(&self) -> Option<Judgement> {
        let waits = self.get(Figure::Active)? - self.get(Figure::Allocated)?;
        let matters = waits.least >= self.get(Figure::Capacity)?.stated / PENDING_PART;
        self.claim(matters, Situation::WaitsForStreams, || {
            format!(
                "{} was freed, but waits until other streams no longer use it (record_stream): it can serve no request until \
                 then. Let the stream that allocates wait for the one that uses the memory.",
                self.amount(waits)
            )
        })
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
}
