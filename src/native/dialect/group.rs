//! What parentheses can mean: groups, look-around, conditions, flags, comments.

use std::fmt::Write as _;

use super::{Fault, Kind, MAX_DEPTH, Parse, Parser};
use crate::native::paths::repr;

enum Flags {
    Global(String),
    Scoped { on: String, off: String },
}

impl Parser {
    /// What follows an opening parenthesis; `None` for what leaves no item (comments, flags).
    pub(super) fn group(
        &mut self,
        verbose: bool,
        depth: usize,
        first: bool,
    ) -> Parse<Option<(Kind, String)>> {
        let start = self.at - 1;
        let mut name = None;
        let mut open = "(";
        if self.eat('?') {
            match self.next() {
                None => return self.fault("unexpected end of pattern", 0),
                Some('P') if self.eat('<') => name = Some(self.group_name('>')?),
                Some('P') if self.eat('=') => {
                    let name = self.group_name(')')?;
                    let back = name.chars().count() + 1;
                    let Some(&group) = self.names.get(&name) else {
                        return self.fault(format!("unknown group name {}", repr(&name)), back);
                    };
                    if !self.closed[group] {
                        return self.fault("cannot refer to an open group", back);
                    }
                    self.check_behind(group)?;
                    self.fancy = true;
                    return Ok(Some((Kind::Atom, format!("(?:\\{group})"))));
                }
                Some('P') => {
                    return match self.next() {
                        None => self.fault("unexpected end of pattern", 0),
                        Some(c) => self.fault(format!("unknown extension ?P{c}"), 3),
                    };
                }
                Some(':') => open = "(?:",
                Some('>') => {
                    self.fancy = true;
                    open = "(?>";
                }
                Some('#') => {
                    while self.next().is_some_and(|c| c != ')') {}
                    if self.chars.get(self.at - 1) != Some(&')') || self.at - 1 == start + 2 {
                        return Self::fault_at("missing ), unterminated comment", start);
                    }
                    return Ok(None);
                }
                Some(c @ ('=' | '!')) => {
                    return self.look(start, &format!("(?{c}"), verbose, depth).map(Some);
                }
                Some('<') => {
                    return match self.next() {
                        None => self.fault("unexpected end of pattern", 0),
                        Some(c @ ('=' | '!')) => {
                            self.look(start, &format!("(?<{c}"), verbose, depth).map(Some)
                        }
                        Some(c) => self.fault(format!("unknown extension ?<{c}"), 3),
                    };
                }
                Some('(') => return self.condition(start, verbose, depth).map(Some),
                Some(c) if is_flag(c) || c == '-' => match self.flags(c)? {
                    Flags::Global(text) => {
                        if !first {
                            return Self::fault_at("global flags not at the start of the expression", start);
                        }
                        self.ignore_case |= text.contains('i');
                        self.ascii |= text.contains('a');
                        if text.contains('x') && !verbose {
                            return Err(Fault::Verbose);
                        }
                        return Ok(None);
                    }
                    Flags::Scoped { on, off } => {
                        return self.scoped(start, verbose, depth, &on, &off).map(Some);
                    }
                },
                Some(c) => return self.fault(format!("unknown extension ?{c}"), 2),
            }
        }
        let capture = (open == "(").then_some(self.closed.len());
        if let Some(group) = capture {
            if let Some(name) = name {
                if let Some(taken) = self.names.get(&name) {
                    let text = format!(
                        "redefinition of group name {} as group {group}; was group {taken}",
                        repr(&name)
                    );
                    return self.fault(text, name.chars().count() + 1);
                }
                self.names.insert(name, group);
            }
            self.closed.push(false);
        }
        let body = self.alternatives(verbose, depth + 1)?;
        self.close(start)?;
        if let Some(group) = capture {
            self.closed[group] = true;
        }
        Ok(Some((Kind::Atom, format!("{open}{body})"))))
    }

    /// `(?i-x:...)`.
    fn scoped(
        &mut self,
        start: usize,
        verbose: bool,
        depth: usize,
        on: &str,
        off: &str,
    ) -> Parse<(Kind, String)> {
        let open = match (on.contains('i'), off.contains('i')) {
            (true, _) => "(?i:",
            (_, true) => "(?-i:",
            _ => "(?:",
        };
        let verbose = (verbose || on.contains('x')) && !off.contains('x');
        let outer = self.ascii;
        self.ascii = (outer || on.contains('a')) && !on.contains('u');
        let body = self.alternatives(verbose, depth + 1);
        self.ascii = outer;
        let body = body?;
        self.close(start)?;
        Ok((Kind::Atom, format!("{open}{body})")))
    }

    fn close(&mut self, start: usize) -> Parse<()> {
        if self.eat(')') { Ok(()) } else { Self::fault_at("missing ), unterminated subpattern", start) }
    }

    fn look(&mut self, start: usize, open: &str, verbose: bool, depth: usize) -> Parse<(Kind, String)> {
        self.fancy = true;
        let outer = self.behind;
        if open.starts_with("(?<") {
            self.behind = outer.or(Some(self.closed.len()));
        }
        let body = self.alternatives(verbose, depth + 1)?;
        self.behind = outer;
        self.close(start)?;
        Ok((Kind::Atom, format!("{open}{body})")))
    }

    /// Inside look-behind, only groups from before it can be referred to.
    pub(super) fn check_behind(&self, group: usize) -> Parse<()> {
        match self.behind {
            Some(_) if self.closed.get(group) != Some(&true) => {
                self.fault("cannot refer to an open group", 0)
            }
            Some(first) if group >= first => {
                self.fault("cannot refer to group defined in the same lookbehind subpattern", 0)
            }
            _ => Ok(()),
        }
    }

    fn condition(&mut self, start: usize, verbose: bool, depth: usize) -> Parse<(Kind, String)> {
        if depth >= MAX_DEPTH {
            return self.fault("groups are nested too deeply", 0);
        }
        let name = self.until(')')?;
        let back = name.chars().count() + 1;
        let group = if is_identifier(&name) {
            match self.names.get(&name) {
                Some(&group) => group,
                None => return self.fault(format!("unknown group name {}", repr(&name)), back),
            }
        } else {
            match name.parse::<usize>() {
                Ok(0) => return self.fault("bad group number", back),
                Ok(group) => group,
                Err(_) => {
                    return self.fault(format!("bad character in group name {}", repr(&name)), back);
                }
            }
        };
        self.asked.push((group, self.at - back));
        self.check_behind(group)?;
        self.fancy = true;
        let mut body = format!("(?:{})", self.sequence(verbose, depth + 1, false)?);
        if self.eat('|') {
            let _ = write!(body, "|(?:{})", self.sequence(verbose, depth + 1, false)?);
            if self.peek() == Some('|') {
                return self.fault("conditional backref with more than two branches", 0);
            }
        }
        self.close(start)?;
        Ok((Kind::Atom, format!("(?({group}){body})")))
    }

    fn until(&mut self, end: char) -> Parse<String> {
        let mut out = String::new();
        loop {
            match self.next() {
                Some(c) if c == end && out.is_empty() => return self.fault("missing group name", 1),
                Some(c) if c == end => return Ok(out),
                Some(c) => out.push(c),
                None if out.is_empty() => return self.fault("missing group name", 0),
                None => {
                    let back = out.chars().count();
                    return self.fault(format!("missing {end}, unterminated name"), back);
                }
            }
        }
    }

    fn group_name(&mut self, end: char) -> Parse<String> {
        let name = self.until(end)?;
        if is_identifier(&name) {
            return Ok(name);
        }
        self.fault(format!("bad character in group name {}", repr(&name)), name.chars().count() + 1)
    }

    fn flags(&mut self, first: char) -> Parse<Flags> {
        let (mut on, mut off) = (String::new(), String::new());
        let mut c = first;
        while c != '-' {
            if c == 'L' {
                return self.fault("bad inline flags: cannot use 'L' flag with a str pattern", 0);
            }
            on.push(c);
            if on.contains('a') && on.contains('u') {
                return self.fault("bad inline flags: flags 'a', 'u' and 'L' are incompatible", 0);
            }
            c = match self.next() {
                None => return self.fault("missing -, : or )", 0),
                Some(')') => return Ok(Flags::Global(on)),
                Some(':') => return Ok(Flags::Scoped { on, off }),
                Some(c) if c == '-' || is_flag(c) => c,
                Some(c) => return self.unknown_flag(c, "missing -, : or )"),
            };
        }
        let mut missing = "missing flag";
        loop {
            match self.next() {
                None => return self.fault(missing, 0),
                Some(':') if !off.is_empty() => break,
                Some('a' | 'u' | 'L') => {
                    return self.fault("bad inline flags: cannot turn off flags 'a', 'u' and 'L'", 0);
                }
                Some(c) if is_flag(c) => off.push(c),
                Some(c) => return self.unknown_flag(c, missing),
            }
            missing = "missing :";
        }
        if on.chars().any(|c| off.contains(c)) {
            return self.fault("bad inline flags: flag turned on and off", 1);
        }
        Ok(Flags::Scoped { on, off })
    }

    fn unknown_flag<T>(&self, c: char, otherwise: &str) -> Parse<T> {
        self.fault(if c.is_alphabetic() { "unknown flag" } else { otherwise }, 1)
    }
}

fn is_flag(c: char) -> bool {
    matches!(c, 'a' | 'i' | 'L' | 'm' | 's' | 'u' | 'x')
}

fn is_identifier(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c == '_' || c.is_alphabetic())
        && chars.all(|c| c == '_' || c.is_alphanumeric())
}
