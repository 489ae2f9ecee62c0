//! Text as the search sees it: what is binary, and where Python's `str.splitlines()` ends lines.

use memchr::{memchr, memchr_iter, memchr2, memchr3, memmem};

/// Whether a file's bytes are taken for something other than text: a NUL byte anywhere, or more
/// than a fifth of control characters at its beginning.
pub(super) fn is_binary(raw: &[u8]) -> bool {
    if memchr(0, raw).is_some() {
        return true;
    }
    let sample = &raw[..raw.len().min(4096)];
    let odd = sample.iter().filter(|&&b| b < 9 || (b > 13 && b < 32)).count();
    odd * 5 > sample.len()
}

/// Whether lines end at `\n` and `\r\n` alone, so that a byte search finds them.
pub(super) fn is_plain(text: &str) -> bool {
    let bytes = text.as_bytes();
    if memchr2(0x0b, 0x0c, bytes).is_some() || memchr3(0x1c, 0x1d, 0x1e, bytes).is_some() {
        return false;
    }
    if memchr_iter(b'\r', bytes).any(|at| bytes.get(at + 1) != Some(&b'\n')) {
        return false;
    }
    text.is_ascii()
        || ["\u{85}", "\u{2028}", "\u{2029}"].iter().all(|end| memmem::find(bytes, end.as_bytes()).is_none())
}

/// The lines of a text as byte ranges without their terminators.
pub(super) fn split_lines(text: &str) -> Vec<(usize, usize)> {
    let mut lines = Vec::new();
    let mut start = 0;
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        if !matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        ) {
            continue;
        }
        lines.push((start, at));
        start = at + c.len_utf8();
        if c == '\r' && chars.next_if(|&(_, next)| next == '\n').is_some() {
            start += 1;
        }
    }
    if start < text.len() {
        lines.push((start, text.len()));
    }
    lines
}

/// The next line of a plain text as a byte range, and where the one after it begins.
pub(super) fn next_plain_line(text: &str, start: usize) -> Option<(usize, usize, usize)> {
    let rest = text.as_bytes().get(start..).filter(|rest| !rest.is_empty())?;
    let (end, next) = memchr(b'\n', rest).map_or((text.len(), text.len()), |n| (start + n, start + n + 1));
    let end = if next > end && end > start && text.as_bytes()[end - 1] == b'\r' { end - 1 } else { end };
    Some((start, end, next))
}

/// Whether `str.strip()` and `str.split()` of Python take the character for white space.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || matches!(c, '\u{1c}'..='\u{1f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_end_where_python_ends_them() {
        let text = "a\r\nb\rc\u{b}d\u{c}\u{1c}e\u{85}f\u{2028}g\n\nh";
        let lines: Vec<&str> = split_lines(text).into_iter().map(|(s, e)| &text[s..e]).collect();
        assert_eq!(lines, ["a", "b", "c", "d", "", "e", "f", "g", "", "h"]);
        assert!(!is_plain(text));
        assert!(is_plain("a\r\nb\né\n"));
    }

    #[test]
    fn plain_lines_are_the_same_lines() {
        for text in ["", "a", "a\n", "a\r\n\r\nb", "\n\n", "é\nx\r\n"] {
            let mut at = 0;
            let mut lines = Vec::new();
            while let Some((start, end, next)) = next_plain_line(text, at) {
                lines.push((start, end));
                at = next;
            }
            assert_eq!(lines, split_lines(text), "{text:?}");
        }
    }
}
