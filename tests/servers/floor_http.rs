//! The least that an MCP server over HTTP can do, for the benches: `/json` and `/sse` are Streamable
//! HTTP with such answers, `/many` is `/json` with a list of 1,000 tools, `/legacy` is HTTP+SSE.
//!
//! The tool `echo` answers at once, `slow` after 20 ms, `second` after 1 s, `big` with 8 MiB. What is large is made
//! once. The address is the first line on stdout; the program ends when its stdin does.

use std::{
    collections::HashMap,
    convert::Infallible,
    io,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use futures_util::stream;
use http::{
    Method, Request, Response, StatusCode,
    header::{CONTENT_LENGTH, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Either, Full, StreamBody};
use hyper::{
    body::{Bytes, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::sync::mpsc;

const DELAY: Duration = Duration::from_millis(20);
const SECOND: Duration = Duration::from_secs(1);
const MANY: usize = 1_000;
const BIG: usize = 8 << 20;

static BIG_RESULT: LazyLock<Bytes> =
    LazyLock::new(|| json!({"content": [{"type": "text", "text": "x".repeat(BIG)}]}).to_string().into());

/// 1,000 tools of about 2 KiB, as a server in front of a large API has them.
static MANY_TOOLS: LazyLock<Bytes> = LazyLock::new(|| {
    let tools: Vec<Value> = (0..MANY)
        .map(|number| {
            let mut properties = serde_json::Map::new();
            for field in 0..8 {
                let property = match field % 4 {
                    0 => json!({"type": "string", "minLength": 1, "maxLength": 200}),
                    1 => json!({"anyOf": [{"type": "integer", "minimum": 0}, {"type": "null"}], "default": null}),
                    2 => json!({"type": "array", "items": {"type": "string", "enum": ["a", "b", "c"]}}),
                    _ => json!({"type": "object", "properties": {"from": {"type": "string"}, "to": {"type": "string"}}}),
                };
                let mut property = property;
                property["description"] = format!(
                    "Field {field} of operation {number}: what it means, in which unit it is given, what is \
                     taken if it is left out, and where the documentation says more about it."
                )
                .into();
                properties.insert(format!("field_{field}"), property);
            }
            json!({
                "name": format!("operation_{number:04}"),
                "description": format!("Operation {number} of a large interface. {}", "It does what it says. ".repeat(4)),
                "inputSchema": {"type": "object", "properties": properties, "required": ["field_0"]},
                "annotations": {"readOnlyHint": number % 2 == 0, "title": format!("Operation {number}")},
            })
        })
        .collect();
    json!({"tools": tools}).to_string().into()
});

type Body = Either<Full<Bytes>, StreamBody<EventStream>>;
type EventStream = std::pin::Pin<Box<dyn stream::Stream<Item = Result<Frame<Bytes>, Infallible>> + Send>>;

/// The open streams of the older transport.
#[derive(Debug, Default)]
struct Streams {
    last: u64,
    open: HashMap<u64, mpsc::UnboundedSender<Bytes>>,
}

type Shared = Arc<Mutex<Streams>>;

fn streams(shared: &Shared) -> std::sync::MutexGuard<'_, Streams> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The reply to a request in parts, after the time that it takes; nothing for a notification. What is large is a part
/// of its own, so that it is not copied.
async fn reply(body: &[u8], many: bool) -> Option<[Bytes; 3]> {
    let request: Value = serde_json::from_slice(body).ok()?;
    let (id, params) = (request.get("id")?, &request["params"]);
    let result = match request["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "floor", "version": "1"},
        })
        .to_string()
        .into(),
        "tools/list" if many => MANY_TOOLS.clone(),
        "tools/list" => {
            let tool = |name: &str| {
                json!({"name": name, "description": "Give the text back.", "annotations": {"readOnlyHint": true},
                    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}})
            };
            json!({"tools": [tool("echo"), tool("slow"), tool("second"), tool("big")]}).to_string().into()
        }
        "tools/call" if params["name"] == "big" => BIG_RESULT.clone(),
        "tools/call" => {
            match params["name"].as_str() {
                Some("slow") => tokio::time::sleep(DELAY).await,
                Some("second") => tokio::time::sleep(SECOND).await,
                _ => {}
            }
            json!({"content": [{"type": "text", "text": params["arguments"]["text"]}]}).to_string().into()
        }
        "ping" => "{}".into(),
        _ => {
            let error = json!({"code": -32601, "message": "no such method"});
            let reply = json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string();
            return Some([reply.into(), Bytes::new(), Bytes::new()]);
        }
    };
    Some([format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":").into(), result, "}".into()])
}

fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    if !kind.is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    }
    response
}

/// A response with a length, in parts that stay apart if they are large.
fn answer(kind: &'static str, parts: Vec<Bytes>) -> Response<Body> {
    let length: usize = parts.iter().map(Bytes::len).sum();
    if length < 1 << 16 {
        return whole(StatusCode::OK, kind, parts.concat());
    }
    let frames: EventStream = Box::pin(stream::iter(parts.into_iter().map(|part| Ok(Frame::data(part)))));
    let mut response = Response::new(Either::Right(StreamBody::new(frames)));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    response
}

fn event(name: &str, data: [Bytes; 3]) -> Vec<Bytes> {
    let [first, second, third] = data;
    vec![format!("event: {name}\ndata: ").into(), first, second, third, "\n\n".into()]
}

async fn handle(request: Request<Incoming>, shared: Shared) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let session = request.uri().query().and_then(|query| query.parse::<u64>().ok());
    if request.method() == Method::GET && path == "/legacy" {
        return Ok(open_stream(&shared));
    }
    if request.method() != Method::POST {
        return Ok(whole(StatusCode::METHOD_NOT_ALLOWED, "", ""));
    }
    let body = request.into_body().collect().await?.to_bytes();
    if path == "/messages" {
        let stream = session.and_then(|session| streams(&shared).open.get(&session).cloned());
        let Some(stream) = stream else { return Ok(whole(StatusCode::NOT_FOUND, "", "")) };
        spawn(async move {
            if let Some(reply) = reply(&body, false).await {
                let _ = stream.send(event("message", reply).concat().into());
            }
        });
        return Ok(whole(StatusCode::ACCEPTED, "", ""));
    }
    let Some(reply) = reply(&body, path == "/many").await else {
        return Ok(whole(StatusCode::ACCEPTED, "", ""));
    };
    Ok(match path.as_str() {
        "/sse" => answer("text/event-stream", event("message", reply)),
        "/json" | "/many" => answer("application/json", reply.into()),
        _ => whole(StatusCode::NOT_FOUND, "", ""),
    })
}

fn open_stream(shared: &Shared) -> Response<Body> {
    let (sender, receiver) = mpsc::unbounded_channel();
    let session = {
        let mut streams = streams(shared);
        streams.open.retain(|_, stream| !stream.is_closed());
        streams.last += 1;
        let session = streams.last;
        let _ = sender.send(format!("event: endpoint\ndata: /messages?{session}\n\n").into());
        streams.open.insert(session, sender);
        session
    };
    let frames: EventStream =
        Box::pin(stream::unfold((receiver, session), |(mut receiver, session)| async move {
            let bytes = receiver.recv().await?;
            Some((Ok(Frame::data(bytes)), (receiver, session)))
        }));
    let mut response = Response::new(Either::Right(StreamBody::new(frames)));
    response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static("text/event-stream"));
    response
}

#[expect(clippy::disallowed_methods, reason = "this program is not the package")]
fn spawn(future: impl Future<Output = ()> + Send + 'static) {
    tokio::spawn(future);
}

/// One thread: with two cores the client needs the other one.
#[tokio::main(flavor = "current_thread")]
async fn main() -> io::Result<()> {
    LazyLock::force(&BIG_RESULT);
    LazyLock::force(&MANY_TOOLS);
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("http://{}", listener.local_addr()?);
    #[expect(clippy::disallowed_methods, reason = "this program is not the package")]
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        std::process::exit(0);
    });
    let shared = Shared::default();
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let shared = Arc::clone(&shared);
        spawn(async move {
            let service = service_fn(move |request| handle(request, Arc::clone(&shared)));
            // Whoever breaks off is gone, and that is all.
            let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}
