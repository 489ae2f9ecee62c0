//! The result of a call that brought images: JSON as the reference writes it.
//!
//! The model is told of files and never shown data. The keys, their order, the text of `next_step`
//! and Python's spaces after commas and colons are the reference's.

use std::io;

use serde::Serialize;
use serde_json::ser::Formatter;

use crate::{Error, Result, mcp::artifacts::Image};

const NEXT_STEP: &str = "These images were returned by an MCP tool and saved as local artifacts. \
    Call the message tool with the artifact 'path' values in the media parameter to deliver the images \
    to the user. Do not paste base64 or raw paths into your reply unless the user asks for debug details.";

#[derive(Serialize)]
struct Shown<'a> {
    artifacts: &'a [Image],
    next_step: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    text: &'a str,
}

/// The JSON for stored images and the text that came with them.
pub(super) fn result(artifacts: &[Image], text: &str) -> Result<String> {
    let mut out = Vec::with_capacity(text.len() + 512 * (artifacts.len() + 1));
    let shown = Shown { artifacts, next_step: NEXT_STEP, text };
    shown
        .serialize(&mut serde_json::Serializer::with_formatter(&mut out, Spaced))
        .map_err(|error| Error::Protocol(error.to_string()))?;
    String::from_utf8(out).map_err(|error| Error::Protocol(error.to_string()))
}

/// Writes `, ` and `: ` where Python's `json.dumps` does.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        out.write_all(if first { b"" } else { b", " })
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, out: &mut W) -> io::Result<()> {
        out.write_all(b": ")
    }
}
