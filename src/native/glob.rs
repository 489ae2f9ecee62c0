//! Which names a glob, a file type or a query admits.
//!
//! Globs are those of Python's `fnmatch` and `PurePath.match`, which differ from those of the
//! `globset` crate: there are no `{a,b}` and no escapes, `[!x]` negates while `[^x]` does not, a
//! bracket without an end is a plain character, and a relative pattern with a slash matches the
//! end of a path.

use super::text::is_space;

const TYPES: &[(&str, &[&str])] = &[
    ("py", &["*.py", "*.pyi"]),
    ("python", &["*.py", "*.pyi"]),
    ("js", &["*.js", "*.jsx", "*.mjs", "*.cjs"]),
    ("ts", &["*.ts", "*.tsx", "*.mts", "*.cts"]),
    ("tsx", &["*.tsx"]),
    ("jsx", &["*.jsx"]),
    ("json", &["*.json"]),
    ("md", &["*.md", "*.mdx"]),
    ("markdown", &["*.md", "*.mdx"]),
    ("go", &["*.go"]),
    ("rs", &["*.rs"]),
    ("rust", &["*.rs"]),
    ("java", &["*.java"]),
    ("sh", &["*.sh", "*.bash"]),
    ("yaml", &["*.yaml", "*.yml"]),
    ("yml", &["*.yaml", "*.yml"]),
    ("toml", &["*.toml"]),
    ("sql", &["*.sql"]),
    ("html", &["*.html", "*.htm"]),
    ("css", &["*.css", "*.scss", "*.sass"]),
];

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Literal(char),
    Any,
    Star,
    /// Ranges of characters; an empty positive set matches nothing.
    Set(bool, Vec<(char, char)>),
}

/// One pattern of `fnmatch`.
#[derive(Debug, Clone)]
struct Wildcard(Vec<Token>);

impl Wildcard {
    fn new(pattern: &str) -> Self {
        let chars: Vec<char> = pattern.chars().collect();
        let mut tokens = Vec::new();
        let mut at = 0;
        while let Some(&c) = chars.get(at) {
            at += 1;
            match c {
                '*' if tokens.last() == Some(&Token::Star) => {}
                '*' => tokens.push(Token::Star),
                '?' => tokens.push(Token::Any),
                '[' => match end_of_set(&chars, at) {
                    Some(end) => {
                        tokens.push(set(&chars[at..end]));
                        at = end + 1;
                    }
                    None => tokens.push(Token::Literal('[')),
                },
                c => tokens.push(Token::Literal(c)),
            }
        }
        Self(tokens)
    }

    fn matches(&self, name: &str) -> bool {
        let name: Vec<char> = name.chars().collect();
        let (mut token, mut at) = (0, 0);
        // Where to go on when the characters after the last star do not fit.
        let mut retry: Option<(usize, usize)> = None;
        loop {
            let fits = match self.0.get(token) {
                Some(Token::Star) => {
                    retry = Some((token + 1, at));
                    token += 1;
                    continue;
                }
                None if at == name.len() => return true,
                None => false,
                Some(single) => name.get(at).is_some_and(|&c| single.admits(c)),
            };
            if fits {
                token += 1;
                at += 1;
            } else {
                match retry {
                    Some((after, from)) if from < name.len() => {
                        retry = Some((after, from + 1));
                        (token, at) = (after, from + 1);
                    }
                    _ => return false,
                }
            }
        }
    }
}

impl Token {
    fn admits(&self, c: char) -> bool {
        match self {
            Self::Literal(literal) => *literal == c,
            Self::Any | Self::Star => true,
            Self::Set(negated, ranges) => ranges.iter().any(|&(lo, hi)| lo <= c && c <= hi) != *negated,
        }
    }
}

/// The index of the `]` that ends the set which begins at `start`.
fn end_of_set(chars: &[char], start: usize) -> Option<usize> {
    let mut at = start;
    if chars.get(at) == Some(&'!') {
        at += 1;
    }
    if chars.get(at) == Some(&']') {
        at += 1;
    }
    chars[at.min(chars.len())..].iter().position(|&c| c == ']').map(|n| at + n)
}

fn set(inside: &[char]) -> Token {
    let (negated, body) = match inside {
        ['!', rest @ ..] => (true, rest),
        _ => (false, inside),
    };
    // Cut at the hyphens that make a range: not at the first character, and not within the three
    // characters of the range before.
    let mut chunks: Vec<&[char]> = Vec::new();
    let (mut from, mut look) = (0, 1);
    while let Some(hyphen) =
        body.get(look..).and_then(|rest| rest.iter().position(|&c| c == '-')).map(|n| n + look)
    {
        chunks.push(&body[from..hyphen]);
        from = hyphen + 1;
        look = hyphen + 3;
    }
    let mut ranges: Vec<(char, char)> = Vec::new();
    let last = &body[from.min(body.len())..];
    if last.is_empty() && !chunks.is_empty() {
        ranges.push(('-', '-'));
    } else {
        chunks.push(last);
    }
    for (index, chunk) in chunks.iter().enumerate() {
        // The ends of a chunk belong to ranges where a neighbour exists.
        let first = usize::from(index > 0);
        let last = chunk.len() - usize::from(index + 1 < chunks.len());
        ranges.extend(chunk.get(first..last).unwrap_or_default().iter().map(|&c| (c, c)));
        if let (Some(&lo), Some(&hi)) = (chunk.last(), chunks.get(index + 1).and_then(|next| next.first())) {
            // A range the wrong way round is dropped, with both of its ends.
            if lo <= hi {
                ranges.push((lo, hi));
            }
        }
    }
    Token::Set(negated, ranges)
}

/// A path filter such as `*.py` or `tests/**/test_*.py`.
#[derive(Debug, Clone)]
pub(super) enum Glob {
    /// Nothing but white space: matches nothing.
    Nothing,
    /// Applied to the file name.
    Name(Name),
    /// Applied to the end of the path, segment by segment; `None` is `**`.
    Path(Vec<Option<Segment>>),
    /// An absolute pattern: no relative path fits.
    Absolute,
    /// A path pattern without a segment, such as `./`.
    Empty,
}

/// A pattern for one name.
#[derive(Debug, Clone)]
pub(super) struct Name(Wildcard);

/// A pattern for one segment of a path.
#[derive(Debug, Clone)]
pub(super) struct Segment(Wildcard);

impl Glob {
    pub(super) fn new(pattern: &str) -> Self {
        let pattern = pattern.trim_matches(is_space).replace('\\', "/");
        if pattern.is_empty() {
            return Self::Nothing;
        }
        if !pattern.contains('/') && !pattern.starts_with("**") {
            return Self::Name(Name(Wildcard::new(&fold(&pattern))));
        }
        let segments: Vec<_> =
            segments(&pattern).map(|part| (part != "**").then(|| Segment(Wildcard::new(part)))).collect();
        if pattern.starts_with('/') {
            Self::Absolute
        } else if segments.is_empty() {
            Self::Empty
        } else {
            Self::Path(segments)
        }
    }

    /// # Errors
    /// For a pattern that `PurePath.match` refuses.
    pub(super) fn matches(&self, relative: &str, name: &str) -> Result<bool, String> {
        match self {
            Self::Nothing | Self::Absolute => Ok(false),
            Self::Empty => Err("empty pattern".into()),
            Self::Name(Name(wildcard)) => Ok(wildcard.matches(&fold(name))),
            Self::Path(pattern) => {
                let parts: Vec<&str> = segments(relative).collect();
                Ok(matches_path(pattern, &parts))
            }
        }
    }
}

fn matches_path(pattern: &[Option<Segment>], parts: &[&str]) -> bool {
    // reached[i]: the pattern so far can end after i segments; it may begin anywhere.
    let mut reached = vec![true; parts.len() + 1];
    for segment in pattern {
        match segment {
            None => {
                for index in 1..reached.len() {
                    reached[index] |= reached[index - 1];
                }
            }
            Some(Segment(wildcard)) => {
                for index in (1..reached.len()).rev() {
                    reached[index] = reached[index - 1] && wildcard.matches(parts[index - 1]);
                }
                reached[0] = false;
            }
        }
    }
    reached.last().copied().unwrap_or(false)
}

fn segments(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|part| !part.is_empty() && *part != ".")
}

/// `os.path.normcase`: names differ by case except on Windows.
fn fold(name: &str) -> String {
    if cfg!(windows) { name.to_lowercase() } else { name.to_owned() }
}

/// A file type such as `py`; an unknown one is an extension.
#[derive(Debug, Clone)]
pub(super) struct FileType(Vec<Wildcard>);

impl FileType {
    pub(super) fn new(name: &str) -> Option<Self> {
        let name = name.trim_matches(is_space).to_lowercase();
        if name.is_empty() {
            return None;
        }
        let patterns = match TYPES.iter().find(|(known, _)| *known == name) {
            Some((_, patterns)) => patterns.iter().map(|p| Wildcard::new(p)).collect(),
            None => vec![Wildcard::new(&format!("*.{name}"))],
        };
        Some(Self(patterns))
    }

    pub(super) fn matches(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        self.0.iter().any(|wildcard| wildcard.matches(&name))
    }
}

/// Terms that must all occur in a path, whatever their case.
#[derive(Debug, Clone, Default)]
pub(super) struct Query(Vec<String>);

impl Query {
    pub(super) fn new(query: &str) -> Self {
        Self(query.to_lowercase().split(is_space).filter(|t| !t.is_empty()).map(str::to_owned).collect())
    }

    pub(super) fn matches(&self, path: &str) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let path = path.to_lowercase();
        self.0.iter().all(|term| path.contains(term.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(pattern: &str, name: &str) -> bool {
        Glob::new(pattern).matches(name, name).unwrap()
    }

    #[test]
    fn sets_are_those_of_fnmatch() {
        assert!(name("[!a]x", "bx") && !name("[!a]x", "ax"));
        assert!(name("[^a]x", "^x") && name("[^a]x", "ax") && !name("[^a]x", "bx"));
        assert!(name("[]]", "]") && name("[a", "[a") && name("[!]", "[!]"));
        assert!(name("[a-c]", "b") && name("[a-]", "-") && name("[-a]", "-"));
        assert!(!name("[c-a]", "b") && !name("[c-a]", "c") && name("[!c-a]", "c"));
        assert!(name("[c-ab]", "b") && !name("[c-ab]", "a"));
        assert!(name("{a,b}", "{a,b}") && !name("{a,b}", "a"));
    }

    #[test]
    fn stars_backtrack() {
        assert!(name("*a*b", "aab") && name("a*", "a") && !name("*ab", "aba"));
        assert!(name("*.p?", "x.y.py") && !name("*.p?", "x.p"));
    }

    #[test]
    fn paths_match_from_their_end() {
        let path = |pattern: &str, path: &str| Glob::new(pattern).matches(path, "").unwrap();
        assert!(path("src/*.rs", "a/src/x.rs") && !path("src/*.rs", "src/a/x.rs"));
        assert!(path("src/**/*.rs", "a/src/b/c/x.rs") && path("src/**/*.rs", "src/x.rs"));
        assert!(path("**", "a/b") && path("**/", "a") && !path("/a", "a"));
        assert!(Glob::new("./").matches("a", "a").is_err());
        assert!(!name("  ", "a"));
    }

    #[test]
    fn types_ignore_case() {
        assert!(FileType::new(" PY ").unwrap().matches("A.PYI"));
        assert!(FileType::new("cfg").unwrap().matches("x.CFG"));
        assert!(FileType::new(" ").is_none());
    }
}
