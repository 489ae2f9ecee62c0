//! What [`crate::fuzzing`] offers of the transports.

use super::frame::{self, Lines};

/// A line of a server's stdout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// The line without its LF.
    Whole(Vec<u8>),
    /// It was longer than the limit.
    TooLong {
        /// The id in it, if one was seen.
        id: Option<i64>,
        /// How long it was.
        length: usize,
    },
}

/// The lines of a stream that arrives in chunks.
pub fn lines<'a>(limit: usize, chunks: impl Iterator<Item = &'a [u8]>) -> Vec<Line> {
    let mut lines = Lines::new(limit);
    let mut found = Vec::new();
    let owned = |line: frame::Line, lines: &Lines| match line {
        frame::Line::Whole(range) => Line::Whole(lines.bytes(range).to_vec()),
        frame::Line::TooLong { id, length } => Line::TooLong { id, length },
    };
    for chunk in chunks {
        lines.space().extend_from_slice(chunk);
        while let Some(line) = lines.next() {
            found.push(owned(line, &lines));
        }
    }
    if let Some(line) = lines.rest() {
        found.push(owned(line, &lines));
    }
    found
}
