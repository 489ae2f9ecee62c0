//! An MCP server that breaks the protocol on demand, over any transport.
//!
//! The first argument says how it starts and lists its tools (`normal` or one of the modes
//! below), the second one over what it talks (`stdio` if it is missing, `json` or `sse` for
//! Streamable HTTP with such answers, `legacy` for HTTP+SSE); the argument `do` of its tool `act`
//! says how it answers that call. For the tests alone.

mod front;

use std::{process::exit, time::Duration};

use front::{Style, parts, raw, send};
use serde_json::{Value, json};

struct Server {
    mode: String,
    /// Ids of requests that the client has cancelled.
    cancelled: Vec<Value>,
    /// Calls that wait for a second one.
    held: Vec<Value>,
    /// How often a call was carried out before its connection broke.
    runs: usize,
}

fn main() {
    let mode = std::env::args().nth(1).unwrap_or_else(|| "normal".to_owned());
    let style = match std::env::args().nth(2).as_deref() {
        Some("json") => Style::Json,
        Some("sse") => Style::Sse,
        Some("legacy") => Style::Legacy,
        _ => Style::Stdio,
    };
    match mode.as_str() {
        "exit_at_once" => {
            eprintln!("cannot find my configuration");
            exit(3);
        }
        "stderr_flood" => {
            for _ in 0..4096 {
                eprintln!("{}", "x".repeat(63));
            }
            eprintln!("the last words");
        }
        "banner" => {
            raw(b"\x1b[32mWelcome to the server\x1b[0m\n\nlistening...\n123\n[]\n{}\nnull\n\"text\"\ntrue\n");
        }
        "bom" => raw(b"\xEF\xBB\xBF"),
        "grandchild" | "grandchild_stubborn" => {
            background();
        }
        _ => {}
    }
    front::open(style, &mode);
    let mut server = Server { mode, cancelled: Vec::new(), held: Vec::new(), runs: 0 };
    while let Some(message) = server.read(true) {
        server.handle(&message);
    }
    match server.mode.as_str() {
        "stubborn" | "grandchild_stubborn" => std::thread::sleep(Duration::from_secs(600)),
        "bye" => raw(b"shutting down, bye\n"),
        _ => {}
    }
}

/// A process in the same group, never waited for, with stdin and stdout inherited; its id goes to stderr.
#[expect(clippy::zombie_processes, reason = "to be left behind is its purpose")]
fn background() -> u32 {
    let child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep starts");
    let id = child.id();
    eprintln!("grandchild {id}");
    id
}

fn text(id: &Value, text: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}})
}

impl Server {
    fn read(&mut self, handled: bool) -> Option<Value> {
        loop {
            let message = front::read(handled)?;
            if message["method"] != "notifications/cancelled" {
                return Some(message);
            }
            self.cancelled.push(message["params"]["requestId"].clone());
        }
    }

    /// Ask the client something and wait for its answer.
    fn ask(&mut self, message: &Value) -> Value {
        send(message);
        loop {
            let answer = self.read(false).unwrap_or_else(|| exit(9));
            if answer["id"] == message["id"] && answer.get("method").is_none() {
                return answer;
            }
        }
    }

    fn handle(&mut self, message: &Value) {
        let Some(id) = message.get("id") else { return };
        match message["method"].as_str().unwrap_or_default() {
            "initialize" => self.initialize(id, message),
            "tools/list" => self.list(id, &message["params"]["cursor"]),
            "tools/call" => self.call(id, &message["params"]),
            method if self.mode == "names" => others(method, id, &message["params"]),
            _ => send(
                &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32601, "message": "no such method"}}),
            ),
        }
    }

    fn initialize(&mut self, id: &Value, message: &Value) {
        let mut version = message["params"]["protocolVersion"].clone();
        match self.mode.as_str() {
            "mute" => return,
            "refuse" => {
                send(
                    &json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32000, "message": "licence expired"}}),
                );
                return;
            }
            "exit_in_initialize" => {
                eprintln!("no database");
                exit(7);
            }
            "sparse_initialize" => {
                send(
                    &json!({"id": id.to_string(), "result": {"protocolVersion": version, "capabilities": null}}),
                );
                return;
            }
            "ping_before" => {
                let answer = self.ask(&json!({"jsonrpc": "2.0", "id": "p", "method": "ping"}));
                let other = self.ask(&json!({"jsonrpc": "2.0", "id": 5, "method": "roots/list"}));
                if answer["result"] != json!({}) || other["error"]["code"] != -32601 {
                    eprintln!("odd answers: {answer} {other}");
                    exit(8);
                }
            }
            "new_version" => version = "2099-01-01".into(),
            "old_version" => version = "2024-10-07".into(),
            _ => {}
        }
        let mut capabilities = json!({"tools": {"listChanged": true}});
        if self.mode == "names" {
            capabilities["resources"] = json!({});
            capabilities["prompts"] = json!({});
        }
        send(&json!({"jsonrpc": "2.0", "id": id, "result": {"protocolVersion": version,
            "capabilities": capabilities, "instructions": "Be careful.",
            "serverInfo": {"name": "misbehaving", "version": "0.1"}}}));
    }

    fn list(&mut self, id: &Value, cursor: &Value) {
        let plain = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
        let result = match self.mode.as_str() {
            "mute_list" => return,
            "pages" => match cursor.as_str() {
                None => json!({"tools": [plain("t1"), plain("t2")], "nextCursor": ""}),
                Some("") => json!({"tools": [plain("t3"), plain("t4")], "nextCursor": "3"}),
                Some("3") => json!({"tools": [plain("t5"), plain("t6")], "nextCursor": "4"}),
                Some(_) => json!({"tools": [plain("t7"), plain("t8")]}),
            },
            "endless" => json!({"tools": [plain("t1")], "nextCursor": "again"}),
            "deep_tool" => {
                let deep = format!("{}{}", "[".repeat(500), "]".repeat(500));
                raw(format!(
                    "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"tools\":[{{\"name\":\"deep\",\
                    \"inputSchema\":{{\"enum\":{deep}}}}},{{\"name\":\"flat\"}}]}}}}\n"
                )
                .as_bytes());
                return;
            }
            "bad_tools" => json!({"tools": [{"name": "no_schema"}, {"inputSchema": {}}, 7,
                {"name": "odd", "inputSchema": {"type": 5, "properties": [1], "required": "x"}, "description": 9},
                {"name": "twice", "description": "first"}, {"name": "twice", "description": "second"},
                {"name": "\u{67e5}\u{8be2}"}, {"name": "\u{5929}\u{6c14}"}]}),
            "names" => {
                json!({"tools": [plain("resource_x"), plain("a.b"), plain("a b"), plain("b_c"), plain("c"), plain("\u{67e5}\u{8be2}"),
                plain(&"long".repeat(40)), plain(&format!("{}er", "long".repeat(40))), plain("self")]})
            }
            _ => json!({"tools": [
                {"name": "act", "description": "Do it.", "annotations": {"readOnlyHint": true},
                    "inputSchema": {"type": "object", "properties": {"do": {"type": "string"}}}},
                plain("read_a"), plain("read_b"), plain("write_c"), plain("slow")]}),
        };
        send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each way to misbehave")]
    fn call(&mut self, id: &Value, params: &Value) {
        let what = params["arguments"]["do"].as_str().unwrap_or_default();
        let token = &params["_meta"]["progressToken"];
        let reply = text(id, what);
        match what {
            "banner" => {
                raw(b"\x1b[1mworking\x1b[0m\n\n   \nDEBUG: {not json\n[1, 2\n123\n[]\n{}\nnull\n");
                send(&reply);
            }
            "crlf" => raw(format!("{reply}\r\n").as_bytes()),
            "separator" => send(&text(id, "a\u{2028}b\u{2029}c\u{85}d")),
            "three_writes" => {
                let line = format!("{reply}\n");
                let (a, rest) = line.as_bytes().split_at(10);
                let (b, c) = rest.split_at(10);
                parts(&[a, b, c]);
            }
            "hold" => {
                self.held.push(id.clone());
                if let [first, second] = self.held.as_slice() {
                    raw(format!("{}\n{}\n", text(second, "second"), text(first, "first")).as_bytes());
                    self.held.clear();
                }
            }
            "string_id" => send(&text(&id.to_string().into(), what)),
            "float_id" => raw(format!("{}\n", reply.to_string().replace(&format!("\"id\":{id}"), &format!("\"id\":{id}.0"))).as_bytes()),
            "batch" => send(&json!([{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}, reply, 3])),
            "error" => send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": -32042, "message": "no such city"}})),
            "string_error" => send(&json!({"jsonrpc": "2.0", "id": id, "error": "out of paper"})),
            "string_code" => send(&json!({"jsonrpc": "2.0", "id": id, "error": {"code": "E7", "message": "jammed"}})),
            "null_id" => send(&json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32700, "message": "parse error"}})),
            "no_jsonrpc" => send(&json!({"id": id, "result": {"content": [{"type": "text", "text": what}]}})),
            "no_jsonrpc_error" => send(&json!({"id": id, "error": {"code": 1, "message": "bare"}})),
            "huge" => {
                let size = usize::try_from(params["arguments"]["size"].as_u64().unwrap_or(0)).unwrap_or(0);
                send(&text(id, &"x".repeat(size)));
            }
            "bad_utf8" => {
                let line = reply.to_string();
                let (head, tail) = line.split_at(line.find(what).unwrap_or(0));
                raw(&[head.as_bytes(), b"\xff\xfe", tail.as_bytes(), b"\n"].concat());
            }
            "nan" => raw(
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[],\"structuredContent\":{{\"n\":NaN}}}}}}\n")
                    .as_bytes(),
            ),
            "surrogate" => raw(
                format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\":\"text\",\"text\":\"a\\ud800b\"}}]}}}}\n")
                    .as_bytes(),
            ),
            "cut" => raw(format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{{\"content\":[{{\"type\n").as_bytes()),
            "wrong_kind" => send(&json!({"jsonrpc": "2.0", "id": id, "result": [1, 2]})),
            "prefixed" => raw(format!("> \x1b[32m{}\n", reply.to_string().replacen("{\"id\"", "{\"jsonrpc\":\"2.0\",\"id\"", 1)).as_bytes()),
            "null_id_result" => send(&json!({"jsonrpc": "2.0", "id": null, "result": {}})),
            "broken_batch" => raw(format!("[{reply},{{\"jsonrpc\n").as_bytes()),
            "cut_before_id" => raw(b"{\"jsonrpc\":\"2.0\",\"result\":{\"content\":[{\n"),
            "neither" => send(&json!({"jsonrpc": "2.0", "id": id})),
            "last_line" => {
                raw(reply.to_string().as_bytes());
                exit(0);
            }
            "exit" => {
                eprintln!("assertion failed: paper left");
                exit(42);
            }
            "close_stdout" => close(1),
            "close_stdin" => {
                send(&reply);
                close(0);
            }
            "progress" => {
                for step in 1..=3 {
                    send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params":
                        {"progressToken": token, "progress": step, "total": 3, "message": format!("step {step}")}}));
                }
                send(&reply);
            }
            "slow_progress" => {
                for step in 1..=8 {
                    std::thread::sleep(Duration::from_millis(100));
                    send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params":
                        {"progressToken": token, "progress": step}}));
                }
                send(&reply);
            }
            "odd_traffic" => {
                send(&json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progress": 1}}));
                send(&json!({"jsonrpc": "2.0", "method": "notifications/progress"}));
                send(&json!({"jsonrpc": "2.0", "method": "notifications/unheard_of", "params": {"a": 1}}));
                send(&json!({"jsonrpc": "2.0", "method": "notifications/message", "params": 5}));
                send(&json!({"jsonrpc": "2.0", "id": 99_999, "result": {}}));
                let mut kinds = Vec::new();
                for (id, method) in [("a", "ping"), ("b", "roots/list"), ("c", "sampling/createMessage"),
                    ("d", "elicitation/create"), ("e", "unheard/of"), ("f", "sampling/createMessage")] {
                    let params = if id == "f" { json!([1]) } else { json!({}) };
                    let answer = self.ask(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
                    kinds.push(if answer.get("result").is_some() { "result" } else { "error" });
                }
                let answer = self.ask(&json!({"id": 6, "method": "ping"}));
                kinds.push(if answer.get("result").is_some() { "result" } else { "error" });
                send(&text(id, &kinds.join(" ")));
            }
            "never" => {}
            "late" => {
                std::thread::sleep(Duration::from_millis(400));
                send(&reply);
            }
            "long" => {
                std::thread::sleep(Duration::from_secs(33));
                send(&reply);
            }
            "cancelled" => send(&text(id, &self.cancelled.len().to_string())),
            "token" => send(&text(id, &token.to_string())),
            "arguments" => send(&text(id, &params["arguments"].to_string())),
            "env" => {
                let mut names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
                names.sort();
                send(&text(id, &names.join(" ")));
            }
            "grandchild" => {
                let child = background();
                send(&text(id, &child.to_string()));
            }
            "deaf" => std::thread::sleep(Duration::from_secs(600)),
            "is_error" => send(&json!({"jsonrpc": "2.0", "id": id, "result":
                {"content": [{"type": "text", "text": "no such file"}], "isError": true}})),
            "structured" => send(&json!({"jsonrpc": "2.0", "id": id, "result": {"content": [],
                "structuredContent": {"rows": [1, 2]}}})),
            "note" => {
                note(&params["arguments"]["id"]);
                send(&reply);
            }
            "slow_note" => {
                note(&params["arguments"]["id"]);
                std::thread::sleep(Duration::from_millis(20));
                send(&reply);
            }
            "flood" => {
                for _ in 0..2000 {
                    raw(format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/unheard_of\",\"params\":{{\"x\":\"{}\"}}}}\n", "x".repeat(500)).as_bytes());
                    eprintln!("{}", "y".repeat(500));
                }
                send(&reply);
            }
            "runs" => send(&text(id, &self.runs.to_string())),
            "http_hang_up" => {
                self.runs += 1;
                front::hang_up();
            }
            _ if what.starts_with("http_") => over_http(what, &reply),
            _ if what.starts_with("sse_") => as_events(what, &reply),
            _ => send(&reply),
        }
    }
}

/// A side effect that can be counted: a line in the file that `NOTES` names.
fn note(id: &Value) {
    use std::io::Write as _;

    let Some(path) = std::env::var_os("NOTES") else { return };
    let file = std::fs::OpenOptions::new().append(true).create(true).open(path);
    let _ = file.and_then(|mut file| file.write_all(format!("{id}\n").as_bytes()));
}

/// Resources and prompts: of two resources one name, of some nothing but an error.
fn others(method: &str, id: &Value, params: &Value) {
    let result = match (method, params["uri"].as_str().or(params["name"].as_str()).unwrap_or_default()) {
        ("resources/list", _) => {
            json!({"resources": [{"uri": "note://1", "name": "x"}, {"uri": "note://2", "name": "x"},
            {"uri": "note://3", "name": "\u{7b14}\u{8bb0}"}, {"uri": "note://gone", "name": "gone"}, {"name": "no address"}]})
        }
        ("resources/templates/list", _) => json!({"resourceTemplates": []}),
        ("prompts/list", _) => json!({"prompts": [{"name": "x"}, {"name": "gone"}, {"arguments": 5}]}),
        ("resources/read" | "prompts/get", name) if name.ends_with("gone") => {
            let error = json!({"code": -32002, "message": "it is gone"});
            return send(&json!({"jsonrpc": "2.0", "id": id, "error": error}));
        }
        ("resources/read", uri) => json!({"contents": [{"uri": uri, "text": format!("note {uri}")}]}),
        _ => json!({"messages": [{"role": "user", "content": {"type": "text", "text": "a prompt"}}]}),
    };
    send(&json!({"jsonrpc": "2.0", "id": id, "result": result}));
}

/// Responses that are no answers, or odd ones.
fn over_http(what: &str, reply: &Value) {
    match what {
        "http_html" => {
            front::respond(
                "200 OK\r\nContent-Type: text/html",
                b"<html><body><h1>Please sign in</h1></body></html>",
            );
        }
        "http_text" => front::respond("200 OK\r\nContent-Type: text/plain", b"all is well"),
        "http_untyped" => front::respond("200 OK", reply.to_string().as_bytes()),
        "http_202" => front::respond("202 Accepted", b""),
        "http_500" => front::respond(
            "500 Internal Server Error\r\nContent-Type: text/html",
            b"<p>out of <b>paper</b></p>",
        ),
        "http_400_reply" => {
            let error = json!({"jsonrpc": "2.0", "id": reply["id"], "error": {"code": -32602, "message": "bad city"}});
            front::respond("400 Bad Request\r\nContent-Type: application/json", error.to_string().as_bytes());
        }
        "http_charset" => {
            front::respond(
                "200 OK\r\ncontent-type: Application/JSON;charset=UTF-8",
                reply.to_string().as_bytes(),
            );
        }
        _ => send(&text(&reply["id"], &front::head())),
    }
}

/// Replies as events, framed in all the ways that the standard admits and some that it does not.
fn as_events(what: &str, reply: &Value) {
    let line = reply.to_string();
    let framed = match what {
        "sse_cr" => format!("event: message\rdata: {line}\r\r"),
        "sse_crlf" => format!("event: message\r\ndata: {line}\r\n\r\n"),
        "sse_data_lines" => format!("data: {}\n\n", line.replacen(",\"", ",\ndata:\"", 2)),
        "sse_comments" => {
            format!(
                ": hello\n\n:\nevent: message\nid: 1\nunheard-of: x\n: in between\ndata:{line}\n\n: bye\n\n"
            )
        }
        "sse_other_events" => {
            format!("event: ping\ndata: 1\n\nevent: endpoint\ndata: x\n\ndata\n\ndata: {line}\n\n")
        }
        "sse_cut_utf8" => {
            let line = line.replace(what, "h\u{e4}\u{df}lich \u{1f600}");
            let event = format!("data: {line}\n\n");
            let bytes: Vec<&[u8]> = event.as_bytes().chunks(1).collect();
            let at = event.find("h\u{e4}").unwrap_or(0);
            // One byte at a time where it matters; the rest would only take long.
            let (head, rest) = event.as_bytes().split_at(at);
            let pieces: Vec<&[u8]> = [head].into_iter().chain(bytes[at..at + 20].iter().copied()).collect();
            front::events(&pieces);
            front::events(&[&rest[20..]]);
            return front::finish();
        }
        "sse_unfinished" => format!("data: {line}\n"),
        "sse_resumed" => {
            front::resumable("seen", reply);
            "id: seen\nretry: 20\ndata:\n\n".to_owned()
        }
        _ => String::new(),
    };
    front::events(&[framed.as_bytes()]);
    front::finish();
}

/// Close stdin or stdout, and live on.
fn close(descriptor: i32) {
    #[cfg(unix)]
    {
        use std::os::fd::{FromRawFd, OwnedFd};
        #[expect(unsafe_code, reason = "the standard library never closes them")]
        // SAFETY: this process uses the descriptor no more.
        drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    }
    std::thread::sleep(Duration::from_secs(600));
}
