//! How long the shelf takes, for docs/decisions/0011-catalogue-cache.md; not a promise.
//!
//! `cargo test --release --lib shelf::tests::speed -- --ignored --nocapture`

use super::*;

/// A tool with a description and a schema of about so many bytes.
fn item(n: usize, bytes: usize) -> Value {
    let properties: serde_json::Map<String, Value> = (0..bytes / 160)
        .map(|i| {
            let schema = json!({"type": "string", "description": format!("What the part {i} of it is. ").repeat(3),
                "default": "none", "maxLength": 100});
            (format!("argument_{i}"), schema)
        })
        .collect();
    json!({"name": format!("tool_{n}"), "description": "Does what its name says, and nothing else. ".repeat(5),
        "inputSchema": {"type": "object", "properties": properties, "required": ["argument_0"]}})
}

fn best(what: &str, mut run: impl FnMut()) {
    let mut times: Vec<_> = (0..40)
        .map(|_| {
            let begun = Instant::now();
            run();
            begun.elapsed()
        })
        .collect();
    times.sort();
    println!("  {what}: {:?} (median; fastest {:?})", times[20], times[0]);
}

#[test]
#[ignore = "it measures"]
fn how_long_it_takes() {
    for (count, bytes) in [(20, 900), (1000, 1900)] {
        let folder = tempfile::tempdir().unwrap();
        let shelf = Shelf::new(folder.path().to_owned());
        let offer = tools(&(0..count).map(|n| item(n, bytes)).collect::<Vec<_>>());
        let mut other = offer.clone();
        shelf.store("s", &plain(), NONE, &about(), &offer);
        println!("{count} tools, {} bytes", shelf.entries().unwrap()[0].bytes);
        best("load", || assert!(shelf.load("s", &plain(), NONE).is_some()));
        best("look for what is not there", || assert!(shelf.load("t", &plain(), NONE).is_none()));
        best("store, the same", || shelf.store("s", &plain(), NONE, &about(), &offer));
        let mut n = 0;
        best("store, another", || {
            n += 1;
            other.tools[0].description = Some(n.to_string());
            shelf.store("s", &plain(), NONE, &about(), &other);
        });
        best("changes, none", || assert!(changes(&offer, &offer).is_empty()));
        best("changes, one", || assert_eq!(changes(&offer, &other).len(), 1));
        let text = fs::read_to_string(file(folder.path())).unwrap();
        best("checksum alone", || {
            std::hint::black_box(Sha256::digest(&text));
        });
        best("parsing alone", || assert!(parse(&text).is_some()));
        let all = tools(&(0..count).map(|n| item(n, bytes + 400)).collect::<Vec<_>>());
        best("changes, all", || assert!(changes(&offer, &all).len() >= 20));
    }
}
