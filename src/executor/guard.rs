//! Stops the same call from being made over and over.

use std::collections::HashMap;

use parking_lot::Mutex;
use sha2::{Digest, Sha256};

/// Counts calls by tool and arguments, and refuses one that was made too often.
///
/// A model that gets the same answer again and again tends to ask once more; see HKUDS/nanobot
/// reports 2298 and 3699.
#[derive(Debug)]
pub struct RepeatGuard {
    limit: u32,
    seen: Mutex<HashMap<[u8; 32], u32>>,
}

impl RepeatGuard {
    /// A guard that lets each call pass `limit` times (at least once).
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self { limit: limit.max(1), seen: Mutex::default() }
    }

    /// Count a call; the text of the refusal if it was made too often.
    ///
    /// `arguments` is their JSON text with sorted keys.
    pub fn check(&self, tool: &str, arguments: &[u8]) -> Result<(), String> {
        let mut hash = Sha256::new();
        hash.update(tool.as_bytes());
        hash.update([0]);
        hash.update(arguments);
        let mut seen = self.seen.lock();
        let count = seen.entry(hash.finalize().into()).or_default();
        if *count >= self.limit {
            return Err(format!(
                "Error: Tool '{tool}' was already called {count} times with the same arguments; the call \
                 was not run again. Use the earlier results, or change the arguments."
            ));
        }
        *count += 1;
        Ok(())
    }

    /// Forget all calls, as at the start of a new turn.
    pub fn reset(&self) {
        self.seen.lock().clear();
    }
}

#[cfg(test)]
mod tests {
    use super::RepeatGuard;

    #[test]
    fn the_same_call_is_refused_after_its_limit_and_others_are_not() {
        let guard = RepeatGuard::new(2);
        assert!(guard.check("a", b"{}").is_ok());
        assert!(guard.check("a", b"{}").is_ok());
        let text = guard.check("a", b"{}").expect_err("a third time");
        assert!(text.contains("'a'") && text.contains("2 times"), "{text}");
        assert!(guard.check("a", b"{\"x\":1}").is_ok());
        assert!(guard.check("b", b"{}").is_ok());
        guard.reset();
        assert!(guard.check("a", b"{}").is_ok());
    }
}
