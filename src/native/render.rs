//! How a match of `grep` is shown: a heading and the lines around the match, long lines cut.

use std::fmt::Write as _;

use super::{pattern::Hit, text::next_plain_line};

/// Characters of a line that are shown.
const MAX_LINE_CHARS: usize = 2_000;
const MARKER: &str = "...";

/// Where the lines of a text are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lines<'a> {
    pub(super) text: &'a str,
    /// The lines one by one, for a text whose lines do not simply end at `\n`.
    pub(super) listed: Option<&'a [(usize, usize)]>,
}

impl Lines<'_> {
    /// The numbers and ranges of the lines before a hit, the nearest first.
    fn before(self, hit: Hit, most: usize) -> Vec<(usize, usize, usize)> {
        if let Some(lines) = self.listed {
            let upto = hit.number - 1;
            return (upto.saturating_sub(most)..upto)
                .rev()
                .map(|i| (i + 1, lines[i].0, lines[i].1))
                .collect();
        }
        let mut out = Vec::new();
        let mut start = hit.start;
        while out.len() < most && start > 0 {
            let end = start - 1;
            start = memchr::memrchr(b'\n', &self.text.as_bytes()[..end]).map_or(0, |n| n + 1);
            let cut = usize::from(self.text[start..end].ends_with('\r'));
            out.push((hit.number - out.len() - 1, start, end - cut));
        }
        out
    }

    fn after(self, hit: Hit, most: usize) -> Vec<(usize, usize, usize)> {
        if let Some(lines) = self.listed {
            return (hit.number..lines.len().min(hit.number.saturating_add(most)))
                .map(|i| (i + 1, lines[i].0, lines[i].1))
                .collect();
        }
        let mut out = Vec::new();
        // The hit's own line is read again for the length of its terminator.
        let mut next = next_plain_line(self.text, hit.start).map_or(self.text.len(), |(_, _, next)| next);
        while out.len() < most {
            let Some((start, end, following)) = next_plain_line(self.text, next) else { break };
            out.push((hit.number + out.len() + 1, start, end));
            next = following;
        }
        out
    }
}

/// One match with its context.
pub(super) fn block(
    display: &str,
    lines: Lines<'_>,
    hit: Hit,
    match_start: impl FnOnce(&str) -> usize,
    (before, after): (usize, usize),
) -> String {
    let mut out = format!("{display}:{}", hit.number);
    for (number, start, end) in lines.before(hit, before).into_iter().rev() {
        let _ = write!(out, "\n  {number}| {}", clip(&lines.text[start..end], None));
    }
    let line = &lines.text[hit.start..hit.end];
    // Finding the match again is only needed where it decides what is cut.
    let at = (line.len() > MAX_LINE_CHARS).then(|| match_start(line));
    let _ = write!(out, "\n> {}| {}", hit.number, clip(line, Some(at.unwrap_or(0))));
    for (number, start, end) in lines.after(hit, after) {
        let _ = write!(out, "\n  {number}| {}", clip(&lines.text[start..end], None));
    }
    out
}

/// The line, or the part of it around the byte `match_start`.
fn clip(line: &str, match_start: Option<usize>) -> std::borrow::Cow<'_, str> {
    if line.len() <= MAX_LINE_CHARS {
        return line.into();
    }
    let length = line.chars().count();
    if length <= MAX_LINE_CHARS {
        return line.into();
    }
    let available = MAX_LINE_CHARS - MARKER.len();
    let Some(match_start) = match_start else {
        return format!("{}{MARKER}", chars(line, 0, available)).into();
    };
    // An empty match of an ASCII word boundary can lie inside a character.
    let match_start = (0..=match_start).rev().find(|&at| line.is_char_boundary(at)).unwrap_or(0);
    let match_start = line[..match_start].chars().count();
    let start = match_start.saturating_sub(available / 3).min(length - available);
    let more = start + available < length;
    let shown = if start > 0 && more { available - MARKER.len() } else { available };
    let (prefix, suffix) = (if start > 0 { MARKER } else { "" }, if more { MARKER } else { "" });
    format!("{prefix}{}{suffix}", chars(line, start, shown)).into()
}

fn chars(line: &str, from: usize, count: usize) -> &str {
    let at = |text: &str, n: usize| text.char_indices().nth(n).map_or(text.len(), |(at, _)| at);
    let rest = &line[at(line, from)..];
    &rest[..at(rest, count)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lines_are_cut_by_characters_around_the_match() {
        let line = format!("{}X{}", "é".repeat(3000), "ü".repeat(3000));
        let shown = clip(&line, Some(6000));
        assert_eq!(shown.chars().count(), 2000);
        assert!(shown.starts_with("...é") && shown.ends_with("ü...") && shown.contains('X'));
        assert_eq!(clip(&line, None).chars().count(), 2000);
        assert!(clip(&line, Some(0)).starts_with('é'));
        assert!(clip(&line, Some(line.len())).ends_with('ü'));
        assert_eq!(clip(&line, Some(1)), clip(&line, Some(0)));
        assert_eq!(clip("short", Some(3)), "short");
    }
}
