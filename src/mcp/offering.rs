//! What one server offers now, as tools; it outlives the server's connections.
//!
//! A tool that is offered as before stays the same object under the same name, over reconnects as well,
//! so that a registry need not notice them.

use std::{
    collections::{BTreeSet, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::{Mutex, RwLock};

use super::{
    config::ServerConfig,
    link::Link,
    wrap::{self, Capability, McpTool, Offer, Terms, Wrapper},
};

/// What a server was asked to tell, which it has to be asked again when it forgets.
#[derive(Debug, Default)]
pub(super) struct Wishes {
    /// The resources that are subscribed to.
    pub(super) uris: Mutex<BTreeSet<String>>,
    /// The level of log messages.
    pub(super) level: Mutex<Option<String>>,
}

/// What a server offers, the tools that are made of it, and what was asked of it to last.
#[derive(Debug)]
pub(super) struct Offering {
    config: RwLock<Arc<ServerConfig>>,
    pub(super) wishes: Wishes,
    wrapper: Wrapper,
    /// What was last read of each list.
    offer: Mutex<Arc<Offer>>,
    tools: RwLock<Vec<Arc<McpTool>>>,
    warnings: RwLock<Vec<String>>,
    /// Counts the changes of the tools.
    generation: AtomicU64,
}

impl Offering {
    /// Nothing yet, of a server that is called through `link`.
    pub(super) fn new(server: Arc<str>, link: Arc<Link>, config: ServerConfig) -> Self {
        Self {
            wrapper: Wrapper::new(server, link, &config),
            wishes: Wishes::default(),
            offer: Mutex::default(),
            tools: RwLock::default(),
            warnings: RwLock::new(config.warnings.clone()),
            generation: AtomicU64::new(0),
            config: RwLock::new(Arc::new(config)),
        }
    }

    pub(super) fn server(&self) -> &Arc<str> {
        &self.wrapper.server
    }

    /// The entry as it is now.
    pub(super) fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config.read())
    }

    pub(super) const fn link(&self) -> &Arc<Link> {
        &self.wrapper.link
    }

    /// What was last read.
    pub(super) fn offer(&self) -> Arc<Offer> {
        Arc::clone(&self.offer.lock())
    }

    /// Put what was read in place; whether that changes anything. `notes` says what was odd about it.
    pub(super) fn put(&self, offer: Arc<Offer>, mut notes: Vec<String>) -> bool {
        let config = self.config();
        let former = self.tools.read().clone();
        let tools = self.wrapper.wrap(&config, &offer, &former, &mut notes);
        let same = former.len() == tools.len() && former.iter().zip(&tools).all(|(a, b)| Arc::ptr_eq(a, b));
        if !notes.is_empty() {
            let server = &*self.wrapper.server;
            tracing::warn!(server, notes = notes.join("; "), "the server or its entry is odd");
        }
        *self.offer.lock() = offer;
        *self.tools.write() = tools;
        *self.warnings.write() = config.warnings.iter().cloned().chain(notes).collect();
        if !same {
            self.generation.fetch_add(1, Ordering::Release);
        }
        !same
    }

    /// Counts the changes of the tools.
    pub(super) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Take an entry of the same server; whether that changes what is offered.
    pub(super) fn reconfigure(&self, config: ServerConfig) -> bool {
        *self.config.write() = Arc::new(config);
        self.put(self.offer(), Vec::new())
    }

    /// The tools that are tools on the server (or those that are not), in the server's order.
    pub(super) fn tools(&self, tools: bool) -> Vec<Arc<McpTool>> {
        let all = self.tools.read();
        all.iter().filter(|tool| (tool.capability() == Capability::Tool) == tools).cloned().collect()
    }

    /// How many of all kinds there are.
    pub(super) fn len(&self) -> usize {
        self.tools.read().len()
    }

    pub(super) fn warnings(&self) -> Vec<String> {
        self.warnings.read().clone()
    }

    /// What holds for calls of a tool by its raw name.
    pub(super) fn terms(&self, tool: &str) -> Terms {
        let offer = self.offer();
        Terms::of_tool(&self.config(), tool, offer.tools.iter().find(|known| known.name == tool))
    }

    /// Rename those of the tools whose names are in `taken`, and add all names to it.
    ///
    /// Returns a line for each renaming.
    pub(super) fn claim_names(&self, taken: &mut HashSet<String>) -> Vec<String> {
        let mut notes = Vec::new();
        let mut tools = self.tools.write();
        for tool in tools.iter_mut() {
            let name = crate::Tool::spec(&**tool).name.clone();
            let claimed = wrap::claim(&self.wrapper.server, tool.raw_name(), &name, taken, &mut notes);
            if claimed != name {
                *tool = Arc::new(tool.renamed(claimed));
            }
        }
        notes
    }
}
