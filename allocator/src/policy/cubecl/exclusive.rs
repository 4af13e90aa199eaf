//! A page for each request, in buckets by size.
//!
//! 24 buckets take requests from 32 KiB to the largest page. A request goes to the smallest bucket that
//! takes it and gets a free page of the bucket that is large enough, the most used one among them.
//! Otherwise it gets a new page, as large as the average request of the bucket or as the request if that
//! is larger.
//!
//! Every page counts how often it was found free, less how often it was used. From time to time, less
//! often for larger pages, a bucket counts and returns the pages found free five times.
//!
//! Source: `MemoryManagement::from_configuration`, `ExclusiveMemoryPool`. The original counts when its user
//! asks for it: the wgpu backend after each batch of up to 32 tasks, the CUDA backend never. Here it counts
//! before every 32nd request.

use super::super::settings::{PolicySettings, PolicySettingsError};
use super::super::{Block, Policy, Refusal, Served, only_default};
use super::{ALIGNMENT, LARGER_THAN_A_PAGE, MaxPage, return_pages};
use crate::base::check::{Violation, ensure};
use crate::driver::{DeviceAddr, Driver, Status, StreamId};

/// The largest request of the first bucket: 32 KiB.
const MIN_BUCKET: u64 = 32 << 10;
/// Maximum number of buckets. Buckets of equal size are merged.
const BUCKETS: u32 = 24;
/// Weight of the last request in the average.
const AVERAGE_DECAY: f64 = 0.01;
/// Number of times that a page is found free before it is returned.
const RETURNED_AT: u32 = 5;
/// Requests until an empty page has been found free that often.
const BASE_PERIOD: f64 = 5000.0;
/// Bytes of a page that add another base period: 1 GiB.
const PERIOD_SCALE: f64 = (1 << 30) as f64;
/// Default number of requests between two looks for unused pages.
const DEFAULT_CLEANUP: u64 = 32;

/// The memory management of one stream.
#[derive(Clone, Debug)]
pub struct ExclusivePages {
    max_page: MaxPage,
    /// Requests between two looks for unused pages; 0 for never.
    cleanup: u64,
    /// Requests so far.
    requests: u64,
    /// Smallest first. Created at the first request.
    buckets: Vec<Bucket>,
}

#[derive(Clone, Debug)]
struct Bucket {
    /// Bytes of the largest request.
    max_size: u64,
    /// Minimum number of requests between two counts.
    period: u64,
    /// How many requests came before the last count.
    counted_at: u64,
    /// Average bytes of a request.
    average: f64,
    pages: Vec<Page>,
}

#[derive(Clone, Debug)]
struct Page {
    addr: DeviceAddr,
    bytes: u64,
    is_free: bool,
    /// Times found free, less times used.
    free_count: u32,
}

impl ExclusivePages {
    /// See [`Exclusive`](super::Exclusive).
    pub(super) fn from_settings(
        settings: &mut PolicySettings,
    ) -> Result<Self, PolicySettingsError> {
        let max_page = MaxPage::take(settings)?;
        let cleanup = settings.take("cleanup", DEFAULT_CLEANUP)?;
        Ok(Self {
            max_page,
            cleanup,
            requests: 0,
            buckets: Vec::new(),
        })
    }

    /// Returns the bucket for a request or page of this size.
    fn bucket_for(&mut self, bytes: u64) -> Option<&mut Bucket> {
        let mut buckets = self.buckets.iter_mut();
        buckets.find(|bucket| bytes <= bucket.max_size)
    }

    /// Lets the buckets count whose period is over.
    fn look_for_idle_pages(&mut self, device: &mut dyn Driver) -> Status {
        let mut outcome = Ok(());
        for bucket in &mut self.buckets {
            if self.requests - bucket.counted_at >= bucket.period {
                bucket.counted_at = self.requests;
                outcome = outcome.and(bucket.count(device, RETURNED_AT));
            }
        }
        outcome
    }
}

/// Returns buckets at equal distances on a logarithmic scale, up to the largest page.
fn buckets(max_page: u64) -> Vec<Bucket> {
    let smallest = (MIN_BUCKET as f64).ln();
    let range = (max_page as f64).ln() - smallest;
    let steps = f64::from(BUCKETS - 1);
    let size = |step| (smallest + range * (f64::from(step) / steps)).exp() as u64;
    let mut sizes: Vec<u64> = (0..BUCKETS)
        .map(|step| size(step).next_multiple_of(ALIGNMENT))
        .collect();
    sizes.dedup();
    sizes.into_iter().map(Bucket::new).collect()
}

impl Bucket {
    fn new(max_size: u64) -> Self {
        let period = BASE_PERIOD * (1.0 + max_size as f64 / PERIOD_SCALE).round();
        Self {
            max_size,
            period: period as u64 / u64::from(RETURNED_AT),
            counted_at: 0,
            average: max_size as f64 / 2.0,
            pages: Vec::new(),
        }
    }

    /// Takes a free page that is large enough, or a new one.
    fn reserve(&mut self, device: &mut dyn Driver, bytes: u64) -> Status<&Page> {
        self.average = self.average * (1.0 - AVERAGE_DECAY) + bytes as f64 * AVERAGE_DECAY;
        let index = match self.most_used(bytes) {
            Some(index) => index,
            None => self.add_page(device, bytes)?,
        };
        let page = &mut self.pages[index];
        page.is_free = false;
        page.free_count = page.free_count.saturating_sub(1);
        Ok(page)
    }

    /// Returns the free page with the lowest count, the first among equals.
    fn most_used(&self, bytes: u64) -> Option<usize> {
        let fits = |&(_, page): &(usize, &Page)| page.is_free && page.bytes >= bytes;
        let fitting = self.pages.iter().enumerate().filter(fits);
        let least = fitting.min_by_key(|(_, page)| page.free_count);
        least.map(|(index, _)| index)
    }

    fn add_page(&mut self, device: &mut dyn Driver, bytes: u64) -> Status<usize> {
        let bytes = (self.average as u64).max(bytes).next_multiple_of(ALIGNMENT);
        self.pages.push(Page {
            addr: device.malloc(bytes)?,
            bytes,
            is_free: true,
            // Returned when it is found free once after this use.
            free_count: RETURNED_AT,
        });
        Ok(self.pages.len() - 1)
    }

    /// Increases the count of all free pages and returns the pages that reach `limit`. A page that the
    /// device does not take back is kept.
    fn count(&mut self, device: &mut dyn Driver, limit: u32) -> Status {
        return_pages(&mut self.pages, device, |page| {
            page.free_count += u32::from(page.is_free);
            let is_over = page.is_free && page.free_count >= limit;
            is_over.then_some((page.addr, page.bytes))
        })
    }
}

impl Policy for ExclusivePages {
    fn malloc(&mut self, device: &mut dyn Driver, bytes: u64, stream: StreamId) -> Served<Block> {
        only_default(stream)?;
        if self.buckets.is_empty() {
            self.buckets = buckets(self.max_page.bytes(device));
        }
        if self.cleanup > 0 && self.requests > 0 && self.requests.is_multiple_of(self.cleanup) {
            self.look_for_idle_pages(device)?;
        }
        self.requests += 1;
        let bytes = bytes.next_multiple_of(ALIGNMENT);
        let bucket = self
            .bucket_for(bytes)
            .ok_or(Refusal::Unsupported(LARGER_THAN_A_PAGE))?;
        let page = bucket.reserve(device, bytes)?;
        Ok(Block::new(page.addr, page.bytes, stream))
    }

    fn free(&mut self, _: &mut dyn Driver, block: Block) -> Served {
        let Some(bucket) = self.bucket_for(block.bytes) else {
            return Ok(());
        };
        let mut pages = bucket.pages.iter_mut();
        if let Some(page) = pages.find(|page| page.addr == block.addr) {
            page.is_free = true;
        }
        Ok(())
    }

    fn empty_cache(&mut self, device: &mut dyn Driver) -> Served {
        let mut outcome = Ok(());
        for bucket in &mut self.buckets {
            bucket.counted_at = self.requests;
            outcome = outcome.and(bucket.count(device, 0));
        }
        Ok(outcome?)
    }

    fn check(&self) -> Result<(), Violation> {
        let mut smaller = 0;
        for bucket in &self.buckets {
            for page in &bucket.pages {
                ensure!(
                    smaller < page.bytes && page.bytes <= bucket.max_size,
                    "the page at {} of {} bytes is in the bucket up to {}",
                    page.addr,
                    page.bytes,
                    bucket.max_size
                );
            }
            smaller = bucket.max_size;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_from_32_kib_to_the_largest_page() {
        let buckets = buckets(20 << 30);
        assert_eq!(buckets.len(), 24);
        assert_eq!(buckets[0].max_size, 32 << 10);
        assert_eq!(buckets[23].max_size, 20 << 30);
        let ratio = |pair: &[Bucket]| pair[1].max_size as f64 / pair[0].max_size as f64;
        assert!(
            buckets
                .windows(2)
                .all(|pair| (1.77..1.82).contains(&ratio(pair)))
        );
        // 5000 requests plus 5000 for each GiB, in five counts.
        assert_eq!((buckets[0].period, buckets[23].period), (1000, 21_000));
    }

    #[test]
    fn the_smallest_devices_have_a_bucket() {
        for max_page in [0, 1, 511, 512] {
            assert!(!buckets(max_page).is_empty());
        }
    }
}
