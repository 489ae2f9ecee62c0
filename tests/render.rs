//! Results as a model is shown them, and the files that hold what it is not shown.

use std::{fs, path::Path, sync::Arc};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use nanobot_tools::{
    ToolOutput,
    mcp::{
        artifacts::{Limits, Store},
        render::{RenderOptions, call_result, may_block, prompt_result, resource_result},
    },
};
use proptest::prelude::*;
use serde_json::{Value, json, value::RawValue};

const PNG: &[u8] = b"\x89PNG\r\n\x1a\n0000";
const NOT_STORED: &str = "(MCP tool returned an image that could not be stored)";

fn base64(bytes: &[u8]) -> String {
    BASE64_STANDARD.encode(bytes)
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).expect("JSON")
}

fn bare() -> RenderOptions {
    RenderOptions::new("srv", "t")
}

fn storing(root: &Path) -> RenderOptions {
    RenderOptions { artifacts: Some(Arc::new(Store::new(root))), ..bare() }
}

fn given(name: &str) -> Option<String> {
    match name {
        "prompt" => Some("a \"cat\" é".to_owned()),
        _ => None,
    }
}

fn call(content: &Value, options: &RenderOptions) -> String {
    text(call_result(&raw(&json!({"content": content}).to_string()), options, &given))
}

fn text(output: nanobot_tools::Result<ToolOutput>) -> String {
    output.expect("a result").as_text().expect("text").to_owned()
}

/// All files below a folder, with their paths relative to it.
fn files(root: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        if entry.path().is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path().display().to_string());
        }
    }
    found.sort();
    found
}

#[test]
fn an_image_becomes_an_artifact_as_the_reference_makes_one() {
    let folder = tempfile::tempdir().unwrap();
    let content = json!([
        {"type": "text", "text": "hi"},
        {"type": "image", "data": base64(PNG), "mimeType": "image/jpeg"},
        {"type": "text", "text": ""},
        {"type": "text", "text": "there é"},
    ]);
    let shown = call(&content, &storing(folder.path()));
    let parsed: Value = serde_json::from_str(&shown).unwrap();
    let keys: Vec<_> = parsed.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys, ["artifacts", "next_step", "text"]);
    assert_eq!(parsed["text"], "hi\nthere é");
    let artifact = parsed["artifacts"][0].as_object().unwrap();
    let keys: Vec<_> = artifact.keys().map(String::as_str).collect();
    assert_eq!(keys, ["id", "path", "mime", "prompt", "model", "provider", "source_images", "created_at"]);
    assert_eq!((&artifact["mime"], &artifact["model"]), (&json!("image/png"), &json!("")));
    assert_eq!(artifact["prompt"], "a \"cat\" é");
    assert_eq!(artifact["provider"], "mcp:srv");
    let path = Path::new(artifact["path"].as_str().unwrap());
    assert_eq!(fs::read(path).unwrap(), PNG);
    let record = fs::read_to_string(path.with_extension("json")).unwrap();
    assert!(
        record.starts_with("{\n  \"id\": \"img_") && record.contains("\"source_images\": [],\n"),
        "{record}"
    );
    assert_eq!(serde_json::from_str::<Value>(&record).unwrap(), parsed["artifacts"][0]);
    // Python's separators.
    assert!(shown.starts_with("{\"artifacts\": [{\"id\": \"img_"), "{shown}");
    assert!(shown.contains("\"source_images\": [], \"created_at\": \"20"), "{shown}");
}

#[test]
fn images_of_every_make_are_stored_and_never_pasted() {
    let folder = tempfile::tempdir().unwrap();
    let options = storing(folder.path());
    let wrapped = base64(&[PNG, &[7; 100][..]].concat());
    let wrapped = format!("{}\r\n{}\n", &wrapped[..76], &wrapped[76..]);
    for (data, mime, extension) in [
        (base64(PNG), "image/png", "png"),
        (wrapped, "image/png", "png"),
        (format!("data:image/png;base64,{}", base64(PNG)), "", "png"),
        (base64(b"<svg xmlns='http://www.w3.org/2000/svg'/>"), "image/svg+xml", "svg"),
        ("data:image/svg+xml,%3Csvg/%3E".to_owned(), "image/svg+xml", "svg"),
        (base64(b"GIF89a.."), "text/plain", "gif"),
    ] {
        let shown = call(&json!([{"type": "image", "data": data, "mimeType": mime}]), &options);
        let parsed: Value = serde_json::from_str(&shown).expect(&shown);
        let path = Path::new(parsed["artifacts"][0]["path"].as_str().unwrap());
        assert_eq!(path.extension().unwrap(), extension);
        assert!(path.is_file() && !shown.contains(&data));
    }
    let blob = json!([{"type": "resource", "resource": {"uri": "f:///x", "blob": base64(PNG), "mimeType": "image/png"}}]);
    assert!(call(&blob, &options).starts_with("{\"artifacts\": "));
}

#[test]
fn what_is_no_image_is_said_not_to_be_storable() {
    let folder = tempfile::tempdir().unwrap();
    let options = storing(folder.path());
    for data in [json!("not-valid-base64!!"), json!(base64(b"plain")), json!(""), json!(7), Value::Null] {
        let content = json!([{"type": "image", "data": data, "mimeType": "image/png"}]);
        assert_eq!(call(&content, &options), NOT_STORED);
    }
    let mixed = json!([{"type": "image", "data": "!"}, {"type": "image", "data": base64(PNG)}]);
    let parsed: Value = serde_json::from_str(&call(&mixed, &options)).unwrap();
    assert_eq!(parsed["text"], NOT_STORED);
}

#[test]
fn other_data_is_stored_and_marked() {
    let folder = tempfile::tempdir().unwrap();
    let options = storing(folder.path());
    let content = json!([
        {"type": "audio", "data": base64(b"RIFF....WAVEfmt "), "mimeType": "audio/wav"},
        {"type": "resource", "resource": {"uri": "f:///x", "blob": base64(b"PK\x03\x04...")}},
        {"type": "resource", "resource": {"uri": "f:///y", "text": "inside"}},
        {"type": "resource_link", "uri": "data:application/gzip;base64,H4sI", "name": "a.gz"},
        {"type": "audio", "data": "!!!", "mimeType": "audio/wav"},
        {"type": "audio"},
    ]);
    let shown = call(&content, &options);
    let lines: Vec<&str> = shown.lines().collect();
    let day = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let day = day.canonicalize().unwrap().display().to_string();
    let stored = |line: &str, head: &str, prefix: &str, extension: &str| {
        assert!(line.starts_with(&format!("[{head}, stored as {day}/{prefix}_")), "{line}");
        let path = line.trim_end_matches(']').split(" stored as ").nth(1).unwrap();
        assert!(path.ends_with(extension) && Path::new(path).is_file(), "{line}");
    };
    stored(lines[0], "audio: audio/wav, 16 bytes", "audio", ".wav");
    stored(lines[1], "resource: f:///x, application/zip, 7 bytes", "blob", ".zip");
    assert_eq!(lines[2], "inside");
    stored(lines[3], "resource link: a.gz, data:application/gzip, 3 bytes", "blob", ".gz");
    assert_eq!(lines[4], "[audio: audio/wav, 2 bytes, could not be stored]");
    assert_eq!(lines[5], "[audio: unknown type, 0 bytes]");
}

#[test]
fn resources_are_texts_and_binaries_in_the_references_words() {
    let result = json!({"contents": [
        {"uri": "f:///a", "text": "one"}, {"uri": "f:///b", "blob": base64(b"\0\x01\x02")}, {"uri": "f:///c"}, "two", 7,
    ]});
    let result = raw(&result.to_string());
    let expected =
        "one\n[Binary resource: 3 bytes]\n[unknown content: {\"uri\":\"f:///c\"}]\ntwo\n[unknown content: 7]";
    assert_eq!(text(resource_result(&result, &bare())), expected);
    let folder = tempfile::tempdir().unwrap();
    let shown = text(resource_result(&result, &storing(folder.path())));
    assert!(shown.contains("\n[Binary resource: 3 bytes, unknown type, stored as "), "{shown}");
    assert_eq!(files(folder.path()).len(), 1);
    for empty in ["{}", r#"{"contents":[]}"#, r#"{"contents":null}"#] {
        assert_eq!(text(resource_result(&raw(empty), &bare())), "(no output)");
    }
    assert!(resource_result(&raw("[]"), &bare()).is_err());
}

#[test]
fn prompts_are_the_contents_of_their_messages() {
    let result = json!({"description": "d", "messages": [
        {"role": "user", "content": {"type": "text", "text": "one"}},
        {"role": "assistant", "content": [{"type": "text", "text": "two"}, {"type": "image", "data": base64(PNG), "mimeType": "image/png"}]},
        {"role": "user", "content": "three"}, {"role": "user"}, null,
    ]});
    let result = raw(&result.to_string());
    assert_eq!(
        text(prompt_result(&result, &bare())),
        "one\ntwo\n[image: image/png, 12 bytes]\nthree\n[unknown block: {\"role\":\"user\"}]\n[unknown block: null]"
    );
    let folder = tempfile::tempdir().unwrap();
    let shown = text(prompt_result(&result, &storing(folder.path())));
    assert!(shown.contains("\n[image: image/png, 12 bytes, stored as "), "{shown}");
    assert_eq!(text(prompt_result(&raw("{}"), &bare())), "(no output)");
}

#[test]
fn structured_content_stands_in_for_text_without_its_data() {
    let folder = tempfile::tempdir().unwrap();
    let data = base64(&[PNG, &[7; 300][..]].concat());
    let result = json!({"content": [], "structuredContent": {"n": 1, "image": data}});
    let output = call_result(&raw(&result.to_string()), &storing(folder.path()), &given).unwrap();
    let shown = output.as_text().unwrap();
    assert!(shown.starts_with(r#"{"n":1,"image":"[image/png, 312 bytes, stored as "#), "{shown}");
    assert_eq!(
        serde_json::from_str::<Value>(output.structured.unwrap().get()).unwrap(),
        result["structuredContent"]
    );
    // Beside an image as well, where there is no text.
    let result =
        json!({"content": [{"type": "image", "data": data}], "structuredContent": {"n": 1, "image": data}});
    let output = call_result(&raw(&result.to_string()), &storing(folder.path()), &given).unwrap();
    let parsed: Value = serde_json::from_str(output.as_text().unwrap()).unwrap();
    assert!(
        parsed["text"].as_str().unwrap().starts_with(r#"{"n":1,"image":"[image/png, 312 bytes, stored as "#)
    );
}

#[test]
fn a_long_text_is_shown_in_part_and_kept_whole() {
    let folder = tempfile::tempdir().unwrap();
    let long: String =
        (0..10_000).flat_map(|n| ["line ".to_owned(), n.to_string(), " é\n".to_owned()]).collect();
    let content = json!([{"type": "text", "text": long}]);
    let options = RenderOptions { max_result_bytes: Some(1000), ..storing(folder.path()) };
    let shown = call(&content, &options);
    assert!(
        shown.len() <= 1000 && shown.starts_with("line 0 é\n") && shown.ends_with("line 9999 é\n"),
        "{shown}"
    );
    assert!(shown.contains(&format!(" of {} bytes left out here; the whole text is stored as ", long.len())));
    let path = shown.split("stored as ").nth(1).unwrap().split(": read it").next().unwrap();
    assert_eq!(fs::read_to_string(path).unwrap(), long);
    // Without a store it says that the rest is lost, and a short text is left alone.
    let shown = call(&content, &RenderOptions { max_result_bytes: Some(1000), ..bare() });
    assert!(shown.contains("the whole text was not kept"), "{shown}");
    assert_eq!(
        call(&json!([{"type": "text", "text": "é"}]), &RenderOptions { max_result_bytes: Some(2), ..bare() }),
        "é"
    );
    // The JSON of an image stays JSON.
    let with_image = json!([{"type": "text", "text": long}, {"type": "image", "data": base64(PNG)}]);
    let parsed: Value = serde_json::from_str(&call(&with_image, &options)).unwrap();
    assert!(parsed["text"].as_str().unwrap().len() <= 1000);
}

#[test]
fn a_folder_that_cannot_be_written_is_no_failure_of_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    fs::write(&file, "x").unwrap();
    let options = RenderOptions { max_result_bytes: Some(10), ..storing(&file) };
    assert_eq!(
        call(&json!([{"type": "image", "data": base64(PNG)}]), &bare()),
        "[image: unknown type, 12 bytes]"
    );
    let content = json!([{"type": "image", "data": base64(PNG)}]);
    let shown = call(&content, &RenderOptions { max_result_bytes: None, ..options.clone() });
    assert_eq!(shown, NOT_STORED);
    let content = json!([{"type": "audio", "data": base64(b"x"), "mimeType": "audio/wav"}]);
    let shown = call(&content, &RenderOptions { max_result_bytes: None, ..options.clone() });
    assert_eq!(shown, "[audio: audio/wav, 1 bytes, could not be stored]");
    assert!(
        call(&json!([{"type": "text", "text": "x".repeat(99)}]), &options).contains("could not be stored")
    );
}

#[test]
fn what_is_larger_than_an_item_may_be_is_not_stored() {
    let folder = tempfile::tempdir().unwrap();
    let limits = Limits { item: 8, ..Limits::default() };
    let store = Some(Arc::new(Store::with_limits(folder.path(), limits)));
    let options = RenderOptions { artifacts: store, ..bare() };
    assert_eq!(call(&json!([{"type": "image", "data": base64(PNG)}]), &options), NOT_STORED);
    assert!(files(folder.path()).is_empty());
}

#[test]
fn one_result_brings_a_bounded_number_of_files() {
    let folder = tempfile::tempdir().unwrap();
    let blocks: Vec<Value> =
        (0..200).map(|n| json!({"type": "audio", "data": base64(format!("{n}").as_bytes())})).collect();
    let shown = call(&json!(blocks), &storing(folder.path()));
    assert_eq!(files(folder.path()).len(), 100);
    assert_eq!(shown.matches("could not be stored").count(), 100);
}

#[test]
fn content_that_is_no_content_is_malformed_in_the_references_words() {
    let output = call_result(&raw(r#"{"content":5}"#), &bare(), &given).unwrap();
    assert!(output.is_error);
    assert_eq!(output.as_text(), Some("(MCP tool returned malformed content: TypeError)"));
}

#[test]
fn deep_nesting_and_duplicates_are_no_failure() {
    let deep = format!("{}{}", "[".repeat(200_000), "]".repeat(200_000));
    let result =
        raw(&format!(r#"{{"content":[{{"type":"video","x":{deep}}},{deep}],"structuredContent":{deep}}}"#));
    let output = call_result(&result, &bare(), &given).unwrap();
    assert!(output.as_text().unwrap().starts_with("[video: 400021 bytes of JSON]\n"));
    let twice = raw(
        r#"{"content":[],"content":[{"type":"text","type":"text","text":"a","text":"b"}],"isError":"True"}"#,
    );
    let output = call_result(&twice, &bare(), &given).unwrap();
    assert_eq!((output.as_text(), output.is_error), (Some("b"), true));
}

#[test]
fn what_may_write_files_is_told_beforehand() {
    let folder = tempfile::tempdir().unwrap();
    let image = raw(&json!({"content": [{"type": "image", "data": "QUJD"}]}).to_string());
    let plain = raw(r#"{"content":[{"type":"text","text":"a"}]}"#);
    assert!(may_block(&image, &storing(folder.path())) && !may_block(&image, &bare()));
    assert!(!may_block(&plain, &storing(folder.path())));
    assert!(may_block(&plain, &RenderOptions { max_result_bytes: Some(1), ..storing(folder.path()) }));
}

/// What differs from run to run, in the words of `tests/python/reference_render.py`.
fn normalised(shown: &str, root: &Path) -> String {
    let root = root.canonicalize().unwrap_or_default();
    let shown = shown.replace(root.to_str().expect("Unicode"), "ROOT");
    let replace = |text: String, pattern: &str, by: &str| {
        regex::Regex::new(pattern).expect("a pattern").replace_all(&text, by).into_owned()
    };
    let shown = replace(shown, "(img|audio|blob)_[0-9a-f]{16}", "${1}_ID");
    let shown = replace(shown, r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}[+-]\d\d:\d\d", "TIME");
    replace(shown, r"\d{4}-\d\d-\d\d", "DATE")
}

#[test]
fn results_are_shown_as_the_reference_shows_them_but_for_named_differences() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/rendering.json");
    let fixture: Value = serde_json::from_slice(&fs::read(fixture).unwrap()).unwrap();
    for case in fixture["cases"].as_array().unwrap() {
        let folder = tempfile::tempdir().unwrap();
        let (options, result) = (storing(folder.path()), raw(&case["result"].to_string()));
        let given = |name: &str| case["arguments"][name].as_str().map(str::to_owned);
        let output = match case["kind"].as_str().unwrap() {
            "call" => call_result(&result, &options, &given),
            "resource" => resource_result(&result, &options),
            _ => prompt_result(&result, &options),
        };
        let expected = case.get("ours").unwrap_or(&case["reference"]);
        assert_eq!(json!(normalised(&text(output), folder.path())), *expected, "{}", case["name"]);
    }
}

/// What holds for every result: it is rendered, and no data is pasted.
fn check(bytes: &[u8], folder: &Path) {
    let Ok(json) = std::str::from_utf8(bytes) else { return };
    let Ok(raw) = RawValue::from_string(json.to_owned()) else { return };
    let tight = RenderOptions { max_result_bytes: Some(64), ..storing(folder) };
    for options in [bare(), storing(folder), RenderOptions { max_result_bytes: Some(64), ..bare() }, tight] {
        for output in [
            call_result(&raw, &options, &given),
            resource_result(&raw, &options),
            prompt_result(&raw, &options),
        ]
        .into_iter()
        .flatten()
        {
            let shown = output.as_text().expect("text");
            assert!(!shown.is_empty());
            if options.max_result_bytes.is_some() && !shown.starts_with("{\"artifacts\": ") {
                assert!(shown.len() < 1000 + folder.as_os_str().len(), "{shown}");
            }
        }
    }
}

#[test]
fn the_corpus_is_rendered_whole() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus/render");
    let seeds = files(&corpus);
    assert!(seeds.len() >= 20, "the corpus is missing");
    for seed in seeds {
        check(&fs::read(&seed).unwrap(), folder.path());
    }
    // Nothing is written but into folders of days.
    for entry in fs::read_dir(folder.path()).unwrap() {
        assert_eq!(entry.unwrap().file_name().len(), "2026-12-01".len());
    }
}

fn member() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "(text|image|audio|resource|resource_link|true|data:image/png;base64,|iVBORw0KGgo=|R0lGODlh|PHN2Zy8\\+|é| |=|\\PC){0,4}"
            .prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 5, |inner| {
        let key = "(type|text|data|blob|uri|name|title|mimeType|resource|content|contents|messages|role|structuredContent|isError|resultType|_meta)";
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            prop::collection::vec((key, inner), 0..6).prop_map(|all| Value::Object(all.into_iter().collect())),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn whatever_a_server_answers_is_rendered(value in member(), kind in "(content|contents|messages)") {
        let folder = tempfile::tempdir().unwrap();
        check(json!({kind: value}).to_string().as_bytes(), folder.path());
        check(value.to_string().as_bytes(), folder.path());
    }

    #[test]
    fn text_comes_through_as_it_is(texts in prop::collection::vec("\\PC{1,20}", 1..5)) {
        let content: Vec<Value> = texts.iter().map(|text| json!({"type": "text", "text": text})).collect();
        prop_assert_eq!(call(&json!(content), &bare()), texts.join("\n"));
    }
}
