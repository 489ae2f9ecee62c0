//! The least that an MCP server over HTTP can do, for the benches: `/json` and `/sse` are Streamable
//! HTTP with such answers, `/many` is `/json` with a list of 1,000 tools, `/legacy` is HTTP+SSE.
//!
//! The tool `echo` answers at once, `slow` after 20 ms, `big` with 8 MiB. What is large is made
//! once. The address is the first line on stdout; the program ends when its stdin does.

use std::{
    collections::HashMap,
    convert::Infallible,
    fmt::Write as _,
    io,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use futures_util::stream;
use http::{Method, Request, Response, StatusCode, header::CONTENT_TYPE};
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
const MANY: usize = 1_000;
const BIG: usize = 8 << 20;

static BIG_RESULT: LazyLock<String> =
    LazyLock::new(|| json!({"content": [{"type": "text", "text": "x".repeat(BIG)}]}).to_string());

/// 1,000 tools of about 2 KiB, as a server in front of a large API has them.
static MANY_TOOLS: LazyLock<String> = LazyLock::new(|| {
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
    json!({"tools": tools}).to_string()
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

/// The reply to a request as text, after the time that it takes; nothing for a notification.
async fn reply(body: &[u8], many: bool) -> Option<String> {
    let request: Value = serde_json::from_slice(body).ok()?;
    let (id, params) = (request.get("id")?, &request["params"]);
    let result = match request["method"].as_str()? {
        "initialize" => json!({
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "floor", "version": "1"},
        })
        .to_string(),
        "tools/list" if many => MANY_TOOLS.clone(),
        "tools/list" => {
            let tool = |name: &str| {
                json!({"name": name, "description": "Give the text back.", "annotations": {"readOnlyHint": true},
                    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}})
            };
            json!({"tools": [tool("echo"), tool("slow"), tool("big")]}).to_string()
        }
        "tools/call" if params["name"] == "big" => BIG_RESULT.clone(),
        "tools/call" => {
            if params["name"] == "slow" {
                tokio::time::sleep(DELAY).await;
            }
            json!({"content": [{"type": "text", "text": params["arguments"]["text"]}]}).to_string()
        }
        "ping" => "{}".to_owned(),
        _ => {
            let error = json!({"code": -32601, "message": "no such method"});
            return Some(json!({"jsonrpc": "2.0", "id": id, "error": error}).to_string());
        }
    };
    let mut reply = String::with_capacity(result.len() + 64);
    let _ = write!(reply, "{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":{result}}}");
    Some(reply)
}

fn whole(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Either::Left(Full::new(body.into())));
    *response.status_mut() = status;
    if !kind.is_empty() {
        response.headers_mut().insert(CONTENT_TYPE, http::HeaderValue::from_static(kind));
    }
    response
}

fn event(name: &str, data: &str) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
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
                let _ = stream.send(event("message", &reply));
            }
        });
        return Ok(whole(StatusCode::ACCEPTED, "", ""));
    }
    let Some(reply) = reply(&body, path == "/many").await else {
        return Ok(whole(StatusCode::ACCEPTED, "", ""));
    };
    Ok(match path.as_str() {
        "/sse" => whole(StatusCode::OK, "text/event-stream", event("message", &reply)),
        "/json" | "/many" => whole(StatusCode::OK, "application/json", reply),
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
        let _ = sender.send(event("endpoint", &format!("/messages?{session}")));
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
