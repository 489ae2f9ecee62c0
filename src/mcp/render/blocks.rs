//! Content blocks, as text for a model and as files in the store.
//!
//! A [`Page`] collects what the blocks of one result come to. Data is stored, or marked with what
//! it is and how large; it is never part of the text. A block that is not understood is shown
//! for what it is.

use std::{borrow::Cow, cell::OnceCell, fmt::Display, mem};

use serde_json::{Value, value::RawValue};

use super::{
    RenderOptions,
    limit::floor_boundary,
    members::{Members, items, text},
};
use crate::mcp::{
    artifacts::{Encoded, Image, Kind, Origin, Refused, Store, sniff},
    wire,
};

/// Longest data of an unknown block that is shown.
const OPAQUE_SHOWN: usize = 200;
/// Longest type, name or title that is shown.
const LABEL_SHOWN: usize = 200;
/// Longest address that is shown.
const URI_SHOWN: usize = 2000;
/// Files that one result may bring.
const MAX_STORED: usize = 100;

const UNKNOWN_TYPE: &str = "unknown type";
const IMAGE_NOT_STORED: &str = "(MCP tool returned an image that could not be stored)";

/// The arguments of a call by name, as texts.
pub(super) type Lookup<'a> = &'a dyn Fn(&str) -> Option<String>;

/// What the call was given, for the record of its images.
struct Given {
    prompt: String,
    model: String,
    provider: String,
}

/// Data after it was stored, or was not.
struct Data {
    mime: String,
    length: usize,
    /// What became of it; `None` without a store or without data.
    fate: Option<String>,
}

/// What the blocks of one result come to.
pub(super) struct Page<'a> {
    options: &'a RenderOptions,
    /// Present where images become artifacts: in the results of calls.
    arguments: Option<Lookup<'a>>,
    given: OnceCell<Given>,
    texts: Vec<Cow<'a, str>>,
    images: Vec<Image>,
    stored: usize,
}

impl<'a> Page<'a> {
    pub(super) const fn new(options: &'a RenderOptions, arguments: Option<Lookup<'a>>) -> Self {
        Self { options, arguments, given: OnceCell::new(), texts: Vec::new(), images: Vec::new(), stored: 0 }
    }

    /// The texts in order, and the images that were stored; the page is empty then.
    pub(super) fn take(&mut self) -> (Vec<Cow<'a, str>>, Vec<Image>) {
        (mem::take(&mut self.texts), mem::take(&mut self.images))
    }

    fn push(&mut self, text: impl Into<Cow<'a, str>>) {
        self.texts.push(text.into());
    }

    /// A list of blocks; a single block or a bare text where a list belongs counts as one.
    pub(super) fn blocks(&mut self, json: &'a str) {
        match items(json) {
            Some(blocks) => blocks.into_iter().for_each(|block| self.block(block.get())),
            None => self.block(json),
        }
    }

    /// The `messages` of a prompt: the content of each, which may be one block or a list.
    pub(super) fn messages(&mut self, json: &'a str) {
        let messages =
            items(json).map_or_else(|| vec![json], |all| all.into_iter().map(RawValue::get).collect());
        for message in messages {
            match Members::of(message).and_then(|message| message.get("content")) {
                Some(content) => self.blocks(content),
                None => self.block(message),
            }
        }
    }

    /// The `contents` of a resource.
    pub(super) fn contents(&mut self, json: &'a str) {
        match items(json) {
            Some(all) => all.into_iter().for_each(|contents| self.content(contents.get())),
            None => self.content(json),
        }
    }

    fn block(&mut self, json: &'a str) {
        let Some(block) = Members::of(json) else {
            return self.push(text(json).unwrap_or_else(|| opaque("unknown block", json).into()));
        };
        match block.text("type").as_deref() {
            Some("text") => self.push(block.text("text").unwrap_or("[text: no content]".into())),
            Some("image") => self.image(&block),
            Some("audio") => {
                let data = block.text("data");
                let data = self.keep(Kind::Audio, block.text("mimeType").as_deref(), data.as_deref());
                self.push(mark("audio: ", &data));
            }
            Some("resource_link") => self.link(&block),
            Some("resource") => match block.get("resource").map(|json| (json, Members::of(json))) {
                Some((_, Some(resource))) => self.embedded(&resource),
                Some((json, None)) => self.push(opaque("resource", json)),
                None => self.push("[resource: no content]"),
            },
            kind => self.push(opaque(kind.unwrap_or("unknown block"), json)),
        }
    }

    fn image(&mut self, block: &Members<'a>) {
        let data = block.text("data");
        let (Some(arguments), Some(store)) = (self.arguments, &self.options.artifacts) else {
            let data = self.keep(Kind::Blob, block.text("mimeType").as_deref(), data.as_deref());
            return self.push(mark("image: ", &data));
        };
        match self.store_image(store, arguments, &data.unwrap_or_default()) {
            Ok(image) => self.images.push(image),
            Err(why) => {
                self.warn(&why);
                self.push(IMAGE_NOT_STORED);
            }
        }
    }

    /// An embedded resource: its text is text, its data is not.
    fn embedded(&mut self, resource: &Members<'a>) {
        if let Some(content) = resource.text("text") {
            return self.push(content);
        }
        let (blob, mime) = (resource.text("blob"), resource.text("mimeType"));
        if let (Some(data), Some(arguments), Some(store)) = (&blob, self.arguments, &self.options.artifacts)
            && is_image(mime.as_deref(), data)
        {
            match self.store_image(store, arguments, data) {
                Ok(image) => return self.images.push(image),
                // What is no image that we know is a blob like any other.
                Err(Refused::NoImage) => {}
                Err(why) => {
                    self.warn(&why);
                    return self.push(IMAGE_NOT_STORED);
                }
            }
        }
        let data = self.keep(Kind::Blob, mime.as_deref(), blob.as_deref());
        let what = format!("resource: {}, ", uri(resource.text("uri").as_deref()));
        self.push(mark(&what, &data));
    }

    /// A link; one that carries its content in the address is stored like a blob.
    fn link(&mut self, block: &Members<'a>) {
        let address = block.text("uri");
        let mut shown = "[resource link: ".to_owned();
        if let Some(name) = block.text("title").or_else(|| block.text("name")) {
            shown.push_str(&label(&name));
            shown.push_str(", ");
        }
        shown.push_str(&uri(address.as_deref()));
        if let Some(url) = address.filter(|uri| Encoded::of_url(uri).is_some())
            && let Some(fate) = self.keep(Kind::Blob, block.text("mimeType").as_deref(), Some(&url)).fate
        {
            shown.push_str(", ");
            shown.push_str(&fate);
        }
        shown.push(']');
        self.push(shown);
    }

    /// One of the contents of a resource, in the reference's words.
    fn content(&mut self, json: &'a str) {
        let Some(contents) = Members::of(json) else {
            return self.push(text(json).unwrap_or_else(|| opaque("unknown content", json).into()));
        };
        if let Some(content) = contents.text("text") {
            return self.push(content);
        }
        let Some(blob) = contents.text("blob") else { return self.push(opaque("unknown content", json)) };
        let Data { mime, length, fate } =
            self.keep(Kind::Blob, contents.text("mimeType").as_deref(), Some(&blob));
        self.push(match fate {
            Some(fate) => format!("[Binary resource: {length} bytes, {mime}, {fate}]"),
            None => format!("[Binary resource: {length} bytes]"),
        });
    }

    /// Data outside of any block.
    pub(super) fn data(&mut self, data: &str) -> String {
        let mut kept = self.keep(Kind::Blob, None, Some(data));
        if kept.mime == UNKNOWN_TYPE
            && let Ok(bytes) = Encoded::new(data).decode(u64::MAX)
            && let Some(told) = sniff(&bytes)
        {
            told.clone_into(&mut kept.mime);
        }
        mark("", &kept)
    }

    fn store_image(&mut self, store: &Store, arguments: Lookup<'_>, data: &str) -> Result<Image, Refused> {
        self.count()?;
        let bytes = Encoded::new(data).decode(store.limits().item)?;
        let given = self.given.get_or_init(|| Given {
            prompt: arguments("prompt").unwrap_or_default(),
            model: arguments("model").unwrap_or_default(),
            provider: format!("mcp:{}", self.options.server),
        });
        let origin = Origin { prompt: &given.prompt, model: &given.model, provider: &given.provider };
        store.put_image(&bytes, origin)
    }

    /// Store data, and say what it is.
    fn keep(&mut self, kind: Kind, called: Option<&str>, data: Option<&str>) -> Data {
        let encoded = Encoded::new(data.unwrap_or_default());
        let called = called.or(encoded.mime).filter(|mime| !mime.is_empty());
        let mut kept = Data {
            mime: called.map_or_else(|| UNKNOWN_TYPE.to_owned(), label),
            length: encoded.length(),
            fate: None,
        };
        let Some(store) = &self.options.artifacts else { return kept };
        if kept.length == 0 {
            return kept;
        }
        let stored = self.count().and_then(|()| encoded.decode(store.limits().item)).and_then(|bytes| {
            kept.length = bytes.len();
            if let (None, Some(told)) = (called, sniff(&bytes)) {
                told.clone_into(&mut kept.mime);
            }
            store.put(kind, &bytes, called)
        });
        kept.fate = Some(match stored {
            Ok(path) => format!("stored as {path}"),
            Err(why) => {
                self.warn(&why);
                "could not be stored".to_owned()
            }
        });
        kept
    }

    fn count(&mut self) -> Result<(), Refused> {
        if self.stored >= MAX_STORED {
            return Err(Refused::TooMany);
        }
        self.stored += 1;
        Ok(())
    }

    fn warn(&self, why: &dyn Display) {
        let RenderOptions { server, tool, .. } = self.options;
        tracing::warn!(server = &**server, tool = &**tool, "data of a result could not be stored: {why}");
    }
}

/// `[audio: audio/wav, 1234 bytes, stored as /path]`
fn mark(what: &str, data: &Data) -> String {
    let Data { mime, length, fate } = data;
    match fate {
        Some(fate) => format!("[{what}{mime}, {length} bytes, {fate}]"),
        None => format!("[{what}{mime}, {length} bytes]"),
    }
}

/// Whether a blob is called an image, as the reference asks.
fn is_image(called: Option<&str>, data: &str) -> bool {
    let mime = called.or_else(|| Encoded::new(data).mime);
    mime.and_then(|mime| mime.get(..6)).is_some_and(|start| start.eq_ignore_ascii_case("image/"))
}

fn opaque(kind: &str, json: &str) -> String {
    let kind = label(kind);
    if json.len() <= OPAQUE_SHOWN * 2 {
        // Without the white space of the server's own.
        let shown = wire::from_str::<Value>(json).map_or_else(|_| json.to_owned(), |value| value.to_string());
        if shown.len() <= OPAQUE_SHOWN {
            return format!("[{kind}: {shown}]");
        }
    }
    format!("[{kind}: {} bytes of JSON]", json.len())
}

/// A text of the server's in one line of bounded length.
fn label(text: &str) -> String {
    clip(text, LABEL_SHOWN)
}

/// An address; data in it is not shown.
fn uri(uri: Option<&str>) -> String {
    let Some(uri) = uri else { return "no address".to_owned() };
    match Encoded::of_url(uri) {
        Some(data) => format!("data:{}, {} bytes", label(data.mime.unwrap_or("text/plain")), data.length()),
        None => clip(uri, URI_SHOWN),
    }
}

fn clip(text: &str, limit: usize) -> String {
    let end = floor_boundary(text, limit);
    let line = |c: char| if c.is_control() { ' ' } else { c };
    let mut out: String = text[..end].chars().map(line).collect();
    if end < text.len() {
        out.push_str("...");
    }
    out
}
