//! The Rust SDK's own client as a side of the benches, without a registry and without Python.
//!
//! Speaks what `worker.py` speaks: commands as lines of JSON on stdin, an answer for each on
//! stdout. Its argument is the floor server's program, beside which that for HTTP lies.

use std::{
    io::{self, BufRead, BufReader, Write},
    path::Path,
    process::{Child, Command, Stdio},
    time::Instant,
};

use futures_util::future::try_join_all;
use rmcp::{
    RoleClient, ServiceExt,
    model::{CallToolRequestParams, CallToolResult},
    service::RunningService,
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

type Failure = Box<dyn std::error::Error + Send + Sync>;
type Client = RunningService<RoleClient, ()>;

const TEXT: &str = "hello";
const BATCH: usize = 64;

/// A server that ends when this is dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(floor: &str) -> Result<Self, Failure> {
        let program = Path::new(floor).with_file_name("floor_http");
        let mut child = Command::new(program).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let mut url = String::new();
        let stdout = child.stdout.take().ok_or("no stdout")?;
        BufReader::new(stdout).read_line(&mut url)?;
        Ok(Self { child, url: url.trim().to_owned() })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

async fn connect(url: String) -> Result<Client, Failure> {
    let mut config = StreamableHttpClientTransportConfig::with_uri(url);
    // As many at once as are asked for; 16 is the default.
    config.max_concurrent_requests = BATCH;
    Ok(().serve(StreamableHttpClientTransport::from_config(config)).await?)
}

async fn call(client: &Client, tool: &'static str) -> Result<String, Failure> {
    let arguments = json!({"text": TEXT}).as_object().cloned().unwrap_or_default();
    let params = CallToolRequestParams::new(tool).with_arguments(arguments);
    let result: CallToolResult = client.call_tool(params).await?;
    let text = result.content.first().and_then(|block| block.as_text()).ok_or("no text")?;
    Ok(text.text.clone())
}

/// A row that is prepared.
struct Row {
    kind: Kind,
    server: Server,
    client: Option<Client>,
}

#[derive(Clone, Copy)]
enum Kind {
    One,
    Parallel,
    Many,
    Big,
}

impl Row {
    async fn prepare(floor: &str, name: &str) -> Result<Self, Failure> {
        let (kind, path) = match name {
            "http_one" => (Kind::One, "json"),
            "http_json" => (Kind::Parallel, "json"),
            "http_sse" => (Kind::Parallel, "sse"),
            "many_tools" => (Kind::Many, "many"),
            "big" => (Kind::Big, "json"),
            _ => return Err(format!("unknown row: {name}").into()),
        };
        let server = Server::start(floor)?;
        let client = match kind {
            Kind::Many => None,
            _ => Some(connect(format!("{}/{path}", server.url)).await?),
        };
        Ok(Self { kind, server, client })
    }

    /// The result as Python would write it, for the digest.
    async fn run(&self, number: u64) -> Result<String, Failure> {
        let mut last = String::new();
        for _ in 0..number {
            last = match (self.kind, &self.client) {
                (Kind::One, Some(client)) => format!("'{}'", call(client, "echo").await?),
                (Kind::Parallel, Some(client)) => {
                    let texts = try_join_all((0..BATCH).map(|_| call(client, "slow"))).await?;
                    let texts: Vec<String> = texts.iter().map(|text| format!("'{text}'")).collect();
                    format!("[{}]", texts.join(", "))
                }
                (Kind::Big, Some(client)) => call(client, "big").await?.len().to_string(),
                _ => {
                    let client = connect(format!("{}/many", self.server.url)).await?;
                    let tools = client.list_all_tools().await?;
                    client.cancel().await?;
                    tools.len().to_string()
                }
            };
        }
        Ok(last)
    }
}

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    #[expect(clippy::cast_precision_loss, reason = "a process does not live for that long")]
    let seconds = time.tv_sec as f64 + time.tv_nsec as f64 / 1e9;
    seconds
}

async fn handle(command: &Value, floor: &str, row: &mut Option<Row>) -> Result<Value, Failure> {
    match command["do"].as_str() {
        Some("prepare") => {
            let prepared = Row::prepare(floor, command["row"].as_str().unwrap_or_default()).await?;
            let result = prepared.run(1).await?;
            *row = Some(prepared);
            let bytes = Sha256::digest(&result);
            let digest = bytes.iter().take(8).fold(String::new(), |hex, byte| format!("{hex}{byte:02x}"));
            let start: String = result.chars().take(200).collect();
            Ok(json!({"digest": digest, "result": start}))
        }
        Some("run") => {
            let row = row.as_ref().ok_or("nothing is prepared")?;
            let (before, wall) = (cpu(), Instant::now());
            row.run(command["number"].as_u64().unwrap_or(1)).await?;
            Ok(json!({"wall": wall.elapsed().as_secs_f64(), "cpu": cpu() - before}))
        }
        _ => {
            *row = None;
            Ok(json!({}))
        }
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    // This package builds reqwest without a provider of its own; the connections here are plain all the same.
    let _ = rustls::crypto::ring::default_provider().install_default();
    let floor = std::env::args().nth(1).ok_or("the floor server's program is missing")?;
    let mut row = None;
    let mut line = String::new();
    while io::stdin().lock().read_line(&mut line)? > 0 {
        let answer = match serde_json::from_str(&line) {
            Ok(command) => handle(&command, &floor, &mut row).await,
            Err(error) => Err(error.into()),
        };
        let answer = answer.unwrap_or_else(|error| json!({"error": error.to_string()}));
        let mut out = io::stdout().lock();
        writeln!(out, "{answer}")?;
        out.flush()?;
        line.clear();
    }
    Ok(())
}
