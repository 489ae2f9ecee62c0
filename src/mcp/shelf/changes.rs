//! What is different between what a server offered and what it offers now, in words.
//!
//! A tool whose text changes behind the user's back may be an attack on the model that reads it; so the
//! texts are shown, line by line.

use std::{collections::HashMap, fmt::Write as _};

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use crate::mcp::{catalog::RawTool, wrap::Offer};

/// Lines and bytes that are shown of one tool.
const LINES: usize = 40;
const BYTES: usize = 4 << 10;

/// One text for each tool that is new, gone or not what it was.
pub(in crate::mcp) fn changes(before: &Offer, after: &Offer) -> Vec<String> {
    let by_name = |offer: &'_ Offer| -> HashMap<String, usize> {
        offer.tools.iter().enumerate().map(|(index, tool)| (tool.name.clone(), index)).collect()
    };
    let (old, new) = (by_name(before), by_name(after));
    let mut texts = Vec::new();
    for tool in &after.tools {
        match old.get(&tool.name).map(|index| &before.tools[*index]) {
            None => texts.push(format!("tool '{}' is new", escape(&tool.name))),
            Some(former) if former != tool => texts.push(difference(former, tool)),
            Some(_) => {}
        }
    }
    let gone = before.tools.iter().filter(|tool| !new.contains_key(&tool.name));
    texts.extend(gone.map(|tool| format!("tool '{}' is gone", escape(&tool.name))));
    texts
}

fn difference(before: &RawTool, after: &RawTool) -> String {
    let (old, new) = (in_lines(before), in_lines(after));
    let diff = TextDiff::from_lines(&old, &new);
    let mut text = format!("tool '{}' has changed:", escape(&after.name));
    let changed = diff.iter_all_changes().filter(|change| change.tag() != ChangeTag::Equal);
    for (line, change) in changed.enumerate() {
        if line >= LINES || text.len() >= BYTES {
            text.push_str("\n  ...");
            break;
        }
        let shown: String = escape(change.value().trim_end_matches('\n')).chars().take(300).collect();
        // Writing to a String cannot fail.
        let _ = write!(text, "\n  {}{shown}", change.tag());
    }
    text
}

fn in_lines(tool: &RawTool) -> String {
    let pretty = |schema: &Value| serde_json::to_string_pretty(schema).unwrap_or_default();
    let mut text = tool.description.clone().unwrap_or_default();
    let _ = write!(text, "\nread-only: {}, idempotent: {}\n", tool.read_only, tool.idempotent);
    text.push_str(&pretty(&tool.input_schema));
    text.push('\n');
    if let Some(schema) = &tool.output_schema {
        text.push_str("output: ");
        text.push_str(&pretty(schema));
        text.push('\n');
    }
    text
}

/// Nothing in it may move the cursor of whoever reads the log.
fn escape(text: &str) -> String {
    text.chars()
        .flat_map(|c| {
            let shown: Box<dyn Iterator<Item = char>> =
                if c.is_control() { Box::new(c.escape_default()) } else { Box::new(std::iter::once(c)) };
            shown
        })
        .collect()
}
