//! The tool `find_files`: finding paths by name, glob, type or terms.
//!
//! A best-first walk yields paths in sorted order, so that the first page of a large tree is ready
//! without walking all of it. A scan has a budget of paths and of time; going beyond it is an error
//! that asks for a narrower call, never a silently short list.

use std::{
    any::Any,
    cmp::Reverse,
    collections::BinaryHeap,
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use serde_json::{Map, Value, json};

use super::{
    args::Args,
    failure::Failure,
    glob::{FileType, Glob, Query},
    grep::modified,
    paths,
    stop::{Stop, blocking},
    walk::{Kind, is_ignored, kind_of},
    workspace::{Admitted, Workspace},
};
use crate::{
    error::Result,
    tool::{Arguments, BoxFuture, CallContext, Tool, ToolOutput, ToolSpec, seconds},
};

const PREFIX: &str = "Error finding files";
const DEFAULT_LIMIT: usize = 200;

/// How much one call may look at.
#[derive(Debug, Clone, Copy)]
pub struct ScanBudget {
    /// Directory entries, wanted or not; default 500,000.
    pub paths: usize,
    /// Time; default 30 s.
    pub time: Duration,
}

impl Default for ScanBudget {
    fn default() -> Self {
        Self { paths: 500_000, time: Duration::from_secs(30) }
    }
}

/// The tool `find_files`.
#[derive(Debug)]
pub struct FindFilesTool {
    spec: Arc<ToolSpec>,
    workspace: Workspace,
    budget: ScanBudget,
}

impl FindFilesTool {
    /// A tool that looks within `workspace`.
    pub fn new(workspace: Workspace) -> Self {
        let text = "Find workspace paths by name, glob, or file type. \
                    Returns relative paths and skips dependency/build directories.";
        let spec = ToolSpec::new("find_files", text, parameters()).read_only();
        Self { spec: Arc::new(spec), workspace, budget: ScanBudget::default() }
    }

    /// Set how much one call may look at.
    #[must_use]
    pub const fn with_budget(mut self, budget: ScanBudget) -> Self {
        self.budget = budget;
        self
    }

    fn run(&self, arguments: &Map<String, Value>, stop: &Stop) -> Result<ToolOutput> {
        match self.find(Args(arguments), stop) {
            Ok(text) => Ok(ToolOutput::text(text)),
            Err(failure) => failure.into_output(PREFIX),
        }
    }

    fn find(&self, args: Args<'_>, stop: &Stop) -> Result<String, Failure> {
        let started = Instant::now();
        let path = args.text("path")?.unwrap_or(".");
        let admitted = self.workspace.admit(if path.is_empty() { "." } else { path })?;
        let target = admitted.target.clone();
        let Some(metadata) = paths::stat(&target)? else {
            return Err(Failure::Text(format!("Error: Path not found: {path}")));
        };
        if !(metadata.is_dir() || metadata.is_file()) {
            return Err(Failure::Text(format!("Error: Unsupported path: {path}")));
        }
        let by_time = match args.text("sort")?.unwrap_or("path") {
            "path" => false,
            "modified" => true,
            _ => return Err(Failure::Text("Error: sort must be 'path' or 'modified'".into())),
        };
        let limit = match args.number("head_limit")? {
            None => Some(DEFAULT_LIMIT),
            Some(0) => None,
            limit => limit,
        };
        let offset = args.number("offset")?.unwrap_or(0);
        let filter = Filter {
            glob: args.text("glob")?.filter(|glob| !glob.is_empty()).map(Glob::new),
            has_type: args.text("type")?.is_some_and(|name| !name.is_empty()),
            file_type: args.text("type")?.and_then(FileType::new),
            query: args.text("query")?.map(Query::new).unwrap_or_default(),
        };
        // One more than the page shows whether there is another page.
        let enough = limit.map(|limit| offset.saturating_add(limit).saturating_add(1));
        let is_file = metadata.is_file();
        let root = if is_file { target.parent().unwrap_or(Path::new("/")) } else { &target };
        let mut scan = Scan {
            root,
            admitted: &admitted,
            budget: self.budget,
            started,
            stop,
            scanned: 0,
            frontier: BinaryHeap::new(),
        };
        let include_dirs = args.flag("include_dirs")?;
        let mut found: Vec<(f64, String)> = Vec::new();
        let first = if is_file {
            scan.visit()?;
            scan.entry(&target, Kind::File)
        } else {
            scan.entry(&target, Kind::Directory)
        };
        scan.frontier.push(Reverse(first));
        while let Some(Reverse(entry)) = scan.frontier.pop() {
            scan.check()?;
            let shown = !entry.is_directory || include_dirs;
            if entry.is_directory {
                // Its entries sort behind itself, so that they may join the queue already.
                scan.open(&entry.path)?;
            }
            if shown && filter.admits(&entry)? {
                let time = by_time.then(|| fs::metadata(&entry.path).ok().map(|m| modified(&m))).flatten();
                found.push((time.unwrap_or(0.0), entry.shown));
                if !by_time && enough.is_some_and(|enough| found.len() >= enough) {
                    break;
                }
            }
        }
        scan.check()?;
        if by_time {
            found.sort_by(|a, b| b.0.total_cmp(&a.0).then_with(|| a.1.cmp(&b.1)));
        }
        Ok(page(found, limit, offset))
    }
}

fn page(found: Vec<(f64, String)>, limit: Option<usize>, offset: usize) -> String {
    let truncated = limit.filter(|limit| found.len() > offset.saturating_add(*limit));
    let shown: Vec<String> =
        found.into_iter().map(|(_, path)| path).skip(offset).take(limit.unwrap_or(usize::MAX)).collect();
    if shown.is_empty() {
        return "No files found".to_owned();
    }
    let mut result = shown.join("\n");
    if let Some(limit) = truncated {
        let _ = write!(result, "\n\n(pagination: limit={limit}, offset={offset})");
    } else if offset > 0 {
        let _ = write!(result, "\n\n(pagination: offset={offset})");
    }
    result
}

struct Filter {
    glob: Option<Glob>,
    /// Directories have no type, so that any type leaves them out.
    has_type: bool,
    file_type: Option<FileType>,
    query: Query,
}

impl Filter {
    fn admits(&self, entry: &Entry) -> Result<bool, Failure> {
        if let Some(glob) = &self.glob {
            let fits = glob.matches(&entry.relative, &entry.name);
            if !fits.map_err(|text| format!("{PREFIX}: {text}"))? {
                return Ok(false);
            }
        }
        let typed = if entry.is_directory {
            !self.has_type
        } else {
            self.file_type.as_ref().is_none_or(|t| t.matches(&entry.name))
        };
        let display = if entry.is_directory { entry.shown.trim_end_matches('/') } else { &entry.shown };
        Ok(typed && self.query.matches(display))
    }
}

/// A path in the queue; ordered by how it is shown.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// Directories end in a slash.
    shown: String,
    path: PathBuf,
    relative: String,
    name: String,
    is_directory: bool,
}

struct Scan<'a> {
    root: &'a Path,
    admitted: &'a Admitted,
    budget: ScanBudget,
    started: Instant,
    stop: &'a Stop,
    scanned: usize,
    frontier: BinaryHeap<Reverse<Entry>>,
}

impl Scan<'_> {
    fn check(&self) -> Result<(), Failure> {
        self.stop.check()?;
        if self.started.elapsed() >= self.budget.time {
            return Err(exceeded(&format!("{} seconds", seconds(self.budget.time))));
        }
        Ok(())
    }

    fn visit(&mut self) -> Result<(), Failure> {
        self.check()?;
        self.scanned += 1;
        if self.scanned > self.budget.paths {
            return Err(exceeded(&format!("{} paths", self.budget.paths)));
        }
        Ok(())
    }

    fn entry(&self, path: &Path, kind: Kind) -> Entry {
        let is_directory = kind == Kind::Directory;
        let mut shown = self.admitted.display(path, self.root);
        if is_directory {
            shown.push('/');
        }
        let relative = paths::shown(path.strip_prefix(self.root).unwrap_or(path));
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Entry { shown, path: path.to_owned(), relative, name, is_directory }
    }

    fn open(&mut self, directory: &Path) -> Result<(), Failure> {
        let Ok(entries) = fs::read_dir(directory) else { return Ok(()) };
        for entry in entries.map_while(Result::ok) {
            self.visit()?;
            let Some(kind) = kind_of(&entry).filter(|kind| *kind != Kind::LostLink) else { continue };
            if kind == Kind::Directory && entry.file_name().to_str().is_some_and(is_ignored) {
                continue;
            }
            let entry = self.entry(&entry.path(), kind);
            self.frontier.push(Reverse(entry));
        }
        Ok(())
    }
}

fn exceeded(what: &str) -> Failure {
    Failure::Text(format!(
        "Error: find_files scan exceeded {what}; narrow path, query, glob, or type and retry."
    ))
}

impl Tool for FindFilesTool {
    fn spec(&self) -> Arc<ToolSpec> {
        Arc::clone(&self.spec)
    }

    fn call(self: Arc<Self>, arguments: Arguments, context: CallContext) -> BoxFuture<Result<ToolOutput>> {
        blocking(&context, move |stop| self.run(&*arguments.to_json()?, stop))
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

fn parameters() -> Value {
    json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Search root (default '.')"},
            "query": {"type": "string", "description": "Case-insensitive path terms; all must match"},
            "glob": {
                "type": "string",
                "description": "Path filter, e.g. '*.py' or 'tests/**/test_*.py'",
            },
            "type": {
                "type": "string",
                "description": "File type, e.g. 'py', 'ts', 'md', or 'json'",
            },
            "include_dirs": {"type": "boolean", "description": "Include directories (default false)"},
            "sort": {
                "type": "string",
                "enum": ["path", "modified"],
                "description": "Sort order (default path)",
            },
            "head_limit": {
                "type": "integer",
                "description": "Maximum paths (default 200; 0 for all)",
                "minimum": 0,
                "maximum": 1000,
            },
            "offset": {
                "type": "integer",
                "description": "Paths to skip before head_limit",
                "minimum": 0,
                "maximum": 100_000,
            },
        },
    })
}
