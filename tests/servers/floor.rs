//! The least that an MCP server over stdio can do: one tool, `echo`, line by line, with the
//! replies to everything that was read together written together. It is the floor under the
//! benches: what a client takes on top of it is the client's own.

use std::io::{self, Read, Write};

use serde_json::{Value, json};

fn main() -> io::Result<()> {
    let (mut input, mut output) = (io::stdin().lock(), io::stdout().lock());
    let mut buffer = Vec::with_capacity(1 << 16);
    let mut chunk = vec![0; 1 << 16];
    let mut replies = Vec::with_capacity(1 << 16);
    loop {
        let length = input.read(&mut chunk)?;
        if length == 0 {
            return Ok(());
        }
        buffer.extend_from_slice(&chunk[..length]);
        let mut start = 0;
        while let Some(at) = buffer[start..].iter().position(|byte| *byte == b'\n') {
            answer(&buffer[start..start + at], &mut replies)?;
            start += at + 1;
        }
        buffer.drain(..start);
        output.write_all(&replies)?;
        output.flush()?;
        replies.clear();
    }
}

fn answer(line: &[u8], replies: &mut Vec<u8>) -> io::Result<()> {
    let Ok(request) = serde_json::from_slice::<Value>(line) else { return Ok(()) };
    let Some(id) = request.get("id") else { return Ok(()) };
    let result = match request["method"].as_str().unwrap_or_default() {
        "initialize" => json!({
            "protocolVersion": request["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "floor", "version": "1"},
        }),
        "tools/list" => json!({"tools": [{
            "name": "echo",
            "description": "Give the text back.",
            "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
            "annotations": {"readOnlyHint": true},
        }]}),
        "tools/call" => {
            json!({"content": [{"type": "text", "text": request["params"]["arguments"]["text"]}]})
        }
        _ => json!({}),
    };
    serde_json::to_writer(&mut *replies, &json!({"jsonrpc": "2.0", "id": id, "result": result}))?;
    replies.push(b'\n');
    Ok(())
}
