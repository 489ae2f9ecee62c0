//! What calls came to: how many there were, which errors, how long they took.
//!
//! A [`Meter`] belongs to one tool of a registry, or to one server. It costs a call two readings of the clock and
//! two short locks. Times go into buckets, eight to each power of two, so that a percentile is right to a
//! sixteenth however many calls there were.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use crate::{error::Result, tool::ToolOutput};

/// Times are counted in units of 128 ns; what takes less than eight of them is in the first bucket.
const UNIT: u32 = 7;
/// Buckets up to some two hours; what takes longer is in the last.
const BUCKETS: usize = 272;

/// What is known of some calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stats {
    /// Calls that were made, also those that were refused before they began.
    pub calls: u64,
    /// Calls that are under way.
    pub running: u64,
    /// How many calls ended in each kind of error, in the order in which the kinds first came.
    pub errors: Vec<(&'static str, u64)>,
    /// How long those took that began and have ended.
    pub latency: Latency,
}

/// How long calls took.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Latency {
    /// How many.
    pub count: u64,
    /// All together.
    pub sum: Duration,
    /// The longest.
    pub max: Duration,
    /// What half of them took at most, to a sixteenth; zero without any.
    pub p50: Duration,
    /// What 95 of 100 took at most, to a sixteenth; zero without any.
    pub p95: Duration,
}

#[derive(Default)]
struct Counts {
    calls: u64,
    running: u64,
    errors: Vec<(&'static str, u64)>,
    count: u64,
    sum: Duration,
    max: Duration,
    /// Made with the first call: most tools of an agent are never called.
    buckets: Vec<u32>,
}

impl Counts {
    fn failed(&mut self, kind: &'static str) {
        match self.errors.iter_mut().find(|(known, _)| *known == kind) {
            Some((_, count)) => *count += 1,
            None => self.errors.push((kind, 1)),
        }
    }

    fn percentile(&self, percent: u64) -> Duration {
        let wanted = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        for (index, count) in self.buckets.iter().enumerate() {
            seen += u64::from(*count);
            if seen >= wanted && seen > 0 {
                return middle(index).min(self.max);
            }
        }
        Duration::ZERO
    }
}

/// Counts calls. See the module's text.
#[derive(Default)]
pub struct Meter(Mutex<Counts>);

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Meter").field(&self.read()).finish()
    }
}

impl Meter {
    /// A call begins.
    #[must_use]
    pub fn begin(self: &Arc<Self>) -> Tally {
        {
            let mut counts = self.0.lock();
            counts.calls += 1;
            counts.running += 1;
        }
        Tally { meter: Some(Arc::clone(self)), begun: Instant::now() }
    }

    /// A call was refused before it began.
    pub fn refused(&self, kind: &'static str) {
        let mut counts = self.0.lock();
        counts.calls += 1;
        counts.failed(kind);
    }

    /// What is known so far.
    #[must_use]
    pub fn read(&self) -> Stats {
        let counts = self.0.lock();
        Stats {
            calls: counts.calls,
            running: counts.running,
            errors: counts.errors.clone(),
            latency: Latency {
                count: counts.count,
                sum: counts.sum,
                max: counts.max,
                p50: counts.percentile(50),
                p95: counts.percentile(95),
            },
        }
    }

    fn ended(&self, took: Duration, kind: Option<&'static str>) {
        let mut counts = self.0.lock();
        counts.running -= 1;
        if let Some(kind) = kind {
            counts.failed(kind);
        }
        counts.count += 1;
        counts.sum += took;
        counts.max = counts.max.max(took);
        if counts.buckets.is_empty() {
            counts.buckets = vec![0; BUCKETS];
        }
        let bucket = &mut counts.buckets[bucket_of(took)];
        *bucket = bucket.saturating_add(1);
    }
}

/// A call that is counted; one that is dropped was cancelled.
#[derive(Debug)]
pub struct Tally {
    meter: Option<Arc<Meter>>,
    begun: Instant,
}

impl Tally {
    /// When the call began.
    #[must_use]
    pub const fn begun(&self) -> Instant {
        self.begun
    }

    /// The call has ended, in an error of this kind or well.
    pub fn end(mut self, kind: Option<&'static str>) {
        if let Some(meter) = self.meter.take() {
            meter.ended(self.begun.elapsed(), kind);
        }
    }

    /// The call has ended like this.
    pub fn end_with(self, result: &Result<ToolOutput>) {
        self.end(match result {
            Ok(output) => output.is_error.then_some("tool_error"),
            Err(error) => Some(error.code()),
        });
    }
}

impl Drop for Tally {
    fn drop(&mut self) {
        if let Some(meter) = self.meter.take() {
            meter.ended(self.begun.elapsed(), Some("cancelled"));
        }
    }
}

fn bucket_of(took: Duration) -> usize {
    let units = (u64::try_from(took.as_nanos()).unwrap_or(u64::MAX) >> UNIT).max(8);
    let octave = 60 - units.leading_zeros();
    let part = (units >> octave) & 7;
    (octave as usize * 8 + usize::try_from(part).unwrap_or(0)).min(BUCKETS - 1)
}

/// The time in the middle of a bucket.
fn middle(bucket: usize) -> Duration {
    let (octave, part) = (bucket / 8, (bucket % 8) as u64);
    let (from, width) = ((8 + part) << octave, 1_u64 << octave);
    Duration::from_nanos((from << UNIT) + ((width << UNIT) >> 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_is_in_a_bucket_whose_middle_is_near() {
        for exponent in 10..42 {
            for nanos in [1_u64 << exponent, (1 << exponent) + (1 << (exponent - 1)), (2 << exponent) - 1] {
                let middle =
                    u64::try_from(middle(bucket_of(Duration::from_nanos(nanos))).as_nanos()).unwrap();
                assert!(middle.abs_diff(nanos) <= nanos / 16 + 1, "{nanos} is shown as {middle}");
            }
        }
        assert_eq!(bucket_of(Duration::ZERO), 0);
        assert_eq!(bucket_of(Duration::MAX), BUCKETS - 1);
    }

    #[test]
    fn percentiles_are_those_of_the_calls_to_a_sixteenth() {
        let meter = Meter::default();
        assert_eq!(meter.read(), Stats::default());
        meter.0.lock().running = 100;
        for milliseconds in 1..=100 {
            meter.ended(Duration::from_millis(milliseconds), None);
        }
        let latency = meter.read().latency;
        assert_eq!((latency.count, latency.max), (100, Duration::from_millis(100)));
        assert_eq!(latency.sum, Duration::from_millis(5050));
        assert!((47..=53).contains(&latency.p50.as_millis()), "{:?}", latency.p50);
        assert!((89..=100).contains(&latency.p95.as_millis()), "{:?}", latency.p95);
    }

    #[test]
    fn each_call_ends_once_and_one_that_is_dropped_was_cancelled() {
        let meter = Arc::new(Meter::default());
        let (well, badly, dropped) = (meter.begin(), meter.begin(), meter.begin());
        assert_eq!(meter.read().running, 3);
        well.end(None);
        badly.end(Some("timeout"));
        drop(dropped);
        meter.refused("invalid_arguments");
        let stats = meter.read();
        assert_eq!((stats.calls, stats.running, stats.latency.count), (4, 0, 3));
        assert_eq!(stats.errors, [("timeout", 1), ("cancelled", 1), ("invalid_arguments", 1)]);
    }
}
