//! Server-sent events from bytes, as the HTML standard has them.
//!
//! Lines end with CR, LF or CRLF, wherever the chunks are cut. Each byte is looked at once and moved
//! at most twice, so that an event of many MiB that comes in tiny pieces costs time in proportion.
//! An event over the limit is dropped as it passes and reported at its end; those after it are read
//! as ever.

use std::time::Duration;

use memchr::memchr2;

/// A buffer of this size is kept for the next event; one that grew beyond is given back.
const KEEP: usize = 1 << 20;
/// How much is kept of an event that is too long.
const BEGINNING: usize = 1 << 10;

/// What a stream brought.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// An event with at least one data line.
    Message {
        /// The type; empty means `message`.
        kind: String,
        /// The data lines, joined by LF. Invalid UTF-8 is replaced.
        data: String,
    },
    /// An event was longer than the limit. Its beginning may tell what it was.
    TooLong {
        /// Up to 1 KiB of the data.
        beginning: String,
    },
}

/// Cuts a stream into events.
#[derive(Debug)]
pub struct Parser {
    limit: usize,
    /// The beginning of a line whose end has not come.
    line: Vec<u8>,
    /// The data lines so far, if there is one.
    data: Option<Vec<u8>>,
    kind: String,
    /// The id that holds from the next dispatch on.
    id: Option<String>,
    last_id: Option<String>,
    retry: Option<Duration>,
    /// The last byte was CR: an LF belongs to it.
    after_cr: bool,
    first_line: bool,
    /// The beginning of an event that is too long.
    too_long: Option<String>,
}

impl Parser {
    /// A parser of events up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            line: Vec::new(),
            data: None,
            kind: String::new(),
            id: None,
            last_id: None,
            retry: None,
            after_cr: false,
            first_line: true,
            too_long: None,
        }
    }

    /// Read on. What is left when the iterator is dropped is read to its end.
    pub fn feed<'p>(&'p mut self, bytes: &'p [u8]) -> impl Iterator<Item = Event> + 'p {
        Feed { parser: self, rest: bytes }
    }

    /// The id of the last event that has one, for `Last-Event-ID`.
    #[must_use]
    pub fn last_id(&self) -> Option<&str> {
        self.last_id.as_deref().filter(|id| !id.is_empty())
    }

    /// How long to wait before connecting again, if the server has said so.
    #[must_use]
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// What a stream that has ended left without the blank line that ends an event. The standard
    /// drops it; whoever takes it must know by other means that it is whole.
    #[must_use]
    pub fn unfinished(mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() {
            self.end_of_line(line);
        }
        self.dispatch()
    }

    /// The end of a line that has `tail` beyond what came before.
    fn line(&mut self, tail: &[u8]) -> Option<Event> {
        if self.line.is_empty() {
            if tail.is_empty() {
                return self.dispatch();
            }
            if self.fits(tail) {
                self.field(tail);
            }
            return None;
        }
        self.keep(tail);
        let line = std::mem::take(&mut self.line);
        self.end_of_line(line);
        None
    }

    fn end_of_line(&mut self, mut line: Vec<u8>) {
        // A long data line becomes the data without being copied beside itself.
        if self.data.is_none() && !self.first_line && line.len() > 4096 && line.starts_with(b"data:") {
            line.drain(..if line.get(5) == Some(&b' ') { 6 } else { 5 });
            self.data = Some(line);
            return;
        }
        self.field(&line);
        line.clear();
        if line.capacity() <= KEEP {
            self.line = line;
        }
    }

    /// Keep the beginning of a line, unless it makes the event too long.
    fn keep(&mut self, bytes: &[u8]) {
        if self.fits(bytes) {
            self.line.extend_from_slice(bytes);
        } else {
            // A comment, so that the line does not count as blank.
            self.line = vec![b':'];
        }
    }

    /// Whether more of a line can be taken. What belongs to an event that is too long cannot.
    fn fits(&mut self, more: &[u8]) -> bool {
        if self.too_long.is_some() {
            return false;
        }
        let data = self.data.as_deref();
        if self.line.len() + data.map_or(0, <[u8]>::len) + more.len() <= self.limit {
            return true;
        }
        let mut beginning: Vec<u8> = match data {
            Some(data) => data.iter().copied().take(BEGINNING).collect(),
            None => self.line.iter().chain(more).copied().take(BEGINNING.min(self.limit)).collect(),
        };
        if data.is_none() {
            // What is too long without any data yet is a data line, or nothing that matters.
            let prefix = if beginning.starts_with(b"data: ") { 6 } else { 5.min(beginning.len()) };
            beginning.drain(..prefix);
        }
        self.too_long = Some(String::from_utf8_lossy(&beginning).into_owned());
        self.first_line = false;
        self.data = None;
        false
    }

    fn field(&mut self, line: &[u8]) {
        let mut line = line;
        if std::mem::take(&mut self.first_line) {
            line = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line);
        }
        let (name, value) = match line.iter().position(|&byte| byte == b':') {
            Some(at) => (&line[..at], line[at + 1..].strip_prefix(b" ").unwrap_or(&line[at + 1..])),
            None => (line, &[][..]),
        };
        match name {
            b"data" => match &mut self.data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => self.data = Some(value.to_vec()),
            },
            b"event" => self.kind = String::from_utf8_lossy(value).into_owned(),
            b"id" if !value.contains(&0) => self.id = Some(String::from_utf8_lossy(value).into_owned()),
            b"retry" if !value.is_empty() && value.iter().all(u8::is_ascii_digit) => {
                let number = std::str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
                self.retry = number.map(Duration::from_millis).or(self.retry);
            }
            _ => {}
        }
    }

    fn dispatch(&mut self) -> Option<Event> {
        self.first_line = false;
        if let Some(id) = self.id.take() {
            self.last_id = Some(id);
        }
        let kind = std::mem::take(&mut self.kind);
        if let Some(beginning) = self.too_long.take() {
            return Some(Event::TooLong { beginning });
        }
        let data = self.data.take()?;
        let data = String::from_utf8(data)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        Some(Event::Message { kind, data })
    }
}

struct Feed<'p> {
    parser: &'p mut Parser,
    rest: &'p [u8],
}

impl Iterator for Feed<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if self.rest.is_empty() {
                return None;
            }
            if std::mem::take(&mut self.parser.after_cr) && self.rest[0] == b'\n' {
                self.rest = &self.rest[1..];
                continue;
            }
            let Some(end) = memchr2(b'\r', b'\n', self.rest) else {
                self.parser.keep(self.rest);
                self.rest = &[];
                return None;
            };
            self.parser.after_cr = self.rest[end] == b'\r';
            let (line, rest) = (&self.rest[..end], &self.rest[end + 1..]);
            self.rest = rest;
            if let Some(event) = self.parser.line(line) {
                return Some(event);
            }
        }
    }
}

impl Drop for Feed<'_> {
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse<'c>(chunks: impl IntoIterator<Item = &'c [u8]>, limit: usize) -> (Vec<Event>, Parser) {
        let mut parser = Parser::new(limit);
        let mut events = Vec::new();
        for chunk in chunks {
            events.extend(parser.feed(chunk));
        }
        (events, parser)
    }

    fn message(kind: &str, data: &str) -> Event {
        Event::Message { kind: kind.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn every_line_ending_and_field_is_read_as_the_standard_says() {
        let text = "\u{FEFF}event: a\ndata: one\ndata:two\n\n: comment\r\ndata\r\n\r\n\
                    id: 7\rdata:  x\r\rretry: 500\nretry: 1s\nunknown: y\nid: a\0b\n\nevent: lost\n\ndata: z\n\ndata: cut";
        let (events, parser) = parse([text.as_bytes()], 1000);
        assert_eq!(events, [message("a", "one\ntwo"), message("", ""), message("", " x"), message("", "z")]);
        assert_eq!(parser.last_id(), Some("7"));
        assert_eq!(parser.retry(), Some(Duration::from_millis(500)));
        assert_eq!(parser.unfinished(), Some(message("", "cut")));
    }

    #[test]
    fn a_priming_event_without_data_still_sets_the_id() {
        let (events, parser) = parse([&b"id: 1\ndata:\n\nid: 2\n\n"[..]], 1000);
        assert_eq!(events, [message("", "")]);
        assert_eq!(parser.last_id(), Some("2"));
        assert_eq!(parse([&b"id: 1\n\nid\n\n"[..]], 1000).1.last_id(), None);
    }

    #[test]
    fn an_event_over_the_limit_costs_only_itself() {
        let text = [b"data: ok\n\nid: 5\ndata: ".as_slice(), &[b'x'; 90], b"\ndata: more\n\ndata: again\n\n"]
            .concat();
        for size in [1, 7, 1000] {
            let (events, parser) = parse(text.chunks(size), 64);
            assert_eq!(
                events,
                [message("", "ok"), Event::TooLong { beginning: "x".repeat(58) }, message("", "again")]
            );
            assert_eq!(parser.last_id(), Some("5"));
        }
    }

    #[test]
    fn a_long_line_in_tiny_pieces_takes_linear_time() {
        let text = [b"id: 1\ndata: ".as_slice(), &vec![b'x'; 8 << 20], b"\n\n"].concat();
        let (events, _) = parse(text.chunks(7), 64 << 20);
        let [Event::Message { data, .. }] = events.as_slice() else { panic!("{} events", events.len()) };
        assert_eq!(data.len(), 8 << 20);
    }

    proptest! {
        #[test]
        fn any_chunking_gives_the_same_events(
            pieces in proptest::collection::vec(
                prop_oneof![
                    Just("\n".to_owned()), Just("\r".to_owned()), Just("\r\n".to_owned()), Just("data:".to_owned()),
                    Just("data: ä€😀".to_owned()), Just("id:".to_owned()), Just("event: e".to_owned()),
                    Just("retry:5".to_owned()), Just("\u{FEFF}".to_owned()), Just(":".to_owned()),
                    Just("\0".to_owned()), "[a-z ]{0,9}", "data: [a-z]{1,40}\n",
                ],
                0..40,
            ),
            cuts in proptest::collection::vec(1usize..9, 1..200),
            limit in 8usize..80,
        ) {
            let text = pieces.concat();
            let (whole, whole_parser) = parse([text.as_bytes()], limit);
            let mut chunks = Vec::new();
            let mut rest = text.as_bytes();
            for cut in cuts.iter().cycle() {
                if rest.is_empty() { break; }
                let (chunk, after) = rest.split_at((*cut).min(rest.len()));
                chunks.push(chunk);
                rest = after;
            }
            let (cut, cut_parser) = parse(chunks, limit);
            prop_assert_eq!(whole, cut);
            prop_assert_eq!(whole_parser.last_id(), cut_parser.last_id());
            prop_assert_eq!(whole_parser.retry(), cut_parser.retry());
            prop_assert_eq!(whole_parser.unfinished(), cut_parser.unfinished());
        }
    }
}
