//! The registry: name -> tool, and what the model sees of them.
//!
//! Names are unique; a taken name is replaced. Definitions are ordered for cache-friendly prompts:
//! built-in tools by name, then those named `mcp_*` by name. The list is rebuilt only after a
//! change, constant tools are described once, and one tool that fails to describe itself is left
//! out alone. Everything here may be called from any thread; no lock is held while a tool's own
//! code runs.

use std::{
    any::Any,
    collections::HashMap,
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
};

use indexmap::IndexMap;
use jsonschema::json::SerdeJson;
use parking_lot::{Mutex, RwLock};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::{
    error::{Error, Result},
    meter::{Meter, Stats, Tally},
    schema::names,
    tool::{Arguments, Foreign, Tool, ToolSpec},
    validate::CompiledSchema,
};

/// What a model sees of one tool: an `OpenAI` function definition.
pub struct Definition {
    /// The name in the definition, which orders the list.
    pub name: String,
    body: Body,
    /// Room for a binding to keep the definition as an object of its language.
    pub binding: OnceLock<Box<dyn Any + Send + Sync>>,
}

enum Body {
    Json(String),
    Foreign(Box<dyn Foreign>),
}

impl Definition {
    /// `{"type": "function", "function": {"name", "description", "parameters"}}` of a spec.
    #[must_use]
    pub fn of(spec: &ToolSpec) -> Self {
        let body = json!({
            "type": "function",
            "function": {
                "name": spec.name,
                "description": spec.description,
                "parameters": spec.parameters,
            },
        });
        Self { name: spec.name.clone(), body: Body::Json(body.to_string()), binding: OnceLock::new() }
    }

    /// A definition held in another language's objects.
    pub fn foreign(name: impl Into<String>, body: Box<dyn Foreign>) -> Self {
        Self { name: name.into(), body: Body::Foreign(body), binding: OnceLock::new() }
    }

    /// The JSON text, unless the definition is foreign.
    #[must_use]
    pub fn as_json(&self) -> Option<&str> {
        match &self.body {
            Body::Json(text) => Some(text),
            Body::Foreign(_) => None,
        }
    }

    /// The foreign object, if the definition is one.
    #[must_use]
    pub fn as_foreign(&self) -> Option<&dyn Foreign> {
        match &self.body {
            Body::Json(_) => None,
            Body::Foreign(foreign) => Some(&**foreign),
        }
    }

    /// Append the definition as JSON.
    ///
    /// # Errors
    /// When a foreign definition has no JSON form.
    pub fn write_json(&self, out: &mut Vec<u8>) -> Result<()> {
        match &self.body {
            Body::Json(text) => {
                out.extend_from_slice(text.as_bytes());
                Ok(())
            }
            Body::Foreign(foreign) => foreign.write_json(out),
        }
    }
}

impl fmt::Debug for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Definition").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The definitions at one generation of the registry; immutable.
#[derive(Debug)]
pub struct Snapshot {
    /// The generation that was described.
    pub generation: u64,
    /// Definitions in the model's order.
    pub definitions: Vec<Arc<Definition>>,
    /// Tools left out because describing them failed.
    pub skipped: Vec<(String, Error)>,
    wire: OnceLock<Wire>,
}

#[derive(Debug)]
struct Wire {
    json: Arc<[u8]>,
    fingerprint: String,
}

impl Snapshot {
    fn wire(&self) -> &Wire {
        self.wire.get_or_init(|| {
            let mut json = Vec::with_capacity(512 * self.definitions.len() + 2);
            json.push(b'[');
            for definition in &self.definitions {
                let before = json.len();
                if before > 1 {
                    json.push(b',');
                }
                if let Err(error) = definition.write_json(&mut json) {
                    json.truncate(before);
                    tracing::warn!(tool = definition.name, %error, "definition left out: it has no JSON form");
                }
            }
            json.push(b']');
            let fingerprint = format!("{:x}", Sha256::digest(&json));
            Wire { json: json.into(), fingerprint }
        })
    }

    /// The definitions as a JSON array, ready for a request body.
    #[must_use]
    pub fn json(&self) -> Arc<[u8]> {
        Arc::clone(&self.wire().json)
    }

    /// SHA-256 of [`json`](Self::json) in hex: equal if and only if the model sees the same.
    #[must_use]
    pub fn fingerprint(&self) -> &str {
        &self.wire().fingerprint
    }
}

struct Entry {
    name: String,
    tool: Arc<dyn Tool>,
    /// The description of a constant tool, made once.
    constant: OnceLock<Arc<Definition>>,
    /// The schema as calls with JSON arguments are checked against it; bindings have their own.
    compiled: OnceLock<CompiledSchema<SerdeJson>>,
    /// Whether a failure to describe the tool was logged.
    complained: OnceLock<()>,
}

impl Entry {
    fn new(name: String, tool: Arc<dyn Tool>) -> Self {
        Self { name, tool, constant: OnceLock::new(), compiled: OnceLock::new(), complained: OnceLock::new() }
    }

    fn describe(&self) -> Result<Arc<Definition>> {
        if let Some(known) = self.constant.get() {
            return Ok(Arc::clone(known));
        }
        let definition = self.tool.definition()?;
        if self.tool.is_constant() {
            return Ok(Arc::clone(self.constant.get_or_init(|| definition)));
        }
        Ok(definition)
    }
}

/// Built-in tools before those of MCP servers, each by name.
fn order(name: &str) -> (bool, &str) {
    (name.starts_with("mcp_"), name)
}

/// The entries by name in the order of registration, and in the model's order: kept at each change, since
/// sorting two hundred names anew would be most of what a change costs.
#[derive(Default)]
struct Tools {
    named: IndexMap<String, Arc<Entry>>,
    ordered: Vec<Arc<Entry>>,
}

impl Tools {
    fn insert(&mut self, entry: Entry) -> Option<Arc<Entry>> {
        let entry = Arc::new(entry);
        match self.ordered.binary_search_by(|known| order(&known.name).cmp(&order(&entry.name))) {
            Ok(at) => self.ordered[at] = Arc::clone(&entry),
            Err(at) => self.ordered.insert(at, Arc::clone(&entry)),
        }
        self.named.insert(entry.name.clone(), entry)
    }

    fn remove(&mut self, name: &str) -> Option<Arc<Entry>> {
        if let Ok(at) = self.ordered.binary_search_by(|known| order(&known.name).cmp(&order(name))) {
            self.ordered.remove(at);
        }
        self.named.shift_remove(name)
    }
}

/// How many meters are kept of tools that are not registered any more.
const FORMER: usize = 1_000;

type Subscriber = Arc<dyn Fn(u64) + Send + Sync>;

/// Tools by name. See the module's text.
#[derive(Default)]
pub struct Registry {
    tools: RwLock<Tools>,
    generation: AtomicU64,
    snapshot: Mutex<Option<Arc<Snapshot>>>,
    subscribers: Mutex<HashMap<u64, Subscriber>>,
    next_subscriber: AtomicU64,
    meters: Mutex<HashMap<String, Arc<Meter>>>,
    unknown: AtomicU64,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registry")
            .field("tools", &self.len())
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}

impl Registry {
    /// An empty registry.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Add a tool under its own name; returns the tool that it replaced.
    pub fn register(&self, tool: Arc<dyn Tool>) -> Option<Arc<dyn Tool>> {
        let name = tool.spec().name.clone();
        self.register_as(name, tool)
    }

    /// Add a tool under `name`; returns the tool that it replaced.
    pub fn register_as(&self, name: String, tool: Arc<dyn Tool>) -> Option<Arc<dyn Tool>> {
        let old = self.tools.write().insert(Entry::new(name, tool));
        self.changed();
        old.map(|entry| Arc::clone(&entry.tool))
    }

    /// Remove a tool; an unknown name is no error.
    pub fn unregister(&self, name: &str) -> Option<Arc<dyn Tool>> {
        let old = self.tools.write().remove(name)?;
        self.changed();
        Some(Arc::clone(&old.tool))
    }

    /// Add and remove several tools as one change, with one notification: `removed` first.
    pub fn apply(&self, removed: &[String], added: Vec<Arc<dyn Tool>>) {
        if removed.is_empty() && added.is_empty() {
            return;
        }
        let mut dropped = Vec::with_capacity(removed.len());
        {
            let mut tools = self.tools.write();
            for name in removed {
                dropped.extend(tools.remove(name));
            }
            for tool in added {
                dropped.extend(tools.insert(Entry::new(tool.spec().name.clone(), tool)));
            }
        }
        self.changed();
    }

    /// The tool of that name.
    pub fn get(&self, name: &str) -> Option<Arc<dyn Tool>> {
        self.tools.read().named.get(name).map(|entry| Arc::clone(&entry.tool))
    }

    /// Whether there is a tool of that name.
    pub fn has(&self, name: &str) -> bool {
        self.tools.read().named.contains_key(name)
    }

    /// How many tools there are.
    pub fn len(&self) -> usize {
        self.tools.read().named.len()
    }

    /// Whether there is no tool at all.
    pub fn is_empty(&self) -> bool {
        self.tools.read().named.is_empty()
    }

    /// Look at the tools that nothing but this registry holds; those of a registry in use are left out.
    ///
    /// For garbage collectors, which may not wait and may only follow what is owned once.
    pub fn for_each_unshared(&self, mut look: impl FnMut(&dyn Tool)) {
        let Some(tools) = self.tools.try_read() else { return };
        for entry in tools.named.values() {
            // The model's order holds each entry as well.
            if Arc::strong_count(entry) == 2 && Arc::strong_count(&entry.tool) == 1 {
                look(&*entry.tool);
            }
        }
    }

    /// The names in the order of registration.
    pub fn names(&self) -> Vec<String> {
        self.tools.read().named.keys().cloned().collect()
    }

    /// The tools in the order of registration.
    pub fn tools(&self) -> Vec<Arc<dyn Tool>> {
        self.tools.read().named.values().map(|entry| Arc::clone(&entry.tool)).collect()
    }

    /// A number that grows with each change.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Forget what is known of one tool's description, or of all, and count that as a change.
    pub fn refresh(&self, name: Option<&str>) {
        // Dropped after the lock: what they hold may run foreign code when it goes.
        let mut stale = Vec::new();
        {
            let mut tools = self.tools.write();
            let renewed: Vec<Arc<Entry>> = tools
                .ordered
                .iter()
                .filter(|entry| name.is_none_or(|name| name == entry.name))
                .cloned()
                .collect();
            for entry in renewed {
                stale.extend(tools.insert(Entry::new(entry.name.clone(), Arc::clone(&entry.tool))));
                stale.push(entry);
            }
        }
        drop(stale);
        self.changed();
    }

    /// The definitions as they are now; the same object until the next change.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        // A change while the list is built makes it stale; a few rounds suffice, and the last one
        // is right for the generation it names in any case.
        let mut rounds = 0;
        loop {
            let generation = self.generation();
            if let Some(known) = &*self.snapshot.lock()
                && known.generation == generation
            {
                return Arc::clone(known);
            }
            let entries = self.tools.read().ordered.clone();
            let built = Arc::new(describe(generation, &entries));
            rounds += 1;
            if self.generation() == generation || rounds == 3 {
                let old = self.snapshot.lock().replace(Arc::clone(&built));
                drop(old);
                return built;
            }
        }
    }

    /// Call `notify` with the new generation after each change, on the changing thread.
    pub fn subscribe(&self, notify: Subscriber) -> u64 {
        let id = self.next_subscriber.fetch_add(1, Ordering::Relaxed);
        self.subscribers.lock().insert(id, notify);
        id
    }

    /// End a subscription; an unknown id is no error.
    pub fn unsubscribe(&self, id: u64) {
        let old = self.subscribers.lock().remove(&id);
        drop(old);
    }

    /// Resolve, unwrap, cast and validate one call.
    ///
    /// # Errors
    /// [`Error::NotFound`] and [`Error::InvalidArguments`].
    pub fn prepare(&self, name: &str, arguments: Value) -> Result<(Arc<dyn Tool>, Arguments)> {
        let entry = self.tools.read().named.get(name).cloned();
        let Some(entry) = entry else { return Err(self.not_found(name)) };
        let compiled = entry.compiled.get_or_init(|| {
            let compiled = CompiledSchema::compile(entry.tool.spec().checked_schema());
            if let Some(warning) = compiled.warning() {
                tracing::warn!(tool = name, warning, "schema not usable as it is");
            }
            compiled
        });
        let arguments = compiled.prepare(name, arguments)?;
        Ok((Arc::clone(&entry.tool), Arguments::Json(arguments)))
    }

    /// The error for a call of an unknown tool, with near names.
    pub fn not_found(&self, name: &str) -> Error {
        Error::NotFound { name: name.to_owned(), text: names::not_found(name, &self.names()) }
    }

    /// A call of a tool begins; counted under the tool's name, also when it is registered anew meanwhile.
    pub fn count(&self, name: &str) -> Tally {
        self.meter(name).begin()
    }

    /// A call was refused before it began.
    pub fn count_refused(&self, name: &str, kind: &'static str) {
        if self.has(name) {
            self.meter(name).refused(kind);
        } else {
            // A model can make up any number of names.
            self.unknown.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What came of calls so far, by tool, for those that were called; in no order.
    pub fn stats(&self) -> Vec<(String, Stats)> {
        let meters: Vec<_> =
            self.meters.lock().iter().map(|(name, meter)| (name.clone(), Arc::clone(meter))).collect();
        meters.into_iter().map(|(name, meter)| (name, meter.read())).collect()
    }

    /// How many calls named no tool that there was.
    pub fn unknown_calls(&self) -> u64 {
        self.unknown.load(Ordering::Relaxed)
    }

    fn meter(&self, name: &str) -> Arc<Meter> {
        let mut meters = self.meters.lock();
        if let Some(meter) = meters.get(name) {
            return Arc::clone(meter);
        }
        let tools = self.tools.read();
        if meters.len() >= tools.named.len() + FORMER {
            meters.retain(|name, _| tools.named.contains_key(name));
        }
        drop(tools);
        Arc::clone(meters.entry(name.to_owned()).or_default())
    }

    fn changed(&self) {
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        let subscribers: Vec<Subscriber> = self.subscribers.lock().values().cloned().collect();
        for notify in subscribers {
            notify(generation);
        }
    }
}

fn describe(generation: u64, entries: &[Arc<Entry>]) -> Snapshot {
    let mut definitions = Vec::with_capacity(entries.len());
    let mut skipped = Vec::new();
    for entry in entries {
        match entry.describe() {
            Ok(definition) => definitions.push(definition),
            Err(error) => {
                if entry.complained.set(()).is_ok() {
                    tracing::warn!(tool = entry.name, %error, "tool left out of the definitions");
                }
                skipped.push((entry.name.clone(), error));
            }
        }
    }
    // A tool may describe itself under another name than it is registered under.
    if !definitions.is_sorted_by(|a, b| order(&a.name) <= order(&b.name)) {
        definitions.sort_by(|a, b| order(&a.name).cmp(&order(&b.name)));
    }
    Snapshot { generation, definitions, skipped, wire: OnceLock::new() }
}
