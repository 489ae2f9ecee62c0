//! What holds for every input, whoever wrote it: shared by the fuzz targets and by the test that
//! replays their corpora. Each function panics when it does not.

use std::sync::{Arc, OnceLock};

use nanobot_tools::{
    fuzzing::{self, Line},
    mcp::{
        artifacts::{Limits, Store},
        render::{self, RenderOptions},
    },
    net::sse::{Event, Parser},
    schema::normalise::{Profile, normalise},
};
use serde_json::{Value, value::RawValue};

/// The first byte says how the rest is cut into chunks.
fn chunks(data: &[u8]) -> (&[u8], impl Iterator<Item = &[u8]>) {
    let (size, rest) =
        data.split_first().map_or((1, data), |(size, rest)| (usize::from(*size % 61) + 1, rest));
    (rest, rest.chunks(size))
}

/// However the bytes are cut, the lines are those between the LFs; those over the limit say how long
/// they were; and whatever is in a line, the inbox survives it and comes to an end.
pub(crate) fn stdio(data: &[u8]) {
    const LIMIT: usize = 200;
    let (whole, chunks) = chunks(data);
    let lines = fuzzing::lines(LIMIT, chunks);
    let mut wanted: Vec<&[u8]> = whole.split(|byte| *byte == b'\n').collect();
    // What follows the last LF is a line only if there is something.
    if wanted.last().is_some_and(|line| line.is_empty()) {
        wanted.pop();
    }
    assert_eq!(lines.len(), wanted.len());
    for (line, wanted) in lines.iter().zip(wanted) {
        match line {
            Line::Whole(line) => assert_eq!(line, wanted),
            Line::TooLong { length, .. } => assert_eq!((*length, *length > LIMIT), (wanted.len(), true)),
        }
    }
    fuzzing::deliver(whole);
}

/// However the bytes are cut, the events are those that the standard's own wording gives.
pub(crate) fn sse(data: &[u8]) {
    let (whole, chunks) = chunks(data);
    let mut parser = Parser::new(usize::MAX);
    let mut events = Vec::new();
    for chunk in chunks {
        events.extend(parser.feed(chunk));
    }
    let (wanted, last_id) = by_the_book(whole);
    assert_eq!(events, wanted);
    assert_eq!(parser.last_id().unwrap_or_default(), last_id);
    let _ = parser.unfinished();

    // A limit costs what is over it, and nothing else hangs or panics.
    let mut parser = Parser::new(64);
    let few: Vec<Event> = parser.feed(whole).collect();
    for event in few {
        if let Event::Message { data, .. } = event {
            assert!(data.len() <= 64 * 3, "{}", data.len());
        }
    }
}

/// The algorithm of the HTML standard, line by line over the whole, with no regard for time.
fn by_the_book(bytes: &[u8]) -> (Vec<Event>, String) {
    let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
    let mut lines = Vec::new();
    let mut line = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'\r' | b'\n' => {
                if bytes[at] == b'\r' && bytes.get(at + 1) == Some(&b'\n') {
                    at += 1;
                }
                lines.push(std::mem::take(&mut line));
            }
            byte => line.push(byte),
        }
        at += 1;
    }
    let (mut events, mut kind, mut data) = (Vec::new(), String::new(), None::<Vec<u8>>);
    let (mut id, mut last_id) = (String::new(), String::new());
    for line in lines {
        if line.is_empty() {
            last_id.clone_from(&id);
            if let Some(data) = data.take() {
                let data = String::from_utf8_lossy(&data).into_owned();
                events.push(Event::Message { kind: std::mem::take(&mut kind), data });
            }
            kind.clear();
            continue;
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (field, value) = line.split_at(colon.unwrap_or(line.len()));
        let value = value.strip_prefix(b":").unwrap_or(value);
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => kind = String::from_utf8_lossy(value).into_owned(),
            b"data" => match &mut data {
                None => data = Some(value.to_vec()),
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
            },
            b"id" if !value.contains(&0) => id = String::from_utf8_lossy(value).into_owned(),
            _ => {}
        }
    }
    (events, last_id)
}

/// A schema for a provider is an object schema, the same each time, and not much larger than what the server sent.
pub(crate) fn schema(data: &[u8]) {
    let Ok(schema) = serde_json::from_slice::<Value>(data) else { return };
    let size = schema.to_string().len();
    for profile in Profile::ALL {
        let once = normalise(&schema, profile);
        assert_eq!(once, normalise(&schema, profile), "{profile}");
        match profile {
            Profile::JsonSchema if schema.is_object() => assert_eq!(once, schema),
            Profile::Gemini => assert_eq!(once["type"], "object"),
            _ => {
                assert_eq!(once["type"], "object", "{profile}");
                let made = once.to_string().len();
                assert!(made <= size * 11 / 5 + 256, "{profile}: {made} of {size}");
            }
        }
    }
}

/// Whatever a result is made of, something is shown; within the limit, if there is one; and without a place
/// for files, the same each time.
pub(crate) fn render(data: &[u8]) {
    const LIMIT: usize = 64;
    static STORE: OnceLock<Arc<Store>> = OnceLock::new();
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(raw) = RawValue::from_string(text.to_owned()) else { return };
    let store = STORE.get_or_init(|| {
        let root = std::env::temp_dir().join("nanobot-tools-fuzzing");
        Arc::new(Store::with_limits(root, Limits { item: 4096, total: 1 << 20, ..Limits::default() }))
    });
    let none = RenderOptions::new("server", "tool");
    let limited = RenderOptions { max_result_bytes: Some(LIMIT), ..none.clone() };
    let storing = RenderOptions { artifacts: Some(Arc::clone(store)), ..limited.clone() };
    for options in [none, limited, storing] {
        let once = rendered(&raw, &options);
        if options.artifacts.is_none() {
            assert_eq!(once, rendered(&raw, &options));
        }
        for shown in once.into_iter().flatten() {
            assert!(!shown.is_empty());
            if options.max_result_bytes.is_some() && options.artifacts.is_none() {
                assert!(shown.len() < LIMIT + 1000, "{shown}");
            }
        }
    }
}

fn rendered(raw: &RawValue, options: &RenderOptions) -> [Option<String>; 3] {
    let given = |name: &str| Some(format!("the {name}"));
    [
        render::call_result(raw, options, &given),
        render::resource_result(raw, options),
        render::prompt_result(raw, options),
    ]
    .map(|result| result.ok().and_then(|output| output.as_text().map(str::to_owned)))
}
