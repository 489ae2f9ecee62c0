//! Bytes into lines: split on LF alone, in linear time, with a limit.
//!
//! A line over the limit is not kept: it is scanned for the id of its reply while it passes, so
//! that the call it belongs to can fail at once instead of waiting for its deadline.

use crate::mcp::wire::IdScanner;

/// A buffer of this size is kept between lines; one that grew beyond is given back.
const KEEP: usize = 1 << 20;

#[derive(Debug)]
pub(super) enum Line {
    /// A line without its LF, as a range of [`Lines::bytes`].
    Whole(std::ops::Range<usize>),
    /// A line over the limit has ended; the id in it, if one was seen.
    TooLong { id: Option<i64>, length: usize },
}

#[derive(Debug)]
pub(super) struct Lines {
    buffer: Vec<u8>,
    /// Where the next line begins.
    start: usize,
    /// Up to where the buffer was searched for LF: no byte is looked at twice.
    searched: usize,
    limit: usize,
    skipping: Option<(IdScanner, usize)>,
}

impl Lines {
    pub(super) fn new(limit: usize) -> Self {
        Self { buffer: Vec::with_capacity(1 << 16), start: 0, searched: 0, limit, skipping: None }
    }

    /// Where the reader appends; with room for at least one pipe's worth.
    pub(super) fn space(&mut self) -> &mut Vec<u8> {
        if self.start > 0 {
            // At most one partial line moves, and only after whole ones left.
            self.buffer.drain(..self.start);
            self.searched -= self.start;
            self.start = 0;
            if self.buffer.is_empty() && self.buffer.capacity() > KEEP {
                self.buffer.shrink_to(1 << 16);
            }
        }
        self.buffer.reserve(1 << 16);
        &mut self.buffer
    }

    pub(super) fn bytes(&self, range: std::ops::Range<usize>) -> &[u8] {
        self.buffer.get(range).unwrap_or_default()
    }

    pub(super) fn next(&mut self) -> Option<Line> {
        let found = memchr::memchr(b'\n', &self.buffer[self.searched..]).map(|at| self.searched + at);
        if let Some((mut scanner, length)) = self.skipping.take() {
            let end = found.unwrap_or(self.buffer.len());
            scanner.feed(&self.buffer[self.start..end]);
            let length = length + end - self.start;
            if found.is_none() {
                self.skipping = Some((scanner, length));
                self.drop_all();
                return None;
            }
            self.start = end + 1;
            self.searched = self.start;
            return Some(Line::TooLong { id: scanner.id(), length });
        }
        if let Some(end) = found {
            let range = self.start..end;
            self.start = end + 1;
            self.searched = self.start;
            if range.len() > self.limit {
                let mut scanner = IdScanner::default();
                scanner.feed(&self.buffer[range.clone()]);
                return Some(Line::TooLong { id: scanner.id(), length: range.len() });
            }
            return Some(Line::Whole(range));
        }
        self.searched = self.buffer.len();
        let length = self.buffer.len() - self.start;
        if length > self.limit {
            let mut scanner = IdScanner::default();
            scanner.feed(&self.buffer[self.start..]);
            self.skipping = Some((scanner, length));
            self.drop_all();
        }
        None
    }

    /// What is left when the stream ends without a last LF.
    pub(super) fn rest(&mut self) -> Option<Line> {
        if let Some((scanner, length)) = self.skipping.take() {
            return Some(Line::TooLong { id: scanner.id(), length });
        }
        let range = self.start..self.buffer.len();
        self.start = self.buffer.len();
        self.searched = self.start;
        (!range.is_empty()).then_some(Line::Whole(range))
    }

    fn drop_all(&mut self) {
        self.buffer.clear();
        self.buffer.shrink_to(1 << 16);
        self.start = 0;
        self.searched = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(lines: &mut Lines, chunk: &[u8]) -> Vec<String> {
        lines.space().extend_from_slice(chunk);
        let mut out = Vec::new();
        while let Some(line) = lines.next() {
            out.push(match line {
                Line::Whole(range) => String::from_utf8_lossy(lines.bytes(range)).into_owned(),
                Line::TooLong { id, length } => format!("too long {id:?} {length}"),
            });
        }
        out
    }

    #[test]
    fn one_line_in_three_chunks_and_three_in_one() {
        let mut l = Lines::new(100);
        assert!(lines(&mut l, b"ab").is_empty());
        assert!(lines(&mut l, b"c").is_empty());
        assert_eq!(lines(&mut l, b"d\nx\r\n\ny"), ["abcd", "x\r", ""]);
        assert!(matches!(l.rest(), Some(Line::Whole(range)) if l.bytes(range.clone()) == b"y"));
        assert!(l.rest().is_none());
    }

    #[test]
    fn a_line_over_the_limit_passes_and_gives_up_its_id() {
        let mut l = Lines::new(20);
        assert!(lines(&mut l, b"{\"result\":\"0123456789").is_empty());
        assert!(lines(&mut l, b"0123456789\",\"i").is_empty());
        assert_eq!(lines(&mut l, b"d\":\"41\"}\nnext\n"), ["too long Some(41) 43", "next"]);
        assert_eq!(lines(&mut l, b"{\"id\":7,\"result\":\"0123456789\"}\n"), ["too long Some(7) 30"]);
    }
}
