//! Results of calls, resources and prompts.

#![no_main]

#[path = "../oracles.rs"]
#[allow(dead_code, reason = "each target uses a part")]
mod oracles;

libfuzzer_sys::fuzz_target!(|data: &[u8]| oracles::render(data));
