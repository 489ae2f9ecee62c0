//! What is different between what a server offered and what it offers now, in words.
//!
//! A tool whose text changes behind the user's back may be an attack on the model that reads it; so the
//! texts are shown, line by line. They are the server's, so nothing in them is trusted: how much is compared
//! and shown is bounded, how long it takes as well, and what a terminal would obey or hide is spelt out.

use std::{
    collections::HashMap,
    fmt::Write as _,
    io::{self, Write},
    time::{Duration, Instant},
};

use similar::{ChangeTag, TextDiff};

use crate::mcp::{catalog::RawTool, wrap::Offer};

/// Tools that are told of.
const TOOLS: usize = 20;
/// Lines and bytes that are shown of one tool, and characters of one line and of a name.
const LINES: usize = 40;
const BYTES: usize = 4 << 10;
const LINE: usize = 300;
const NAME: usize = 100;
/// Bytes that are compared of each text and schema.
const COMPARED: usize = 64 << 10;
/// How long all comparing may take; what is left is shown as it is, old and new.
const LIMIT: Duration = Duration::from_millis(500);

/// One text for each tool that is new, gone or not what it was, but no more than about twenty.
pub(in crate::mcp) fn changes(before: &Offer, after: &Offer) -> Vec<String> {
    fn by_name(offer: &Offer) -> HashMap<&str, &RawTool> {
        offer.tools.iter().map(|tool| (&*tool.name, tool)).collect()
    }
    let deadline = Instant::now() + LIMIT;
    let (old, new) = (by_name(before), by_name(after));
    let (mut texts, mut more) = (Vec::new(), 0_usize);
    let mut tell = |text: &dyn Fn() -> String| {
        if texts.len() < TOOLS {
            texts.push(text());
        } else {
            more += 1;
        }
    };
    for tool in &after.tools {
        match old.get(&*tool.name) {
            None => tell(&|| format!("tool '{}' is new", escape(&tool.name, NAME))),
            Some(former) if *former != tool => tell(&|| difference(former, tool, deadline)),
            Some(_) => {}
        }
    }
    for tool in before.tools.iter().filter(|tool| !new.contains_key(&*tool.name)) {
        tell(&|| format!("tool '{}' is gone", escape(&tool.name, NAME)));
    }
    if more > 0 {
        texts.push(format!("and {more} more tools"));
    }
    texts
}

fn difference(before: &RawTool, after: &RawTool, deadline: Instant) -> String {
    let ((old, old_cut), (new, new_cut)) = (in_lines(before), in_lines(after));
    let diff = TextDiff::configure().deadline(deadline).diff_lines(&old, &new);
    let mut text = format!("tool '{}' has changed:", escape(&after.name, NAME));
    let changed = diff.iter_all_changes().filter(|change| change.tag() != ChangeTag::Equal);
    for (line, change) in changed.enumerate() {
        if line >= LINES || text.len() >= BYTES {
            text.push_str("\n  ...");
            break;
        }
        let shown = escape(change.value().trim_end_matches('\n'), LINE);
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {}{shown}", change.tag());
    }
    if old_cut || new_cut {
        let _ = write!(text, "\n  (only the first {COMPARED} bytes of each of its texts are compared)");
    } else if old == new {
        text.push_str("\n  (in a way that its texts do not show)");
    }
    text
}

/// A tool as lines, and whether that is not all of it.
fn in_lines(tool: &RawTool) -> (String, bool) {
    let mut cut = false;
    let mut part = |text: &mut String, write: &dyn Fn(&mut Bounded) -> io::Result<()>| {
        let mut bounded = Bounded(Vec::new());
        // It fails at the bound, and for no other reason.
        cut |= write(&mut bounded).is_err();
        text.push_str(&String::from_utf8_lossy(&bounded.0));
        text.push('\n');
    };
    let mut text = String::new();
    part(&mut text, &|out| out.write_all(tool.description.as_deref().unwrap_or_default().as_bytes()));
    // Writing to a String cannot fail.
    let _ = writeln!(text, "read-only: {}, idempotent: {}", tool.read_only, tool.idempotent);
    part(&mut text, &|out| Ok(serde_json::to_writer_pretty(out, &tool.input_schema)?));
    if let Some(schema) = &tool.output_schema {
        text.push_str("output: ");
        part(&mut text, &|out| Ok(serde_json::to_writer_pretty(out, schema)?));
    }
    if !tool.headers.is_empty() {
        text.push_str("headers: ");
        part(&mut text, &|out| Ok(serde_json::to_writer_pretty(out, &tool.headers)?));
    }
    (text, cut)
}

/// Takes so many bytes and then fails: indented, a deep schema may be a hundred times as long as it was.
struct Bounded(Vec<u8>);

impl Write for Bounded {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = bytes.len().min(COMPARED - self.0.len());
        self.0.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// At most so many characters of a text, without any that would move the cursor of whoever reads the log,
/// turn the text around, or not be seen.
fn escape(text: &str, most: usize) -> String {
    let mut shown = String::with_capacity(text.len().min(most));
    let mut count = 0;
    for c in text.chars() {
        if count >= most {
            shown.push_str("...");
            break;
        }
        if c.is_control() || is_hidden(c) {
            shown.extend(c.escape_default());
            count += c.escape_default().len();
        } else {
            shown.push(c);
            count += 1;
        }
    }
    shown
}

/// What Unicode calls `Default_Ignorable_Code_Point`, all other format characters, and separators of lines:
/// marks of direction, zero widths, tags, selectors of variants, which can carry any text unseen.
fn is_hidden(c: char) -> bool {
    matches!(
        c,
        '\u{ad}' | '\u{34f}' | '\u{600}'..='\u{605}' | '\u{61c}' | '\u{6dd}' | '\u{70f}'
            | '\u{890}'..='\u{891}' | '\u{8e2}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}' | '\u{110bd}' | '\u{110cd}' | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}'
    )
}
