//! What a `$ref` means inside one schema, and the names under which targets move into `$defs`.
//!
//! Nothing is fetched and nothing outside the schema is known: a reference that leads out of it, or to
//! nothing, is lost, and what stood there admits anything.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::keywords::{Object, children, size};

/// References that are moved into `$defs`; further ones are lost.
const MAX_MOVED: usize = 512;
/// Subschemas may lie this deep to be found by their `$anchor` or `$id`.
const MAX_DEPTH: usize = 64;

/// What becomes of a reference.
pub(super) enum Target {
    /// It names a definition of the root and stays.
    Stays,
    /// It now is this.
    Moved(String),
    Lost,
}

pub(super) struct Refs<'a> {
    pub(super) root: &'a Value,
    defs: Option<&'a Object>,
    known: HashMap<&'a str, Option<String>>,
    /// Definitions that are to be written: name and target. A queue, so that chains of references cost no
    /// stack.
    pub(super) queue: Vec<(String, &'a Value)>,
    /// Definitions of the root that moved as a whole, so that the original may go.
    pub(super) replaced: HashSet<String>,
    pub(super) used: HashSet<String>,
    named: Option<HashMap<String, &'a Value>>,
    /// Bytes that may still be copied.
    budget: usize,
}

impl<'a> Refs<'a> {
    pub(super) fn new(root: &'a Value, budget: usize) -> Self {
        Self {
            root,
            defs: root.get("$defs").and_then(Value::as_object),
            known: HashMap::new(),
            queue: Vec::new(),
            replaced: HashSet::new(),
            used: HashSet::new(),
            named: None,
            budget,
        }
    }

    pub(super) fn target(&mut self, reference: &'a str) -> Target {
        if let Some(name) = reference.strip_prefix("#/$defs/")
            && is_plain(name)
        {
            if !self.defs.and_then(|defs| defs.get(name)).is_some_and(is_schema) {
                return Target::Lost;
            }
            if !self.used.contains(name) {
                self.used.insert(name.to_owned());
            }
            return Target::Stays;
        }
        if let Some(known) = self.known.get(reference) {
            return moved(known.as_deref());
        }
        let name = self.find(reference);
        let target = moved(name.as_deref());
        self.known.insert(reference, name);
        target
    }

    /// The name of the definition that `reference` gets.
    fn find(&mut self, reference: &'a str) -> Option<String> {
        let local = self.local(reference);
        let target = if let Some(fragment) = local {
            let pointer = percent_decode(fragment)?;
            if let Some(name) = pointer.strip_prefix("/$defs/").map(unescape)
                && is_plain(&name)
                && self.defs.and_then(|defs| defs.get(&name)).is_some_and(is_schema)
            {
                self.used.insert(name.clone());
                return Some(name);
            }
            if pointer.is_empty() || pointer.starts_with('/') {
                if let Some(name) = pointer.strip_prefix("/$defs/")
                    && !name.contains('/')
                {
                    self.replaced.insert(unescape(name));
                }
                resolve(self.root, &pointer)
            } else {
                self.named(&format!("#{pointer}"))
            }
        } else {
            self.named(reference)
        }?;
        if !is_schema(target) || self.queue.len() >= MAX_MOVED {
            return None;
        }
        self.budget = self.budget.checked_sub(size(target))?;
        let digest = format!("{:x}", Sha256::digest(reference));
        let mut name = format!("ref_{}", &digest[..12]);
        while self.defs.is_some_and(|defs| defs.contains_key(&name)) {
            name.push('_');
        }
        self.queue.push((name.clone(), target));
        Some(name)
    }

    /// The fragment of a reference into this schema, which may spell out the root's `$id`.
    fn local(&self, reference: &'a str) -> Option<&'a str> {
        if let Some(fragment) = reference.strip_prefix('#') {
            return Some(fragment);
        }
        let id = self.root.get("$id")?.as_str()?.trim_end_matches('#');
        let rest = reference.strip_prefix(id).filter(|_| !id.is_empty())?;
        if rest.is_empty() { Some("") } else { rest.strip_prefix('#') }
    }

    /// The subschema with this `$anchor` (with a leading `#`) or `$id`.
    fn named(&mut self, name: &str) -> Option<&'a Value> {
        let root = self.root;
        self.named
            .get_or_insert_with(|| {
                let mut found = HashMap::new();
                collect(root, 0, &mut found);
                found
            })
            .get(name)
            .copied()
    }
}

fn moved(name: Option<&str>) -> Target {
    name.map_or(Target::Lost, |name| Target::Moved(format!("#/$defs/{name}")))
}

/// Whether a name is the same in a pointer and in a fragment.
fn is_plain(name: &str) -> bool {
    !name.is_empty() && !name.contains(['/', '~', '%'])
}

fn is_schema(value: &Value) -> bool {
    value.is_object() || value.is_boolean()
}

fn collect<'a>(value: &'a Value, depth: usize, found: &mut HashMap<String, &'a Value>) {
    let Some(schema) = value.as_object().filter(|_| depth < MAX_DEPTH) else { return };
    for anchor in ["$anchor", "$dynamicAnchor"] {
        if let Some(Value::String(name)) = schema.get(anchor) {
            found.entry(format!("#{name}")).or_insert(value);
        }
    }
    if let Some(Value::String(id)) = schema.get("$id") {
        found.entry(id.clone()).or_insert(value);
    }
    children(schema, &mut |child| collect(child, depth + 1, found));
}

/// What a JSON Pointer means; its parts name members and elements.
fn resolve<'a>(root: &'a Value, pointer: &str) -> Option<&'a Value> {
    let mut current = root;
    for part in pointer.split('/').skip(1) {
        let part = unescape(part);
        current = match current {
            Value::Object(map) => map.get(&part)?,
            Value::Array(items) => items.get(part.parse::<usize>().ok()?)?,
            _ => return None,
        };
    }
    Some(current)
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

fn percent_decode(text: &str) -> Option<String> {
    if !text.contains('%') {
        return Some(text.to_owned());
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = bytes
            .get(at + 1..at + 3)
            .filter(|hex| byte == b'%' && hex.iter().all(u8::is_ascii_hexdigit))
            .and_then(|hex| std::str::from_utf8(hex).ok());
        if let Some(decoded) = hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            out.push(decoded);
            at += 3;
        } else {
            out.push(byte);
            at += 1;
        }
    }
    String::from_utf8(out).ok()
}
