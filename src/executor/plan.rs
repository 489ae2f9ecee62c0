//! Which calls run together.

use std::ops::Range;

/// Partition calls, in order, into batches: consecutive concurrency-safe calls together, every
/// other call alone. With `concurrent` off every call is alone.
///
/// `safe` says of each call whether it may run beside others; unknown tools may not.
#[must_use]
pub fn plan(safe: &[bool], concurrent: bool) -> Vec<Range<usize>> {
    let mut batches: Vec<Range<usize>> = Vec::with_capacity(safe.len());
    let mut joinable = false;
    for (index, &safe) in safe.iter().enumerate() {
        let safe = safe && concurrent;
        match batches.last_mut() {
            Some(last) if safe && joinable => last.end = index + 1,
            _ => batches.push(index..index + 1),
        }
        joinable = safe;
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::plan;

    #[test]
    fn consecutive_safe_calls_run_together_and_the_others_alone() {
        let batches = plan(&[true, true, false, true, false, false, true, true, true], true);
        assert_eq!(batches, [0..2, 2..3, 3..4, 4..5, 5..6, 6..9]);
    }

    #[test]
    fn without_concurrency_every_call_is_alone() {
        assert_eq!(plan(&[true, true, true], false), [0..1, 1..2, 2..3]);
    }

    #[test]
    fn no_calls_make_no_batches() {
        assert!(plan(&[], true).is_empty());
    }
}
