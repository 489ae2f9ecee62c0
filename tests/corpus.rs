//! What the fuzz targets are given to start with, and what they have found, holds.

#[path = "../fuzz/oracles.rs"]
mod oracles;

use std::{fs, path::Path};

fn replay(name: &str, check: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
    let seeds = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let mut number = 0;
    for seed in seeds {
        println!("{}", seed.display());
        check(&fs::read(&seed).unwrap());
        number += 1;
    }
    assert!(number >= 10, "the corpus in {} is missing", folder.display());
}

#[test]
fn what_servers_write_is_cut_into_lines_and_read() {
    replay("stdio", oracles::stdio);
}

#[test]
fn streams_are_cut_into_events_by_the_book() {
    replay("sse", oracles::sse);
}

#[test]
fn schemas_are_normalised_for_every_provider() {
    replay("schema", oracles::schema);
}

#[test]
fn results_are_rendered_whatever_they_are_made_of() {
    replay("render", oracles::render);
}
