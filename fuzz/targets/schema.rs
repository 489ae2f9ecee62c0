//! The schema of a tool, for every provider.

#![no_main]

#[path = "../oracles.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod oracles;

libfuzzer_sys::fuzz_target!(|data: &[u8]| oracles::schema(data));
