//! Python's regular expressions, rewritten for the engines of Rust.
//!
//! The parser follows the grammar of Python's `re` and its error texts; what it writes means the
//! same to `regex`, or to `fancy-regex` where a pattern looks around, refers back or is
//! possessive. Patterns are only ever applied to single lines, so that the flags `m` and `s` change
//! nothing and `^`, `\A`, `$`, `\Z` are the ends of a line.
//!
//! Known differences: `\w` and `\b` go by Unicode's definition (marks belong to words), look-behind
//! may have any width, and `\N{name}` is refused.

mod escape;
mod group;

use std::{collections::HashMap, fmt::Write as _};

/// Groups within groups that a pattern may have.
const MAX_DEPTH: usize = 100;

/// A pattern for the engines of Rust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Translated {
    pub(super) pattern: String,
    /// Whether only a backtracking engine understands it.
    pub(super) fancy: bool,
}

/// # Errors
/// With Python's text when the pattern is invalid.
pub(super) fn translate(pattern: &str, ignore_case: bool) -> Result<Translated, String> {
    let mut parser = Parser::new(pattern);
    let out = match parser.whole(false) {
        // A global `(?x)` changes how the whole pattern is read.
        Err(Fault::Verbose) => {
            parser = Parser::new(pattern);
            parser.whole(true)
        }
        other => other,
    };
    match out {
        Ok(body) => {
            let flags = if ignore_case || parser.ignore_case { "(?i)" } else { "" };
            let body = if parser.fancy {
                body.replace(REPEATABLE, "|[^\\s\\S]")
                    .replace(ASCII_BOUNDARY, FANCY_ASCII_BOUNDARY)
                    .replace(ASCII_INSIDE, &format!("(?!{FANCY_ASCII_BOUNDARY})"))
            } else {
                body.replace(REPEATABLE, "")
            };
            Ok(Translated { pattern: format!("{flags}{body}"), fancy: parser.fancy })
        }
        Err(Fault::At(message, at)) => Err(parser.describe(&message, at)),
        Err(Fault::Bare(message)) => Err(message),
        Err(Fault::Verbose) => Err("the flag x cannot be applied".into()),
    }
}

enum Fault {
    At(String, usize),
    Bare(String),
    Verbose,
}

type Parse<T> = Result<T, Fault>;

#[derive(PartialEq, Clone, Copy)]
enum Kind {
    /// Something that may be repeated.
    Atom,
    /// `^`, `$`, `\b`...
    Anchor,
    Repeat,
}

#[derive(Default)]
struct Parser {
    chars: Vec<char>,
    at: usize,
    ignore_case: bool,
    ascii: bool,
    fancy: bool,
    /// Whether each group is closed; the whole match is group 0.
    closed: Vec<bool>,
    names: HashMap<String, usize>,
    /// Inside look-behind, the number of the first group that is defined there.
    behind: Option<usize>,
    /// Groups that conditions ask about, and where.
    asked: Vec<(usize, usize)>,
}

impl Parser {
    fn new(pattern: &str) -> Self {
        Self { chars: pattern.chars().collect(), closed: vec![false], ..Self::default() }
    }

    fn describe(&self, message: &str, at: usize) -> String {
        let mut text = format!("{message} at position {at}");
        if self.chars.contains(&'\n') {
            let before = &self.chars[..at.min(self.chars.len())];
            let line = before.iter().filter(|&&c| c == '\n').count() + 1;
            let column = before.iter().rev().take_while(|&&c| c != '\n').count() + 1;
            let _ = write!(text, " (line {line}, column {column})");
        }
        text
    }

    fn fault<T>(&self, message: impl Into<String>, back: usize) -> Parse<T> {
        Err(Fault::At(message.into(), self.at.saturating_sub(back)))
    }

    /// A fault that is reported where something began.
    fn fault_at<T>(message: impl Into<String>, at: usize) -> Parse<T> {
        Err(Fault::At(message.into(), at))
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn next(&mut self) -> Option<char> {
        let c = self.peek()?;
        self.at += 1;
        Some(c)
    }

    fn eat(&mut self, c: char) -> bool {
        let found = self.peek() == Some(c);
        self.at += usize::from(found);
        found
    }

    /// The next token when it is not a plain character: the second half of an escape.
    fn escaped(&mut self) -> Parse<char> {
        match self.next() {
            Some(c) => Ok(c),
            None => Self::fault_at("bad escape (end of pattern)", self.at - 1),
        }
    }

    fn take_while(&mut self, most: usize, admits: impl Fn(char) -> bool) -> String {
        let mut out = String::new();
        while out.len() < most {
            match self.peek() {
                Some(c) if admits(c) => {
                    out.push(c);
                    self.at += 1;
                }
                _ => break,
            }
        }
        out
    }

    fn whole(&mut self, verbose: bool) -> Parse<String> {
        // Python's tokenizer looks one token ahead and complains about a lone backslash first.
        let tail = self.chars.iter().rev().take_while(|&&c| c == '\\').count();
        let out = self.alternatives(verbose, 0);
        if tail % 2 == 1 && !matches!(out, Err(Fault::At(_, at)) if at + 1 < self.chars.len()) {
            return Self::fault_at("bad escape (end of pattern)", self.chars.len() - 1);
        }
        let out = out?;
        if self.peek().is_some() {
            return self.fault("unbalanced parenthesis", 0);
        }
        if let Some((group, at)) = self.asked.iter().find(|(group, _)| *group >= self.closed.len()) {
            return Self::fault_at(format!("invalid group reference {group}"), *at);
        }
        Ok(out)
    }

    fn alternatives(&mut self, verbose: bool, depth: usize) -> Parse<String> {
        if depth > MAX_DEPTH {
            return self.fault("groups are nested too deeply", 0);
        }
        let mut out = self.sequence(verbose, depth, depth == 0)?;
        while self.eat('|') {
            out.push('|');
            out.push_str(&self.sequence(verbose, depth, false)?);
        }
        Ok(out)
    }

    fn sequence(&mut self, verbose: bool, depth: usize, first: bool) -> Parse<String> {
        let mut out = String::new();
        // The last item waits here, because a quantifier may follow.
        let mut last: Option<(Kind, String)> = None;
        while let Some(c) = self.peek() {
            if matches!(c, '|' | ')') {
                break;
            }
            self.at += 1;
            if verbose && matches!(c, ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}') {
                continue;
            }
            if verbose && c == '#' {
                while self.next().is_some_and(|c| c != '\n') {}
                continue;
            }
            let item = match c {
                '\\' => Some(self.escape()?),
                '[' => Some((Kind::Atom, self.class()?)),
                '.' => Some((Kind::Atom, ".".to_owned())),
                '^' => Some((Kind::Anchor, "(?m:^)".to_owned())),
                '$' => Some((Kind::Anchor, "(?m:$)".to_owned())),
                '(' => self.group(verbose, depth, first && out.is_empty() && last.is_none())?,
                '*' | '+' | '?' | '{' => match self.quantifier(c)? {
                    Some(quantifier) => {
                        let item = last.take();
                        last = Some((Kind::Repeat, self.repeat(item, &quantifier)?));
                        continue;
                    }
                    None => Some((Kind::Atom, literal('{'))),
                },
                c => Some((Kind::Atom, literal(c))),
            };
            if let Some((_, text)) = item.and_then(|item| last.replace(item)) {
                out.push_str(&text);
            }
        }
        if let Some((_, text)) = last {
            out.push_str(&text);
        }
        Ok(out)
    }

    /// The quantifier that `c` begins, and where; `None` when `{` is a plain character.
    fn quantifier(&mut self, c: char) -> Parse<Option<Quantifier>> {
        let here = self.at;
        let text = match c {
            '{' => {
                if self.peek() == Some('}') {
                    return Ok(None);
                }
                let low = self.take_while(usize::MAX, |c| c.is_ascii_digit());
                let comma = self.eat(',');
                let high =
                    if comma { self.take_while(usize::MAX, |c| c.is_ascii_digit()) } else { low.clone() };
                if !self.eat('}') {
                    self.at = here;
                    return Ok(None);
                }
                let (low, high) = (bound(&low)?, bound(&high)?);
                if high.is_some_and(|high| high < low.unwrap_or(0)) {
                    return Self::fault_at("min repeat greater than max repeat", here);
                }
                format!("{{{},{}}}", low.unwrap_or(0), high.map(|n| n.to_string()).unwrap_or_default())
            }
            c => c.to_string(),
        };
        Ok(Some(Quantifier { text, start: here - 1 }))
    }

    fn repeat(&mut self, item: Option<(Kind, String)>, quantifier: &Quantifier) -> Parse<String> {
        let (kind, text) = match item {
            None | Some((Kind::Anchor, _)) => return Self::fault_at("nothing to repeat", quantifier.start),
            Some(item) => item,
        };
        if kind == Kind::Repeat {
            return Self::fault_at("multiple repeat", quantifier.start);
        }
        let repeated = format!("(?:{text}{REPEATABLE}){}", quantifier.text);
        Ok(if self.eat('?') {
            format!("{repeated}?")
        } else if self.eat('+') {
            self.fancy = true;
            format!("(?>{repeated})")
        } else {
            repeated
        })
    }
}

struct Quantifier {
    text: String,
    start: usize,
}

/// Stands in a repeated group until it is known which engine gets the pattern: `fancy-regex` refuses to
/// repeat what is empty or looks around, unless there is an alternative.
const REPEATABLE: char = '\0';

/// Boundaries of ASCII words; `fancy-regex` has no inline flag for them.
const ASCII_BOUNDARY: &str = r"(?-u:\b)";
const ASCII_INSIDE: &str = r"(?-u:\B)";
const FANCY_ASCII_BOUNDARY: &str = "(?:(?<=[a-zA-Z0-9_])(?![a-zA-Z0-9_])|(?<![a-zA-Z0-9_])(?=[a-zA-Z0-9_]))";

const NEVER: &str = r"[^\s\S]";

fn bound(digits: &str) -> Parse<Option<u32>> {
    if digits.is_empty() {
        return Ok(None);
    }
    match digits.parse::<u32>() {
        Ok(n) if n < u32::MAX => Ok(Some(n)),
        _ => Err(Fault::Bare("the repetition number is too large".into())),
    }
}

fn literal(c: char) -> String {
    if c.is_ascii_alphanumeric() || !c.is_ascii() && c.is_alphanumeric() {
        c.to_string()
    } else {
        code(u32::from(c))
    }
}

fn code(value: u32) -> String {
    // A surrogate cannot occur in valid text.
    if char::from_u32(value).is_some() { format!("\\x{{{value:x}}}") } else { NEVER.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(pattern: &str) -> String {
        translate(pattern, false).unwrap_err()
    }

    fn finds(pattern: &str, text: &str) -> bool {
        let out = translate(pattern, false).unwrap();
        fancy_regex::Regex::new(&out.pattern).unwrap().is_match(text).unwrap()
    }

    #[test]
    fn faults_read_like_those_of_python() {
        for (pattern, text) in [
            ("a(", "missing ), unterminated subpattern at position 1"),
            ("a)", "unbalanced parenthesis at position 1"),
            ("[a", "unterminated character set at position 0"),
            ("*a", "nothing to repeat at position 0"),
            ("a**", "multiple repeat at position 2"),
            ("\\p", "bad escape \\p at position 0"),
            ("(?<x>a)", "unknown extension ?<x at position 1"),
            ("a{3,2}", "min repeat greater than max repeat at position 2"),
            ("(?i", "missing -, : or ) at position 3"),
            ("(a)\\2", "invalid group reference 2 at position 4"),
            ("x(?i)", "global flags not at the start of the expression at position 1"),
            ("[b-a]", "bad character range b-a at position 1"),
            ("\\", "bad escape (end of pattern) at position 0"),
            ("(?P<a>x)(?P<a>y)", "redefinition of group name 'a' as group 2; was group 1 at position 12"),
            ("\\x1", "incomplete escape \\x1 at position 0"),
            ("(?P=q)", "unknown group name 'q' at position 4"),
            ("\n(", "missing ), unterminated subpattern at position 1 (line 2, column 1)"),
            ("(?P<1a>x)", "bad character in group name '1a' at position 4"),
            ("(?P<>x)", "missing group name at position 4"),
            ("(?(2)a)", "invalid group reference 2 at position 3"),
            ("(?#", "missing ), unterminated comment at position 0"),
        ] {
            assert_eq!(fault(pattern), text, "{pattern:?}");
        }
    }

    #[test]
    fn what_python_takes_literally_stays_literal() {
        assert!(finds("a{x}{,", "a{x}{,") && finds("[[a&&b]", "[") && finds("\\<", "<"));
        assert!(finds("^[]a]+$", "]a") && finds("x{,2}y", "xxy") && finds("\\/\\é", "/é"));
    }

    #[test]
    fn pythons_own_syntax_works() {
        assert!(finds("(?P<n>a)-(?P=n)\\Z", "a-a") && !finds("(?P<n>a)-(?P=n)\\Z", "a-b"));
        assert!(finds("(?x) a b # c", "ab") && finds("(?i)ÄB", "äb") && finds("\\u00e9\\x41\\101", "éAA"));
        assert!(finds("(a)?b(?(1)c|d)$", "abc") && finds("(?<!x)y", "zy") && !finds("(?a)^\\w$", "é"));
        assert!(finds("(?a)\\bx(?=y)\\B", "éxy") && finds("(?:(?=a))*a(?:)*", "a"));
        assert!(!finds("a++a", "aaa") && finds("(?-i:a)(?#note)b", "ab"));
    }

    #[test]
    fn deep_nesting_is_refused() {
        let deep = format!("{}a{}", "(".repeat(5000), ")".repeat(5000));
        assert!(fault(&deep).starts_with("groups are nested too deeply"));
    }
}
