//! Escapes and character classes.
//!
//! Classes are written with code points alone, so that nothing in them means more to Rust than it does to
//! Python (nested classes, set operations).

use std::fmt::Write as _;

use super::{ASCII_BOUNDARY, ASCII_INSIDE, Kind, NEVER, Parse, Parser, code};

enum ClassItem {
    Char(u32),
    Category(char),
}

impl Parser {
    pub(super) fn escape(&mut self) -> Parse<(Kind, String)> {
        let start = self.at - 1;
        let c = self.escaped()?;
        let anchor = |text: &str| Ok((Kind::Anchor, text.to_owned()));
        match c {
            'A' => anchor("(?m:^)"),
            'Z' => anchor("(?m:$)"),
            'b' => anchor(if self.ascii { ASCII_BOUNDARY } else { "\\b" }),
            'B' => anchor(if self.ascii { ASCII_INSIDE } else { "\\B" }),
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => Ok((Kind::Atom, format!("[{}]", self.category(c)))),
            '1'..='9' => self.reference(start, c),
            '0' => {
                let digits = self.take_while(2, |c| c.is_digit(8));
                Ok((Kind::Atom, code(u32::from_str_radix(&digits, 8).unwrap_or(0))))
            }
            c => Ok((Kind::Atom, code(self.simple_escape(start, c)?))),
        }
    }

    fn reference(&mut self, start: usize, first: char) -> Parse<(Kind, String)> {
        let octal = |c: char| c.is_digit(8);
        let mut digits = first.to_string();
        if let Some(second) = self.peek().filter(char::is_ascii_digit) {
            digits.push(second);
            self.at += 1;
            if let Some(third) = self.peek().filter(|&c| octal(c) && octal(first) && octal(second)) {
                digits.push(third);
                self.at += 1;
                let value = u32::from_str_radix(&digits, 8).unwrap_or(u32::MAX);
                if value > 0o377 {
                    let text = format!("octal escape value \\{digits} outside of range 0-0o377");
                    return Self::fault_at(text, start);
                }
                return Ok((Kind::Atom, code(value)));
            }
        }
        let group: usize = digits.parse().unwrap_or(usize::MAX);
        match self.closed.get(group) {
            None => Self::fault_at(format!("invalid group reference {group}"), start + 1),
            Some(false) => Self::fault_at("cannot refer to an open group", start),
            Some(true) => {
                self.check_behind(group)?;
                self.fancy = true;
                Ok((Kind::Atom, format!("(?:\\{group})")))
            }
        }
    }

    /// The character that an escape stands for, inside a class or outside.
    fn simple_escape(&mut self, start: usize, c: char) -> Parse<u32> {
        let hex = |parser: &mut Self, digits: usize| {
            let text = parser.take_while(digits, |c| c.is_ascii_hexdigit());
            if text.len() < digits {
                return Self::fault_at(format!("incomplete escape \\{c}{text}"), start);
            }
            match u32::from_str_radix(&text, 16) {
                Ok(value) if value <= 0x0010_ffff => Ok(value),
                _ => Self::fault_at(format!("bad escape \\{c}{text}"), start),
            }
        };
        match c {
            'a' => Ok(7),
            'f' => Ok(12),
            'n' => Ok(10),
            'r' => Ok(13),
            't' => Ok(9),
            'v' => Ok(11),
            'x' => hex(self, 2),
            'u' => hex(self, 4),
            'U' => hex(self, 8),
            c if c.is_ascii_alphanumeric() => Self::fault_at(format!("bad escape \\{c}"), start),
            c => Ok(u32::from(c)),
        }
    }

    /// A category as items of a class.
    fn category(&self, c: char) -> &'static str {
        match (c, self.ascii) {
            ('d', false) => r"\d",
            ('D', false) => r"\D",
            ('w', false) => r"\w",
            ('W', false) => r"\W",
            // Python counts the separators of ASCII among white space.
            ('s', false) => r"\s\x{1c}-\x{1f}",
            ('S', false) => r"[^\s\x{1c}-\x{1f}]",
            ('d', true) => "0-9",
            ('D', true) => "[^0-9]",
            ('w', true) => "a-zA-Z0-9_",
            ('W', true) => "[^a-zA-Z0-9_]",
            ('s', true) => r"\x{9}-\x{d}\x{20}",
            _ => r"[^\x{9}-\x{d}\x{20}]",
        }
    }

    fn class_escape(&mut self) -> Parse<ClassItem> {
        let start = self.at - 1;
        let c = self.escaped()?;
        match c {
            'b' => Ok(ClassItem::Char(8)),
            'd' | 'D' | 's' | 'S' | 'w' | 'W' => Ok(ClassItem::Category(c)),
            '0'..='7' => {
                let digits = format!("{c}{}", self.take_while(2, |c| c.is_digit(8)));
                match u32::from_str_radix(&digits, 8) {
                    Ok(value) if value <= 0o377 => Ok(ClassItem::Char(value)),
                    _ => Self::fault_at(
                        format!("octal escape value \\{digits} outside of range 0-0o377"),
                        start,
                    ),
                }
            }
            c => Ok(ClassItem::Char(self.simple_escape(start, c)?)),
        }
    }

    fn class_item(&mut self, open: usize) -> Parse<(ClassItem, String)> {
        let start = self.at;
        let item = match self.next() {
            None => return Self::fault_at("unterminated character set", open),
            Some('\\') => self.class_escape()?,
            Some(c) => ClassItem::Char(u32::from(c)),
        };
        // Python names an escape by its first two characters.
        let shown = if self.chars[start] == '\\' { 2 } else { 1 };
        Ok((item, self.chars[start..].iter().take(shown).collect()))
    }

    pub(super) fn class(&mut self) -> Parse<String> {
        let open = self.at - 1;
        let negated = self.eat('^');
        let mut items = String::new();
        let mut count = 0;
        loop {
            if count > 0 && self.eat(']') {
                break;
            }
            count += 1;
            let (low, low_text) = self.class_item(open)?;
            if !self.eat('-') {
                self.push_item(&mut items, &low);
                continue;
            }
            if self.eat(']') {
                self.push_item(&mut items, &low);
                self.push_item(&mut items, &ClassItem::Char(u32::from('-')));
                break;
            }
            let (high, high_text) = self.class_item(open)?;
            match (low, high) {
                (ClassItem::Char(low), ClassItem::Char(high)) if low <= high => {
                    push_range(&mut items, low, high);
                }
                _ => {
                    let back = low_text.chars().count() + 1 + high_text.chars().count();
                    return self.fault(format!("bad character range {low_text}-{high_text}"), back);
                }
            }
        }
        Ok(match (items.is_empty(), negated) {
            // Only surrogates, which no text here has.
            (true, false) => NEVER.to_owned(),
            (true, true) => r"[\s\S]".to_owned(),
            (false, _) => format!("[{}{items}]", if negated { "^" } else { "" }),
        })
    }

    fn push_item(&self, out: &mut String, item: &ClassItem) {
        match item {
            ClassItem::Char(c) => push_range(out, *c, *c),
            ClassItem::Category(c) => out.push_str(self.category(*c)),
        }
    }
}

fn push_range(out: &mut String, low: u32, high: u32) {
    let low = if (0xd800..=0xdfff).contains(&low) { 0xe000 } else { low };
    let high = if (0xd800..=0xdfff).contains(&high) { 0xd7ff } else { high };
    if low < high {
        let _ = write!(out, "\\x{{{low:x}}}-\\x{{{high:x}}}");
    } else if low == high {
        let _ = write!(out, "\\x{{{low:x}}}");
    }
}
