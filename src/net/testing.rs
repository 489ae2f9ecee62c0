//! A small HTTP/1.1 server for tests, in this process and on loopback. Each test says what it answers,
//! down to the bytes, so that it can answer wrongly.

use std::{net::SocketAddr, sync::Arc};

use parking_lot::Mutex;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    headers: Vec<(String, String)>,
    pub(crate) body: String,
    /// Which connection it came on, from 0.
    pub(crate) connection: usize,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The JSON-RPC method of the body; empty if there is none.
    pub(crate) fn rpc(&self) -> String {
        self.json()["method"].as_str().unwrap_or_default().to_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_default()
    }
}

/// The connection a request came on. A handler gives it back to serve the next request, or drops it.
pub(crate) struct Wire(pub(crate) TcpStream);

impl Wire {
    /// Write bytes as they are. A client that has gone is its own business.
    pub(crate) async fn raw(&mut self, text: impl AsRef<[u8]>) {
        let _ = self.0.write_all(text.as_ref()).await;
        let _ = self.0.flush().await;
    }

    /// Answer whole; `extra` are header lines ending in CRLF.
    pub(crate) async fn answer(
        mut self,
        status: u16,
        kind: &str,
        extra: &str,
        body: impl AsRef<[u8]>,
    ) -> Option<Self> {
        let body = body.as_ref();
        let kind = if kind.is_empty() { String::new() } else { format!("Content-Type: {kind}\r\n") };
        let head = format!("HTTP/1.1 {status} X\r\n{kind}Content-Length: {}\r\n{extra}\r\n", body.len());
        self.raw([head.as_bytes(), body].concat()).await;
        Some(self)
    }

    pub(crate) async fn json(self, body: impl AsRef<[u8]>) -> Option<Self> {
        self.answer(200, "application/json", "", body).await
    }

    /// Begin an event stream that ends with the connection.
    pub(crate) async fn events(&mut self, extra: &str) {
        self.raw(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n{extra}\r\n"
        ))
        .await;
    }

    /// Wait until the client has gone.
    pub(crate) async fn gone(mut self) {
        let mut rest = [0; 64];
        while matches!(self.0.read(&mut rest).await, Ok(1..)) {}
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(crate) async fn start<F, A>(handler: F) -> Self
    where
        F: Fn(Seen, Wire) -> A + Send + Sync + 'static,
        A: Future<Output = Option<Wire>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let seen = Arc::new(Mutex::new(Vec::new()));
        let task = crate::spawn(accept(listener, Arc::new(handler), Arc::clone(&seen)));
        Self { address, seen, task }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }
}

async fn accept<F, A>(listener: TcpListener, handler: Arc<F>, seen: Arc<Mutex<Vec<Seen>>>)
where
    F: Fn(Seen, Wire) -> A + Send + Sync + 'static,
    A: Future<Output = Option<Wire>> + Send + 'static,
{
    let mut tasks = tokio::task::JoinSet::new();
    for connection in 0.. {
        let Ok((stream, _)) = listener.accept().await else { return };
        let (handler, seen) = (Arc::clone(&handler), Arc::clone(&seen));
        let serve = async move {
            let mut wire = Some(Wire(stream));
            while let Some(mut open) = wire.take() {
                let Some(request) = read(&mut open.0, connection).await else { return };
                seen.lock().push(request.clone());
                wire = handler(request, open).await;
            }
        };
        // Within the accepting task, so that they end with the server.
        tasks.spawn(serve);
    }
}

async fn read(stream: &mut TcpStream, connection: usize) -> Option<Seen> {
    let mut bytes = Vec::new();
    let end = loop {
        if let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let mut lines = head.lines();
    let mut first = lines.next()?.split(' ').map(str::to_owned);
    let (method, target) = (first.next()?, first.next()?);
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(':'))
        .map(|(name, value)| (name.to_owned(), value.trim().to_owned()))
        .collect();
    let mut seen = Seen { method, target, headers, body: String::new(), connection };
    let length = seen.header("content-length").and_then(|text| text.parse().ok()).unwrap_or(0);
    while bytes.len() < end + length {
        if stream.read_buf(&mut bytes).await.ok()? == 0 {
            return None;
        }
    }
    seen.body = String::from_utf8_lossy(&bytes[end..end + length]).into_owned();
    Some(seen)
}
