//! From the outcomes of single files to the text of the result.

use std::{cell::Cell, ops::ControlFlow};

use super::{
    MAX_RESULT_CHARS, Mode, Request,
    files::{Matched, Outcome},
};
use crate::native::{
    failure::Failure,
    pattern::{Pattern, SearchFault},
    render::{self, Lines},
};

/// Collects outcomes in the order of the walk.
#[derive(Debug)]
pub(super) struct Report<'a> {
    request: &'a Request<'a>,
    pattern: &'a Pattern,
    blocks: Vec<String>,
    chars: usize,
    seen: usize,
    cut: Option<Cut>,
    files: Vec<Entry>,
    unreadable: usize,
    large: usize,
    documents: usize,
    outside: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    Limit,
    Size,
}

#[derive(Debug)]
struct Entry {
    display: String,
    modified: f64,
    count: usize,
}

impl<'a> Report<'a> {
    pub(super) fn new(request: &'a Request<'a>, pattern: &'a Pattern) -> Self {
        Self {
            request,
            pattern,
            blocks: Vec::new(),
            chars: 0,
            seen: 0,
            cut: None,
            files: Vec::new(),
            unreadable: 0,
            large: 0,
            documents: 0,
            outside: 0,
        }
    }

    /// Take the next outcome; breaks when the result is full.
    pub(super) fn add(&mut self, outcome: Outcome) -> Result<ControlFlow<()>, Failure> {
        match outcome {
            Outcome::Nothing => {}
            Outcome::Unreadable => self.unreadable += 1,
            Outcome::TooLarge => self.large += 1,
            Outcome::Document => self.documents += 1,
            Outcome::Outside => self.outside += 1,
            Outcome::Matched(file) if self.request.mode == Mode::Content => self.add_blocks(&file)?,
            Outcome::Matched(file) => {
                let count = file.hits.count;
                self.files.push(Entry { display: file.display, modified: file.modified, count });
            }
        }
        Ok(if self.cut.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    }

    fn add_blocks(&mut self, file: &Matched) -> Result<(), Failure> {
        let lines = Lines { text: &file.text, listed: file.hits.lines.as_deref() };
        for &hit in &file.hits.kept {
            self.seen += 1;
            if self.seen <= self.request.offset {
                continue;
            }
            if self.request.limit.is_some_and(|limit| self.blocks.len() >= limit) {
                self.cut = Some(Cut::Limit);
                break;
            }
            let fault: Cell<Option<SearchFault>> = Cell::new(None);
            let start = |line: &str| match self.pattern.find(line) {
                Ok(at) => at.unwrap_or(0),
                Err(error) => {
                    fault.set(Some(error));
                    0
                }
            };
            let block = render::block(&file.display, lines, hit, start, self.request.context);
            if let Some(fault) = fault.into_inner() {
                return Err(fault.into());
            }
            let chars = block.chars().count() + if self.blocks.is_empty() { 0 } else { 2 };
            if self.chars + chars > MAX_RESULT_CHARS {
                self.cut = Some(Cut::Size);
                break;
            }
            self.chars += chars;
            self.blocks.push(block);
        }
        Ok(())
    }

    pub(super) fn finish(mut self) -> String {
        let Request { mode, limit, offset, .. } = *self.request;
        let total: usize = self.files.iter().map(|file| file.count).sum();
        let count = self.files.len();
        let mut notes = Vec::new();
        let mut result = if mode == Mode::Content {
            let next = offset + self.blocks.len();
            match self.cut {
                Some(Cut::Limit) => notes.push(format!(
                    "(pagination: limit={}, offset={offset}; use offset={next} to continue)",
                    shown(limit)
                )),
                Some(Cut::Size) => {
                    notes.push(format!("(output truncated due to size; use offset={next} to continue)"));
                }
                None if offset > 0 && !self.blocks.is_empty() => {
                    notes.push(format!("(pagination: offset={offset})"));
                }
                None => {}
            }
            self.blocks.join("\n\n")
        } else {
            let truncated = limit.is_some_and(|limit| count > offset.saturating_add(limit));
            if truncated {
                notes.push(format!("(pagination: limit={}, offset={offset})", shown(limit)));
            } else if offset > 0 {
                notes.push(format!("(pagination: offset={offset})"));
            }
            self.page()
        };
        let nothing = if mode == Mode::Content { self.blocks.is_empty() } else { count == 0 };
        if nothing {
            result =
                format!("No matches found for pattern '{}' in {}", self.request.pattern, self.request.path);
        }
        if self.unreadable > 0 {
            notes.push(format!("(skipped {} binary/unreadable files)", self.unreadable));
        }
        if self.large > 0 {
            notes.push(format!("(skipped {} large files)", self.large));
        }
        if self.documents > 0 {
            notes.push(format!("(skipped {} PDF/Office files: their text is not searched)", self.documents));
        }
        if self.outside > 0 {
            notes.push(format!("(skipped {} links that lead outside the allowed directories)", self.outside));
        }
        if mode == Mode::Count && count > 0 {
            notes.push(format!("(total matches: {total} in {count} files)"));
        }
        if !notes.is_empty() {
            result.push_str("\n\n");
            result.push_str(&notes.join("\n"));
        }
        result
    }

    /// The files of the page, newest first.
    fn page(&mut self) -> String {
        self.files.sort_by(|a, b| b.modified.total_cmp(&a.modified).then_with(|| a.display.cmp(&b.display)));
        let lines: Vec<String> = self
            .files
            .drain(..)
            .skip(self.request.offset)
            .take(self.request.limit.unwrap_or(usize::MAX))
            .map(|file| match self.request.mode {
                Mode::Count => format!("{}: {}", file.display, file.count),
                _ => file.display,
            })
            .collect();
        lines.join("\n")
    }
}

fn shown(limit: Option<usize>) -> String {
    limit.map_or_else(|| "None".to_owned(), |limit| limit.to_string())
}
