//! The three ways in which the misbehaving server talks: stdio, Streamable HTTP (with JSON or SSE
//! answers) and the older HTTP+SSE.
//!
//! Whatever the way, [`read`] gives the next message, [`send`] and [`raw`] write, and the server
//! handles one message after the other. Over HTTP what is written while a request is handled goes
//! into the response to it; a reply goes to the request that its id names. Bytes that are no
//! message are written as they are: as the body, or as the data of an event. With threads and
//! nothing but the standard library, so that no library repairs what is meant to be wrong.
//!
//! Over HTTP the address is the first line on stdout, and the process ends when its stdin does.

use std::{
    cell::RefCell,
    collections::HashMap,
    io::{self, BufRead, BufReader, Write},
    net::{TcpListener, TcpStream},
    process::exit,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

use serde_json::Value;

/// How answers are framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Style {
    Stdio,
    Json,
    Sse,
    Legacy,
}

/// A POST that waits for its response.
#[derive(Debug)]
struct Exchange {
    id: Value,
    /// Everything before the body.
    head: String,
    stream: TcpStream,
    begun: bool,
    /// Tells the connection's thread whether it may read on, or has to close.
    done: mpsc::Sender<bool>,
}

#[derive(Debug)]
struct Front {
    style: Style,
    input: Option<mpsc::Receiver<(String, Option<Exchange>)>>,
    open: Vec<Exchange>,
    /// The request that is being handled.
    current: Value,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The stream of events, of the older transport or one that resumes.
    events: Mutex<Option<TcpStream>>,
    /// Events that are sent to whoever has seen the one before.
    resumable: Mutex<HashMap<String, String>>,
}

thread_local! {
    static FRONT: RefCell<Front> = RefCell::new(Front {
        style: Style::Stdio, input: None, open: Vec::new(), current: Value::Null, shared: Arc::default(),
    });
}

fn front<T>(body: impl FnOnce(&mut Front) -> T) -> T {
    FRONT.with_borrow_mut(body)
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Listen, if the style wants it, and say where. `mode` may change how HTTP itself behaves.
pub(crate) fn open(style: Style, mode: &str) {
    if style == Style::Stdio {
        return;
    }
    // Given where a server has to come back to where it was.
    let port = std::env::var("PORT").ok().and_then(|port| port.parse().ok()).unwrap_or(0);
    let listener = TcpListener::bind(("127.0.0.1", port)).expect("a free port");
    let path = if style == Style::Legacy { "sse" } else { "mcp" };
    println!("http://{}/{path}", listener.local_addr().expect("it is bound"));
    // Ends with whoever started it.
    thread(|| {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        exit(0);
    });
    let (sender, receiver) = mpsc::channel();
    let shared = Arc::<Shared>::default();
    front(|front| {
        front.style = style;
        front.input = Some(receiver);
        front.shared = Arc::clone(&shared);
    });
    let mode: Arc<str> = mode.into();
    thread(move || {
        for stream in listener.incoming().flatten() {
            let (sender, shared, mode) = (sender.clone(), Arc::clone(&shared), Arc::clone(&mode));
            thread(move || serve(stream, style, &mode, &sender, &shared));
        }
    });
}

#[expect(clippy::disallowed_methods, reason = "this program is not the package")]
fn thread(body: impl FnOnce() + Send + 'static) {
    std::thread::spawn(body);
}

/// The next message of the client, and whether it is a request that is now being handled.
pub(crate) fn read(handled: bool) -> Option<Value> {
    let input = front(|front| front.input.take());
    let message = match &input {
        None => read_stdin(),
        Some(input) => loop {
            let Ok((text, exchange)) = input.recv() else { break None };
            let Ok(message) = serde_json::from_str::<Value>(&text) else { continue };
            front(|front| {
                front.open.extend(exchange);
                if handled && message.get("id").is_some() {
                    front.current = message["id"].clone();
                }
            });
            break Some(message);
        },
    };
    front(|front| front.input = input);
    message
}

fn read_stdin() -> Option<Value> {
    let mut line = String::new();
    loop {
        line.clear();
        if io::stdin().lock().read_line(&mut line).ok()? == 0 {
            return None;
        }
        if let Ok(message) = serde_json::from_str(&line) {
            return Some(message);
        }
    }
}

/// One message.
pub(crate) fn send(message: &Value) {
    raw(format!("{message}\n").as_bytes());
}

/// Bytes as they are; each line is a message, or pretends to be one.
pub(crate) fn raw(bytes: &[u8]) {
    parts(&[bytes]);
}

/// Lines that are written in several pieces, a little apart.
pub(crate) fn parts(pieces: &[&[u8]]) {
    let style = front(|front| front.style);
    if style == Style::Stdio {
        return trickle(&mut io::stdout().lock(), pieces);
    }
    let [whole] = pieces else {
        // Only whole messages come in pieces.
        let whole = pieces.concat();
        let lengths: Vec<usize> = pieces.iter().map(|piece| piece.len()).collect();
        return http_line(style, whole.trim_ascii_end(), &lengths);
    };
    for line in whole.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()) {
        http_line(style, line, &[]);
    }
}

fn trickle(out: &mut impl Write, pieces: &[&[u8]]) {
    for (number, piece) in pieces.iter().enumerate() {
        if number > 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
        // Whoever is gone has to hear nothing.
        let _ = out.write_all(piece);
        let _ = out.flush();
    }
}

/// Cut `bytes` behind each of the lengths.
fn cut<'a>(mut bytes: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for length in lengths {
        let (piece, rest) = bytes.split_at((*length).min(bytes.len()));
        pieces.push(piece);
        bytes = rest;
    }
    pieces.push(bytes);
    pieces.retain(|piece| !piece.is_empty());
    pieces
}

fn http_line(style: Style, line: &[u8], lengths: &[usize]) {
    // What is huge is the reply to the current request, and would take long to read.
    let message = match line.len() {
        ..1_000_000 => serde_json::from_slice::<Value>(line).unwrap_or_default(),
        _ => serde_json::json!({"id": null, "result": null}),
    };
    let inner = message.get("method").is_some();
    match style {
        Style::Json if inner => {}
        Style::Json => {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nMcp-Session-Id: one\r\nContent-Length: {}\r\n\r\n",
                line.len()
            );
            front(|front| {
                let Some(mut exchange) = front.take(&message["id"]) else { return };
                let _ = exchange.stream.write_all(head.as_bytes());
                trickle(&mut exchange.stream, &cut(line, lengths));
                let _ = exchange.done.send(true);
            });
        }
        Style::Sse | Style::Legacy => {
            let event = [b"event: message\ndata: ", line, b"\n\n"].concat();
            events_to(&message["id"], &cut(&event, lengths));
            let replies = message.as_array().map_or(std::slice::from_ref(&message), Vec::as_slice);
            if style == Style::Sse && replies.iter().any(answers) {
                finish_of(&message["id"]);
            }
        }
        Style::Stdio => {}
    }
}

/// Whether a message answers a request that waits, however its id is written; nothing follows it on its stream.
fn answers(message: &Value) -> bool {
    let plain = |id: &Value| id.to_string().trim_matches('"').trim_end_matches(".0").to_owned();
    let parts = ["id", "result", "error"].iter().any(|member| message.get(member).is_some());
    parts
        && message.get("method").is_none()
        && (message["id"].is_null()
            || front(|front| front.open.iter().any(|open| plain(&open.id) == plain(&message["id"]))))
}

/// Bytes of a stream of events, framed by the caller.
pub(crate) fn events(pieces: &[&[u8]]) {
    events_to(&Value::Null, pieces);
}

fn events_to(id: &Value, pieces: &[&[u8]]) {
    front(|front| {
        if front.style == Style::Legacy {
            if let Some(stream) = lock(&front.shared.events).as_mut() {
                trickle(stream, pieces);
            }
        } else if let Some(exchange) = front.find(id) {
            exchange.begin();
            trickle(&mut exchange.stream, pieces);
        }
    });
}

/// The head of the request that is being handled, over Streamable HTTP.
pub(crate) fn head() -> String {
    front(|front| front.find(&Value::Null).map(|exchange| exchange.head.clone())).unwrap_or_default()
}

/// The end of the response to the request that is being handled.
pub(crate) fn finish() {
    finish_of(&Value::Null);
}

fn finish_of(id: &Value) {
    front(|front| {
        if let Some(mut exchange) = front.take(id) {
            exchange.begin();
            // Streams of events have no length; they end with the connection.
            let _ = exchange.stream.shutdown(std::net::Shutdown::Write);
            let _ = exchange.done.send(false);
        }
    });
}

/// A whole response that the caller makes up.
pub(crate) fn respond(head: &str, body: &[u8]) {
    front(|front| {
        if let Some(mut exchange) = front.take(&Value::Null) {
            let _ = write!(exchange.stream, "HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n", body.len());
            let _ = exchange.stream.write_all(body);
            let _ = exchange.done.send(true);
        }
    });
}

/// Break the connection without a word.
pub(crate) fn hang_up() {
    front(|front| {
        if let Some(exchange) = front.take(&Value::Null) {
            let _ = exchange.stream.shutdown(std::net::Shutdown::Both);
            let _ = exchange.done.send(false);
        } else if let Some(stream) = lock(&front.shared.events).take() {
            let _ = stream.shutdown(std::net::Shutdown::Both);
        }
    });
}

/// Have `message` sent to whoever comes back having seen the event `id`.
pub(crate) fn resumable(id: &str, message: &Value) {
    front(|front| lock(&front.shared.resumable).insert(id.to_owned(), message.to_string()));
}

impl Front {
    fn position(&self, id: &Value) -> Option<usize> {
        let named = self.open.iter().position(|exchange| &exchange.id == id);
        named.or_else(|| self.open.iter().position(|exchange| exchange.id == self.current))
    }

    fn find(&mut self, id: &Value) -> Option<&mut Exchange> {
        let at = self.position(id)?;
        self.open.get_mut(at)
    }

    fn take(&mut self, id: &Value) -> Option<Exchange> {
        self.position(id).map(|at| self.open.remove(at))
    }
}

impl Exchange {
    fn begin(&mut self) {
        if !std::mem::replace(&mut self.begun, true) {
            let _ = self.stream.write_all(STREAM.as_bytes());
        }
    }
}

const STREAM: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n\
    Mcp-Session-Id: one\r\nConnection: close\r\n\r\n";

struct Request {
    head: String,
    method: String,
    path: String,
    last_event: Option<String>,
    body: String,
}

fn request(input: &mut impl BufRead) -> Option<Request> {
    let mut line = String::new();
    input.read_line(&mut line).ok()?;
    let mut words = line.split_whitespace().map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut head = line.clone();
    let (mut length, mut last_event) = (0, None);
    loop {
        line.clear();
        input.read_line(&mut line).ok()?;
        head.push_str(&line);
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "last-event-id" => last_event = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    input.read_exact(&mut body).ok()?;
    Some(Request { head, method, path, last_event, body: String::from_utf8_lossy(&body).into_owned() })
}

type Input = mpsc::Sender<(String, Option<Exchange>)>;

/// One connection, request by request, until either side closes it.
fn serve(mut stream: TcpStream, style: Style, mode: &str, input: &Input, shared: &Shared) {
    let _ = stream.set_nodelay(true);
    let Ok(reading) = stream.try_clone() else { return };
    let mut reading = BufReader::new(reading);
    while let Some(request) = request(&mut reading) {
        let goes_on = match (request.method.as_str(), style) {
            ("POST", _) => post(&mut stream, style, mode, &request, input),
            ("GET", Style::Legacy) => legacy(&mut stream, mode, shared),
            ("GET", Style::Sse) => resume(&mut stream, request.last_event.as_deref(), shared),
            ("DELETE", _) => answer(&mut stream, "200 OK", ""),
            _ => answer(&mut stream, "405 Method Not Allowed", ""),
        };
        if !goes_on {
            return;
        }
    }
}

/// Whether the connection lives on, as everywhere below.
fn answer(stream: &mut TcpStream, status: &str, body: &str) -> bool {
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len()).is_ok()
}

fn post(stream: &mut TcpStream, style: Style, mode: &str, request: &Request, input: &Input) -> bool {
    if mode == "moved" && request.path != "/moved" {
        return answer(stream, "307 Temporary Redirect\r\nLocation: /moved", "");
    }
    if mode == "slash" && !request.path.ends_with('/') {
        return answer(stream, "308 Permanent Redirect\r\nLocation: mcp/", "");
    }
    let message: Value = serde_json::from_str(&request.body).unwrap_or_default();
    let awaits = message.get("id").is_some() && message.get("method").is_some();
    if style != Style::Legacy && awaits {
        let (done, end) = mpsc::channel();
        let Ok(writing) = stream.try_clone() else { return false };
        let exchange = Exchange {
            id: message["id"].clone(),
            head: request.head.clone(),
            stream: writing,
            begun: false,
            done,
        };
        return input.send((request.body.clone(), Some(exchange))).is_ok() && end.recv().unwrap_or(false);
    }
    let answered = match mode {
        "accept_200" => answer(stream, "200 OK", ""),
        "accept_204" => stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").is_ok(),
        "accept_json" => answer(stream, "200 OK\r\nContent-Type: application/json", "{}"),
        "accept_text" => answer(stream, "202 Accepted\r\nContent-Type: text/plain", "Accepted"),
        _ => answer(stream, "202 Accepted", ""),
    };
    answered && input.send((request.body.clone(), None)).is_ok()
}

/// The older transport's stream: it names the address to post to, and stays open.
fn legacy(stream: &mut TcpStream, mode: &str, shared: &Shared) -> bool {
    let endpoint = match mode {
        "endpoint_crlf" => "event: endpoint\r\ndata: /messages?session=one\r\n\r\n".to_owned(),
        "endpoint_relative" => "event: endpoint\ndata: messages?session=one\n\n".to_owned(),
        "endpoint_absolute" => match stream.local_addr() {
            Ok(address) => format!(": hello\nevent: endpoint\ndata: http://{address}/messages\n\n"),
            Err(_) => return false,
        },
        _ => "event: endpoint\ndata: /messages?session=one\n\n".to_owned(),
    };
    // The client may post as soon as it has read this, and the reply must find the stream.
    let mut events = lock(&shared.events);
    let begun = stream.write_all(STREAM.as_bytes()).and_then(|()| stream.write_all(endpoint.as_bytes()));
    if begun.is_err() {
        return false;
    }
    *events = stream.try_clone().ok();
    drop(events);
    // Until the client goes.
    let _ = io::copy(stream, &mut io::sink());
    false
}

/// What is to come after the event that was seen last; there is no other stream.
fn resume(stream: &mut TcpStream, last_event: Option<&str>, shared: &Shared) -> bool {
    let Some(message) = last_event.and_then(|id| lock(&shared.resumable).remove(id)) else {
        return answer(stream, "405 Method Not Allowed", "");
    };
    let _ = write!(stream, "{STREAM}id: after\ndata: {message}\n\n");
    false
}
