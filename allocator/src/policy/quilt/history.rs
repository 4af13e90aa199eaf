//! What the program did, and where its requests were placed.
//!
//! A program that repeats its steps allocates and frees in the same order each time. The history finds the earlier part
//! that matches the last events, follows it, and returns where the matching request was placed. An event is a request on
//! a stream, or the free of a block that was requested a certain number of requests ago. Sizes are not compared, because
//! the order of events usually stays the same if sizes vary from step to step.

use crate::driver::StreamId;

use super::views::Place;

/// Events that are remembered. Programs of up to half as many large requests and frees a step are recognized.
const REMEMBERED: usize = 1 << 17;
/// The last events, which must agree before an earlier part is followed.
const CONTEXT: u64 = 16;
/// Agreements beyond this many count the same.
const LONGEST: u64 = 2048;
/// Earlier parts that are compared, the latest ones.
const CANDIDATES: usize = 16;
/// Earlier requests like one whose bytes are compared, the latest ones. If sizes never repeat, a request would else be
/// compared with every repetition that is remembered.
const COMPARED: usize = 64;
/// While fewer than [`LONGEST`] events agree, every so many events the other parts are compared again.
const RECONSIDERED: u64 = 16;
/// A multiplier of the hash.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The factor of the oldest symbol in the hash.
const OLDEST: u64 = FACTOR.wrapping_pow(CONTEXT as u32 - 1);

/// The number of an event, from 1 on; 0 is none.
type Number = u64;

#[derive(Clone, Copy, Debug)]
struct Event {
    symbol: u64,
    /// The earlier event that it repeats.
    like: Number,
    /// The last event before it with the same context.
    same_context: Number,
    /// Bytes of a request.
    bytes: u64,
    /// Where a request was placed.
    place: Option<Place>,
}

/// The last events of a program.
#[derive(Debug, Default)]
pub(super) struct History {
    /// A ring: event n is at index n - 1, modulo [`REMEMBERED`].
    events: Vec<Event>,
    last: Number,
    /// The event that the next one should be like.
    expected: Number,
    /// How many events in a row agreed with the part that is followed.
    agreed: u64,
    /// Hash of the last [`CONTEXT`] symbols.
    context: u64,
    /// The last event of each context, by hash. Two contexts may share an entry. Empty before the first event.
    latest: Vec<Number>,
    /// Requests so far.
    requests: u64,
}

impl History {
    /// Records a request, and returns its number.
    pub(super) fn request(&mut self, bytes: u64, stream: StreamId) -> Number {
        self.requests += 1;
        let symbol = (stream.0 << 1) | 1;
        self.push(symbol, bytes)
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> u64 {
        self.requests
    }

    /// Records the free of a block that was the `request`-th.
    pub(super) fn free(&mut self, request: u64) {
        let ago = self.requests - request;
        self.push(ago << 1, 0);
    }

    /// Notes where a request was placed.
    pub(super) fn set_place(&mut self, number: Number, place: Place) {
        if self.get(number).is_some() {
            self.events[index(number)].place = Some(place);
        }
    }

    /// Where earlier requests like this one of as many bytes were placed, the latest first. Of the earlier ones the
    /// last [`COMPARED`] count.
    pub(super) fn places(&self, number: Number) -> impl Iterator<Item = Place> {
        let this = self.get(number);
        let bytes = this.map_or(0, |event| event.bytes);
        let earlier = |event: &&Event| self.get(event.like);
        let like = std::iter::successors(this, move |event| earlier(event)).skip(1);
        like.take(COMPARED)
            .filter(move |event| event.bytes == bytes)
            .filter_map(|event| event.place)
    }

    fn get(&self, number: Number) -> Option<&Event> {
        let is_kept = number != 0 && number <= self.last && self.last < number + REMEMBERED as u64;
        is_kept.then(|| &self.events[index(number)])
    }

    fn push(&mut self, symbol: u64, bytes: u64) -> Number {
        let number = self.last + 1;
        if self.latest.is_empty() {
            self.latest = vec![0; REMEMBERED];
        }
        self.roll(symbol);
        let slot = (self.context >> 32) as usize % REMEMBERED;
        let event = Event {
            symbol,
            like: 0,
            same_context: std::mem::replace(&mut self.latest[slot], number),
            bytes,
            place: None,
        };
        if self.events.len() < REMEMBERED {
            self.events.push(event);
        } else {
            self.events[index(number)] = event;
        }
        self.last = number;
        let like = self.follow(number);
        self.events[index(number)].like = like;
        self.expected = if like == 0 { 0 } else { like + 1 };
        number
    }

    /// Adds a symbol to the context and drops the oldest one.
    fn roll(&mut self, symbol: u64) {
        let oldest = (self.last + 1).saturating_sub(CONTEXT);
        let leaving = self.get(oldest).map_or(0, |event| weight(event.symbol));
        let rest = self.context.wrapping_sub(leaving.wrapping_mul(OLDEST));
        self.context = rest.wrapping_mul(FACTOR).wrapping_add(weight(symbol));
    }

    /// Finds the earlier event that the last one repeats.
    fn follow(&mut self, number: Number) -> Number {
        let symbol = |number| self.get(number).map(|event| event.symbol);
        let mut like = if symbol(self.expected) == symbol(number) {
            self.expected
        } else {
            0
        };
        let mut agreed = if like == 0 { 0 } else { self.agreed + 1 };
        let reconsiders = agreed < LONGEST && number.is_multiple_of(RECONSIDERED);
        if like == 0 || reconsiders {
            let latest = self.get(number);
            let earlier = |event: &&Event| self.get(event.same_context);
            let same_context = std::iter::successors(latest, earlier);
            let candidates = same_context.map(|event| event.same_context);
            for candidate in candidates.take(CANDIDATES) {
                let agreement = self.agreement(candidate, number);
                if agreement > agreed {
                    (like, agreed) = (candidate, agreement);
                }
            }
        }
        self.agreed = agreed;
        like
    }

    /// The number of events, up to [`LONGEST`], that agree before two events and at them.
    fn agreement(&self, earlier: Number, later: Number) -> u64 {
        let symbol = |number: Option<Number>| Some(self.get(number?)?.symbol);
        let agrees = |back: &u64| {
            let before = symbol(earlier.checked_sub(*back));
            before.is_some() && before == symbol(later.checked_sub(*back))
        };
        (0..LONGEST).take_while(agrees).count() as u64
    }
}

fn index(number: Number) -> usize {
    (number - 1) as usize % REMEMBERED
}

/// What a symbol adds to the hash; never 0.
fn weight(symbol: u64) -> u64 {
    symbol.wrapping_add(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A program: requests on one of two streams, and frees of blocks that were requested a few requests ago, all of it
    /// repeated several times.
    fn program() -> impl Strategy<Value = Vec<(bool, u64)>> {
        let step = prop::collection::vec((any::<bool>(), 0_u64..6), 1..60);
        let repeated = (step, 1_usize..6).prop_map(|(step, times)| step.repeat(times));
        prop::collection::vec(repeated, 1..4).prop_map(|parts| parts.concat())
    }

    proptest! {
        /// Compared with a search through all earlier events.
        #[test]
        fn what_is_followed_is_an_earlier_part_that_agrees(program in program()) {
            let mut history = History::default();
            let mut symbols: Vec<u64> = Vec::new();
            for (is_request, detail) in program {
                let number = if is_request { history.request(detail, StreamId::nth(detail as u32 % 2)) } else {
                        history.free(history.requests().saturating_sub(detail));
                        history.last
                    };
                symbols.push(history.get(number).unwrap().symbol);
                let now = symbols.len();
                let agreement = |earlier: usize| {
                    let pairs = symbols[..earlier].iter().rev().zip(symbols.iter().rev());
                    pairs.take_while(|(a, b)| a == b).count() as u64
                };
                let longest = (1..now).map(agreement).max().unwrap_or(0);
                let like = history.get(number).unwrap().like as usize;
                prop_assert!(like < now);
                if like > 0 {
                    prop_assert_eq!(agreement(like), history.agreed, "after {} events", now);
                } else {
                    // An earlier event is found by the last events, or by as many as there were.
                    prop_assert!(longest < CONTEXT, "{} events agree", longest);
                }
            }
        }
    }

    /// A step of 40 requests, each followed by a free. Returns how many requests have the place that the same one
    /// of the same step had before.
    fn step(history: &mut History, bytes: u64) -> usize {
        let mut repeated = 0;
        for position in 0..40 {
            let number = history.request(bytes + position % 7, StreamId::DEFAULT);
            let place = Place::Home(bytes * 1000 + position);
            repeated += usize::from(history.places(number).next() == Some(place));
            history.set_place(number, place);
            let ago = position * position % 41; // nothing is periodic within a step
            history.free(history.requests().saturating_sub(ago));
        }
        repeated
    }

    #[test]
    fn a_step_is_recognized_in_its_repetition() {
        let mut history = History::default();
        assert_eq!(step(&mut history, 100), 0);
        step(&mut history, 100);
        assert!(step(&mut history, 100) >= 40 - CONTEXT as usize);
        assert_eq!(step(&mut history, 100), 40);
    }

    #[test]
    fn a_step_with_other_sizes_has_the_places_of_the_last_one_with_its_sizes() {
        let mut history = History::default();
        for _ in 0..4 {
            step(&mut history, 100);
            step(&mut history, 200);
        }
        assert_eq!(step(&mut history, 300), 0);
        assert_eq!(step(&mut history, 100), 40);
        assert_eq!(step(&mut history, 300), 40);
    }

    #[test]
    fn a_request_is_compared_with_the_latest_like_it_only() {
        let mut history = History::default();
        let others = |history: &mut History, steps: usize| {
            for other in 1..=steps as u64 {
                step(history, 10 * other);
            }
        };
        others(&mut history, 2);
        step(&mut history, 0);
        others(&mut history, COMPARED / 2);
        assert_eq!(step(&mut history, 0), 40);
        others(&mut history, 2 * COMPARED);
        assert_eq!(step(&mut history, 0), 0);
    }

    #[test]
    fn its_memory_is_bounded_and_old_places_are_forgotten() {
        let mut history = History::default();
        let first = history.request(1, StreamId::DEFAULT);
        history.set_place(first, Place::Home(1));
        for request in 0..3 * REMEMBERED as u64 {
            history.free(request % 1000 % history.requests());
        }
        assert_eq!(history.events.len(), REMEMBERED);
        assert!(history.get(first).is_none());
        history.set_place(first, Place::Home(2));
        let again = history.request(1, StreamId::DEFAULT);
        assert_eq!(history.places(again).next(), None);
    }
}
