//! What a server writes to its stdout, in chunks of any size.

#![no_main]

#[path = "../oracles.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod oracles;

libfuzzer_sys::fuzz_target!(|data: &[u8]| oracles::stdio(data));
