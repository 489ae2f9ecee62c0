//! A compiled pattern, and finding the lines of a text that match it.
//!
//! A text whose lines end at `\n` alone goes through `grep-searcher`, which looks for the pattern's
//! literals in whole buffers. Everything else (Python's further line ends, patterns that
//! look around or refer back) goes line by line.

use std::io;

use grep_matcher::{LineTerminator, Matcher as _};
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::{Searcher, SearcherBuilder, Sink, SinkMatch};

use super::{
    dialect,
    stop::Stop,
    text::{is_plain, next_plain_line, split_lines},
};
use crate::error::Error;

/// Upper limit of a compiled pattern.
const SIZE_LIMIT: usize = 64 << 20;
/// Bytes searched between two looks at the stop flag.
const CHUNK: usize = 1 << 20;
/// Lines searched one by one between two looks at the stop flag.
const LINES_PER_CHECK: usize = 512;

/// A pattern ready for use; shared by all threads of a search.
#[derive(Debug)]
pub(super) struct Pattern {
    line: LineEngine,
    /// For texts with plain line ends, when the pattern has such a form.
    buffer: Option<RegexMatcher>,
}

#[derive(Debug)]
enum LineEngine {
    Linear(RegexMatcher),
    Backtracking(Box<fancy_regex::Regex>),
}

/// A line that matched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hit {
    /// From one.
    pub(super) number: usize,
    pub(super) start: usize,
    pub(super) end: usize,
}

/// Why a search ended without a result.
#[derive(Debug)]
pub(super) enum SearchFault {
    Stopped(Error),
    /// The backtracking engine gave up.
    Pattern(String),
}

impl From<Error> for SearchFault {
    fn from(error: Error) -> Self {
        Self::Stopped(error)
    }
}

/// The lines that matched, and where lines are when they do not simply end at `\n`.
#[derive(Debug, Default)]
pub(super) struct Hits {
    /// The hits, as many as were to be kept.
    pub(super) kept: Vec<Hit>,
    /// All hits that were counted.
    pub(super) count: usize,
    /// The lines, for a text that is not plain.
    pub(super) lines: Option<Vec<(usize, usize)>>,
}

/// How far a search through one text goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Want {
    /// Hits to keep.
    pub(super) keep: usize,
    /// Whether to count the hits beyond.
    pub(super) count_all: bool,
}

impl Pattern {
    /// # Errors
    /// With the text of what is wrong with the pattern.
    pub(super) fn new(pattern: &str, ignore_case: bool, fixed: bool) -> Result<Self, String> {
        let translated = if fixed {
            let flags = if ignore_case { "(?i)" } else { "" };
            dialect::Translated { pattern: format!("{flags}{}", regex::escape(pattern)), fancy: false }
        } else {
            dialect::translate(pattern, ignore_case)?
        };
        if translated.fancy {
            let engine = fancy_regex::RegexBuilder::new(&translated.pattern)
                .delegate_size_limit(SIZE_LIMIT)
                .build()
                .map_err(|e| e.to_string())?;
            return Ok(Self { line: LineEngine::Backtracking(Box::new(engine)), buffer: None });
        }
        let mut builder = RegexMatcherBuilder::new();
        builder.size_limit(SIZE_LIMIT);
        let line = LineEngine::Linear(builder.build(&translated.pattern).map_err(|e| e.to_string())?);
        // Refused for a pattern that demands a line end, which no line contains.
        let buffer = builder.crlf(true).build(&translated.pattern).ok();
        Ok(Self { line, buffer })
    }

    /// Where in a line the first match starts, in bytes.
    pub(super) fn find(&self, line: &str) -> Result<Option<usize>, SearchFault> {
        match &self.line {
            LineEngine::Linear(matcher) => match matcher.find(line.as_bytes()) {
                Ok(found) => Ok(found.map(|m| m.start())),
                Err(error) => Err(SearchFault::Pattern(error.to_string())),
            },
            LineEngine::Backtracking(regex) => match regex.find(line) {
                Ok(found) => Ok(found.map(|m| m.start())),
                Err(error) => Err(SearchFault::Pattern(error.to_string())),
            },
        }
    }

    /// The lines of `text` that match.
    pub(super) fn search(
        &self,
        searcher: &mut Searcher,
        text: &str,
        want: Want,
        stop: &Stop,
    ) -> Result<Hits, SearchFault> {
        let mut found = Found { hits: Hits::default(), want };
        if !is_plain(text) {
            let lines = split_lines(text);
            self.search_lines(&mut found, text, lines.iter().copied(), stop)?;
            found.hits.lines = Some(lines);
        } else if let Some(matcher) = &self.buffer {
            search_buffer(&mut found, matcher, searcher, text, stop)?;
        } else {
            let mut at = 0;
            let lines = std::iter::from_fn(|| {
                let (start, end, next) = next_plain_line(text, at)?;
                at = next;
                Some((start, end))
            });
            self.search_lines(&mut found, text, lines, stop)?;
        }
        Ok(found.hits)
    }

    fn search_lines(
        &self,
        found: &mut Found,
        text: &str,
        lines: impl Iterator<Item = (usize, usize)>,
        stop: &Stop,
    ) -> Result<(), SearchFault> {
        for (index, (start, end)) in lines.enumerate() {
            if index % LINES_PER_CHECK == 0 {
                stop.check()?;
            }
            if self.find(&text[start..end])?.is_some() && !found.push(Hit { number: index + 1, start, end }) {
                break;
            }
        }
        Ok(())
    }
}

/// A searcher for [`Pattern::search`]; one for each thread, because it owns buffers.
pub(super) fn searcher() -> Searcher {
    SearcherBuilder::new()
        .line_terminator(LineTerminator::crlf())
        .line_number(true)
        .bom_sniffing(false)
        .build()
}

struct Found {
    hits: Hits,
    want: Want,
}

impl Found {
    /// Note a hit; false when no more are wanted.
    fn push(&mut self, hit: Hit) -> bool {
        self.hits.count += 1;
        if self.hits.kept.len() < self.want.keep {
            self.hits.kept.push(hit);
        }
        self.want.count_all || self.hits.kept.len() < self.want.keep
    }
}

fn search_buffer(
    found: &mut Found,
    matcher: &RegexMatcher,
    searcher: &mut Searcher,
    text: &str,
    stop: &Stop,
) -> Result<(), SearchFault> {
    let bytes = text.as_bytes();
    let (mut base, mut lines_before) = (0, 0);
    while base < bytes.len() {
        stop.check()?;
        let end = match bytes.get(base + CHUNK..) {
            Some(rest) => memchr::memchr(b'\n', rest).map_or(bytes.len(), |n| base + CHUNK + n + 1),
            None => bytes.len(),
        };
        let chunk = &bytes[base..end];
        let mut sink = Collect { found, base, lines_before, full: false };
        searcher
            .search_slice(matcher, chunk, &mut sink)
            .map_err(|error| SearchFault::Pattern(error.to_string()))?;
        if sink.full {
            break;
        }
        if end < bytes.len() {
            lines_before += memchr::memchr_iter(b'\n', chunk).count();
        }
        base = end;
    }
    Ok(())
}

struct Collect<'a> {
    found: &'a mut Found,
    base: usize,
    lines_before: usize,
    full: bool,
}

impl Sink for Collect<'_> {
    type Error = io::Error;

    fn matched(&mut self, _searcher: &Searcher, found: &SinkMatch<'_>) -> io::Result<bool> {
        let as_index = |n: u64| usize::try_from(n).map_err(io::Error::other);
        let start = self.base + as_index(found.absolute_byte_offset())?;
        let line = found.bytes();
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let number = self.lines_before + as_index(found.line_number().unwrap_or_default())?;
        let more = self.found.push(Hit { number, start, end: start + line.len() });
        self.full = !more;
        Ok(more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(pattern: &str, text: &str) -> Vec<usize> {
        let want = Want { keep: 100, count_all: false };
        let pattern = Pattern::new(pattern, false, false).unwrap();
        let hits = pattern.search(&mut searcher(), text, want, &Stop::new(None)).unwrap();
        hits.kept.iter().map(|hit| hit.number).collect()
    }

    #[test]
    fn both_ways_of_searching_find_the_same_lines() {
        for pattern in ["^$", "a$", "^a", "\\s$", "[^b]", "\\Aa\\Z", "\\W", "a|$", "\\bb"] {
            for text in ["a\nb\n\na b\n", "a\r\n\r\nba\r\n", "\n", "", "a", "é\na \n"] {
                let slow: Vec<usize> = {
                    let pattern = Pattern::new(pattern, false, false).unwrap();
                    let lines = split_lines(text);
                    (1..=lines.len())
                        .filter(|n| pattern.find(&text[lines[n - 1].0..lines[n - 1].1]).unwrap().is_some())
                        .collect()
                };
                assert_eq!(numbers(pattern, text), slow, "{pattern:?} in {text:?}");
            }
        }
    }

    #[test]
    fn line_numbers_go_on_across_chunks() {
        let filler = format!("{}\n", "x".repeat(99)).repeat(CHUNK / 100 + 10);
        let text = format!("needle\n{filler}{filler}needle\n");
        assert_eq!(numbers("needle", &text), [1, text.lines().count()]);
    }

    #[test]
    fn a_pattern_with_a_line_end_matches_no_line() {
        assert!(numbers("a\\n", "a\nb\n").is_empty());
        assert_eq!(numbers("a\\n?", "a\nb\n"), [1]);
    }

    #[test]
    fn a_pattern_that_explodes_is_an_error() {
        let pattern = Pattern::new("(?=(a+)+$)(a+)+b\\1", false, false).unwrap();
        assert!(matches!(pattern.find(&"a".repeat(200)), Err(SearchFault::Pattern(_)) | Ok(None)));
    }
}
