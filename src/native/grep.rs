//! The tool `grep`: searching the text of files.
//!
//! Files are read whole (within a limit), checked for being text and searched line by line; results
//! come in the order of the walk whatever the number of threads. A file that cannot be read costs
//! only itself: it is counted in a note. PDF and Office files are counted as well, and so are links
//! that lead out of the allowed directories.

mod files;
pub(super) use files::modified;
mod report;

use std::{any::Any, ops::ControlFlow, path::Path, sync::Arc};

use serde_json::{Map, Value, json};

use self::{
    files::{FileSearch, Outcome},
    report::Report,
};
use super::{
    args::Args,
    failure::Failure,
    glob::{FileType, Glob},
    ordered, paths,
    pattern::{Pattern, SearchFault, Want, searcher},
    stop::{Stop, blocking},
    walk::{Candidate, Walk},
    workspace::Workspace,
};
use crate::{
    error::Result,
    tool::{Arguments, BoxFuture, CallContext, Tool, ToolOutput, ToolSpec},
};

const PREFIX: &str = "Error searching files";
/// Size limit of files found in a directory.
const MAX_FILE_BYTES: u64 = 2_000_000;
/// Size limit of a file that the caller named.
const MAX_EXPLICIT_FILE_BYTES: u64 = 100_000_000;
const MAX_RESULT_CHARS: usize = 128_000;
/// No rendered match is shorter, so that this many more never fit.
const MIN_BLOCK_CHARS: usize = 8;
const DEFAULT_LIMIT: usize = 250;
const DEFAULT_CONTEXT: usize = 5;

/// The tool `grep`.
#[derive(Debug)]
pub struct GrepTool {
    spec: Arc<ToolSpec>,
    workspace: Workspace,
}

/// What a search reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Content,
    Files,
    Count,
}

/// The arguments of one call.
#[derive(Debug)]
struct Request<'a> {
    pattern: &'a str,
    path: &'a str,
    mode: Mode,
    context: (usize, usize),
    limit: Option<usize>,
    offset: usize,
}

impl<'a> Request<'a> {
    fn read(args: Args<'a>) -> Result<Self, String> {
        let mode = match args.text("output_mode")?.unwrap_or("content") {
            "content" => Mode::Content,
            "files_with_matches" => Mode::Files,
            "count" => Mode::Count,
            _ => return Err("Error: output_mode must be 'content', 'files_with_matches' or 'count'".into()),
        };
        // The names of earlier versions are still understood.
        let older = args.number(if mode == Mode::Content { "max_matches" } else { "max_results" })?;
        let limit = match args.number("head_limit")? {
            Some(0) => None,
            Some(limit) => Some(limit),
            None => Some(older.unwrap_or(DEFAULT_LIMIT)),
        };
        Ok(Self {
            pattern: args.text("pattern")?.ok_or("Error: pattern is required")?,
            path: args.text("path")?.unwrap_or("."),
            mode,
            context: (
                args.number("context_before")?.unwrap_or(DEFAULT_CONTEXT),
                args.number("context_after")?.unwrap_or(DEFAULT_CONTEXT),
            ),
            limit,
            offset: args.number("offset")?.unwrap_or(0),
        })
    }

    /// How much of one file can matter.
    fn want(&self) -> Want {
        match self.mode {
            Mode::Content => {
                let fitting = MAX_RESULT_CHARS / MIN_BLOCK_CHARS;
                let shown = self.limit.map_or(fitting, |limit| limit.min(fitting));
                Want { keep: self.offset.saturating_add(shown).saturating_add(1), count_all: false }
            }
            Mode::Files => Want { keep: 1, count_all: false },
            Mode::Count => Want { keep: 0, count_all: true },
        }
    }
}

impl GrepTool {
    /// A tool that reads within `workspace`.
    pub fn new(workspace: Workspace) -> Self {
        let text = "Search the text of files; PDF and Office files are skipped. \
                    Returns matches with five context lines and source locators by default.";
        Self { spec: Arc::new(ToolSpec::new("grep", text, parameters()).read_only()), workspace }
    }

    fn run(&self, arguments: &Map<String, Value>, stop: &Stop) -> Result<ToolOutput> {
        match self.search(Args(arguments), stop) {
            Ok(text) => Ok(ToolOutput::text(text)),
            Err(failure) => failure.into_output(PREFIX),
        }
    }

    fn search(&self, args: Args<'_>, stop: &Stop) -> Result<String, Failure> {
        let request = Request::read(args)?;
        let wanted = if request.path.is_empty() { "." } else { request.path };
        let admitted = self.workspace.admit(wanted)?;
        let target = admitted.target.clone();
        let Some(metadata) = paths::stat(&target)? else {
            return Err(Failure::Text(format!("Error: Path not found: {}", request.path)));
        };
        if !(metadata.is_dir() || metadata.is_file()) {
            return Err(Failure::Text(format!("Error: Unsupported path: {}", request.path)));
        }
        let pattern =
            Pattern::new(request.pattern, args.flag("case_insensitive")?, args.flag("fixed_strings")?)
                .map_err(|text| Failure::Text(format!("Error: invalid regex pattern: {text}")))?;
        let explicit = metadata.is_file();
        let root = if explicit { target.parent().unwrap_or(Path::new("/")) } else { &target };
        let search = FileSearch {
            pattern: &pattern,
            glob: args.text("glob")?.filter(|glob| !glob.is_empty()).map(Glob::new),
            file_type: args.text("type")?.and_then(FileType::new),
            admitted: &admitted,
            root,
            explicit,
            max_bytes: if explicit { MAX_EXPLICIT_FILE_BYTES } else { MAX_FILE_BYTES },
            want: request.want(),
            stop,
        };
        let mut report = Report::new(&request, &pattern);
        let mut failure = None;
        let consume = |outcome: Result<Outcome, Failure>| match outcome.and_then(|o| report.add(o)) {
            Ok(flow) => flow,
            Err(error) => {
                failure = Some(error);
                ControlFlow::Break(())
            }
        };
        let make_worker = || {
            let mut searcher = searcher();
            let search = &search;
            move |candidate: Candidate| search.run(&mut searcher, &candidate)
        };
        if explicit {
            ordered::run(std::iter::once(Candidate::single(&target)), make_worker, consume);
        } else {
            ordered::run(Walk::new(&target), make_worker, consume);
        }
        stop.check()?;
        match failure {
            Some(failure) => Err(failure),
            None => Ok(report.finish()),
        }
    }
}

impl From<SearchFault> for Failure {
    fn from(fault: SearchFault) -> Self {
        match fault {
            SearchFault::Stopped(error) => Self::Stopped(error),
            SearchFault::Pattern(text) => Self::Text(format!("{PREFIX}: {text}")),
        }
    }
}

impl Tool for GrepTool {
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
            "pattern": {
                "type": "string",
                "description": "Regex, or literal text when fixed_strings=true",
                "minLength": 1,
            },
            "path": {"type": "string", "description": "Search root (default '.')"},
            "glob": {
                "type": "string",
                "description": "Path filter, e.g. '*.py' or 'tests/**/test_*.py'",
            },
            "type": {
                "type": "string",
                "description": "File type, e.g. 'py', 'ts', 'md', or 'json'",
            },
            "pages": {"type": "string", "description": "Ignored: PDF files are not searched"},
            "case_insensitive": {"type": "boolean", "description": "Ignore case (default false)"},
            "fixed_strings": {"type": "boolean", "description": "Treat pattern literally (default false)"},
            "output_mode": {
                "type": "string",
                "enum": ["content", "files_with_matches", "count"],
                "description": "content: matches with context (default); \
                                files_with_matches: paths; count: matches per file",
            },
            "context_before": {
                "type": "integer",
                "description": "Context lines before a match (default 5)",
                "minimum": 0,
                "maximum": 20,
            },
            "context_after": {
                "type": "integer",
                "description": "Context lines after a match (default 5)",
                "minimum": 0,
                "maximum": 20,
            },
            "head_limit": {
                "type": "integer",
                "description": "Maximum matches or file entries (default 250; 0 for all)",
                "minimum": 0,
                "maximum": 1000,
            },
            "offset": {
                "type": "integer",
                "description": "Matches or file entries to skip before head_limit",
                "minimum": 0,
                "maximum": 100_000,
            },
        },
        "required": ["pattern"],
    })
}
