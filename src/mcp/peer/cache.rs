//! Results that a server says may be used again for a while (2026-07-28, `ttlMs`).
//!
//! Kept per connection, which belongs to one user, so that `cacheScope` makes no difference here. A
//! change that the server announces drops what it concerns.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Results that are kept; when there are more, the ones that end first go.
const MAX_ENTRIES: usize = 256;
/// A larger result is not kept.
const MAX_BYTES: usize = 1 << 20;
/// Longest time that a server is believed.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// A request that may be answered out of the cache: method and parameters.
pub(super) type Key = (&'static str, Vec<u8>);

#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: Mutex<HashMap<Key, (Instant, Box<RawValue>)>>,
}

/// The method, if its results may be kept.
pub(super) fn cacheable(method: &str) -> Option<&'static str> {
    ["tools/list", "resources/list", "resources/templates/list", "prompts/list", "resources/read"]
        .into_iter()
        .find(|known| *known == method)
}

/// How long a result may be used again.
pub(super) fn fresh_for(result: &RawValue) -> Option<Duration> {
    #[derive(Deserialize)]
    struct Hint {
        #[serde(rename = "ttlMs", default)]
        ttl_ms: Option<f64>,
    }
    memchr::memmem::find(result.get().as_bytes(), b"\"ttlMs\"")?;
    let ttl = serde_json::from_str::<Hint>(result.get()).ok()?.ttl_ms?;
    let ttl = Duration::try_from_secs_f64(ttl / 1000.0).ok()?;
    (!ttl.is_zero()).then(|| ttl.min(LONGEST))
}

impl Cache {
    pub(super) fn get(&self, key: &Key) -> Option<Box<RawValue>> {
        let mut entries = self.entries.lock();
        let (until, result) = entries.get(key)?;
        if *until > Instant::now() {
            return Some(result.clone());
        }
        entries.remove(key);
        None
    }

    pub(super) fn put(&self, key: Key, result: &RawValue) {
        let Some(until) = fresh_for(result).and_then(|ttl| Instant::now().checked_add(ttl)) else { return };
        if result.get().len() > MAX_BYTES {
            return;
        }
        let mut entries = self.entries.lock();
        if entries.len() >= MAX_ENTRIES
            && let Some(first) =
                entries.iter().min_by_key(|(_, (until, _))| *until).map(|(key, _)| key.clone())
        {
            entries.remove(&first);
        }
        entries.insert(key, (until, result.to_owned()));
    }

    /// Drop what `concerns` says of a method and the parameters of a request.
    pub(super) fn drop_if(&self, concerns: impl Fn(&str, &[u8]) -> bool) {
        self.entries.lock().retain(|(method, params), _| !concerns(method, params));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(json: &str) -> Box<RawValue> {
        RawValue::from_string(json.to_owned()).unwrap()
    }

    #[test]
    fn only_what_the_server_says_is_kept_and_not_for_longer() {
        let cache = Cache::default();
        let key = |name: &str| ("resources/read", name.as_bytes().to_vec());
        cache.put(key("a"), &result(r#"{"contents":[],"ttlMs":60000}"#));
        cache.put(key("b"), &result(r#"{"contents":[]}"#));
        cache.put(key("c"), &result(r#"{"contents":[],"ttlMs":0}"#));
        cache.put(key("d"), &result(r#"{"contents":[{"ttlMs":60000}],"ttlMs":"x"}"#));
        cache.put(key("e"), &result(r#"{"contents":[],"ttlMs":1}"#));
        std::thread::sleep(Duration::from_millis(5));
        let held: Vec<bool> = ["a", "b", "c", "d", "e"].map(|name| cache.get(&key(name)).is_some()).into();
        assert_eq!(held, [true, false, false, false, false]);
        cache.drop_if(|method, params| method == "resources/read" && params == b"a");
        assert!(cache.get(&key("a")).is_none());
    }

    #[test]
    fn the_cache_is_bounded_and_no_hint_is_believed_for_ever() {
        let cache = Cache::default();
        for n in 0..2 * MAX_ENTRIES {
            cache.put(("resources/read", n.to_string().into_bytes()), &result(r#"{"ttlMs":1e300}"#));
            cache.put(("resources/read", n.to_string().into_bytes()), &result(r#"{"ttlMs":9e9}"#));
        }
        assert_eq!(cache.entries.lock().len(), MAX_ENTRIES);
        assert_eq!(fresh_for(&result(r#"{"ttlMs":9e12}"#)), Some(LONGEST));
        assert_eq!(fresh_for(&result(r#"{"ttlMs":-5}"#)), None);
    }
}
