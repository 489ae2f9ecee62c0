//! How long to wait between attempts.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(60);

/// Delays that double, with jitter, so that servers lost together do not come back together.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    /// Connections in a row that were of no use.
    useless: u32,
}

impl Backoff {
    /// An attempt has failed: how long to wait before the next.
    pub(super) fn failed(&mut self) -> Duration {
        let delay = FIRST.saturating_mul(1 << self.failures.min(10)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        delay.mul_f64(0.8 + 0.4 * fastrand::f64()).min(LONGEST)
    }

    /// A connection has ended: how long to wait before an attempt. Not at all if it had been of use, so that
    /// it counts as a success, or if this happens for the first time.
    pub(super) fn ended(&mut self, was_of_use: bool) -> Duration {
        if was_of_use {
            *self = Self::default();
            return Duration::ZERO;
        }
        self.useless = self.useless.saturating_add(1);
        if self.useless == 1 { Duration::ZERO } else { self.failed() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_double_from_half_a_second_to_a_minute_and_a_success_starts_over() {
        let mut backoff = Backoff::default();
        for expected in [0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 60.0, 60.0] {
            let delay = backoff.failed().as_secs_f64();
            assert!((expected * 0.8..=expected * 1.2).contains(&delay) && delay <= 60.0, "{delay}");
        }
        assert!(backoff.ended(true).is_zero());
        assert!(backoff.ended(false).is_zero());
        assert!(!backoff.ended(false).is_zero());
        assert!(!backoff.ended(false).is_zero());
        assert!(backoff.ended(true).is_zero());
        assert!(backoff.failed() < Duration::from_secs(1));
    }
}
