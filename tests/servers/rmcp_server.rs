//! A server made with the Rust SDK, over stdio (`stdio`) or Streamable HTTP (`http`, whose address is
//! the first line on stdout). It speaks 2026-07-28 as well as the versions before it.
//!
//! Tools for what the eras do differently: `ask` needs input (a round trip of its own in the newer era), the
//! parameter of `region` travels in a header, `count` reports progress. Over HTTP it ends when its stdin does.

use std::{collections::BTreeMap, io, sync::Arc};

use hyper_util::{rt::TokioIo, service::TowerToHyperService};
use rmcp::{
    ErrorData, RoleServer, ServerHandler, ServiceExt,
    model::{
        CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams, CompleteResult,
        GetPromptRequestParams, GetPromptResponse, GetPromptResult, InputRequest, InputRequiredResult,
        ListPromptsResult, ListResourceTemplatesResult, ListResourcesResult, ListToolsResult,
        PaginatedRequestParams, ProgressNotificationParam, ReadResourceRequestParams, ReadResourceResponse,
        ReadResourceResult, ServerConfig,
    },
    service::RequestContext,
    transport::streamable_http_server::{
        StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
    },
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

#[derive(Clone, Debug)]
struct Server;

type Context = RequestContext<RoleServer>;

/// The SDK's types out of what stands on the wire: it is shorter, and shows what is sent.
fn typed<T: DeserializeOwned>(value: Value) -> Result<T, ErrorData> {
    serde_json::from_value(value).map_err(|error| ErrorData::internal_error(error.to_string(), None))
}

fn text(text: &str) -> Result<CallToolResponse, ErrorData> {
    typed::<CallToolResult>(json!({"content": [{"type": "text", "text": text}]})).map(Into::into)
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        typed(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {"listChanged": true}, "resources": {}, "prompts": {}, "completions": {}},
            "serverInfo": {"name": "rust", "version": "1.0.0"},
            "instructions": "Ask for what you need.",
        }))
        .expect("a valid description")
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListToolsResult, ErrorData> {
        let tool = |name: &str, properties: Value| {
            json!({"name": name, "description": name, "annotations": {"readOnlyHint": true},
                "inputSchema": {"type": "object", "properties": properties}})
        };
        // Two pages.
        typed(match request.and_then(|page| page.cursor) {
            None => json!({"nextCursor": "2", "tools": [
                tool("echo", json!({"text": {"type": "string"}})), tool("ask", json!({}))]}),
            Some(_) => json!({"tools": [tool("count", json!({"to": {"type": "integer"}})),
                tool("region", json!({"region": {"type": "string", "x-mcp-header": "Region"}}))]}),
        })
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: Context,
    ) -> Result<CallToolResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        match &*request.name {
            "echo" => text(arguments.get("text").and_then(Value::as_str).unwrap_or_default()),
            "ask" => {
                if let Some(answers) = request.input_responses {
                    let answer = json!({"answers": answers, "state": request.request_state});
                    return text(&answer.to_string());
                }
                let question: InputRequest = typed(json!({"method": "elicitation/create", "params": {
                    "mode": "form", "message": "Which city?", "requestedSchema": {"type": "object",
                        "properties": {"city": {"type": "string"}}, "required": ["city"]}}}))?;
                let questions = BTreeMap::from([("city".to_owned(), question)]);
                Ok(InputRequiredResult::new(Some(questions), Some("state of the server".into())).into())
            }
            "count" => {
                let to = arguments.get("to").and_then(Value::as_u64).unwrap_or(0);
                if let Some(token) = context.meta.get_progress_token() {
                    for step in 1..=to {
                        let params: ProgressNotificationParam =
                            typed(json!({"progressToken": token, "progress": step, "total": to}))?;
                        let _ = context.peer.notify_progress(params).await;
                    }
                }
                text(&to.to_string())
            }
            "region" => {
                let parts = context.extensions.get::<http::request::Parts>();
                let header = parts.and_then(|parts| parts.headers.get("mcp-param-region")?.to_str().ok());
                text(header.unwrap_or("no header"))
            }
            name => Err(ErrorData::invalid_params(format!("no tool '{name}'"), None)),
        }
    }

    async fn list_resources(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourcesResult, ErrorData> {
        typed(json!({"resources": [{"uri": "note://one", "name": "one", "mimeType": "text/plain"}]}))
    }

    async fn list_resource_templates(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        typed(json!({"resourceTemplates": [{"uriTemplate": "note://{name}", "name": "note"}]}))
    }

    async fn read_resource(
        &self,
        request: ReadResourceRequestParams,
        _: Context,
    ) -> Result<ReadResourceResponse, ErrorData> {
        typed::<ReadResourceResult>(json!({"contents": [{"uri": request.uri, "text": "a note"}]}))
            .map(Into::into)
    }

    async fn list_prompts(
        &self,
        _: Option<PaginatedRequestParams>,
        _: Context,
    ) -> Result<ListPromptsResult, ErrorData> {
        typed(json!({"prompts": [{"name": "greet", "arguments": [{"name": "who", "required": true}]}]}))
    }

    async fn get_prompt(
        &self,
        request: GetPromptRequestParams,
        _: Context,
    ) -> Result<GetPromptResponse, ErrorData> {
        let arguments = request.arguments.unwrap_or_default();
        let text = format!("Greet {}.", arguments.get("who").and_then(Value::as_str).unwrap_or("nobody"));
        typed::<GetPromptResult>(json!({"messages": [
            {"role": "user", "content": {"type": "text", "text": text}}]}))
        .map(Into::into)
    }

    async fn complete(
        &self,
        request: CompleteRequestParams,
        _: Context,
    ) -> Result<CompleteResult, ErrorData> {
        let all = ["Ada", "Alan", "Grace"];
        let values: Vec<&str> =
            all.into_iter().filter(|name| name.starts_with(&request.argument.value)).collect();
        typed(json!({"completion": {"values": values, "total": values.len(), "hasMore": false}}))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::args().nth(1).as_deref() == Some("http") {
        return http().await;
    }
    Server.serve(rmcp::transport::stdio()).await?.waiting().await?;
    Ok(())
}

async fn http() -> Result<(), Box<dyn std::error::Error>> {
    let service = StreamableHttpService::new(
        || Ok(Server),
        Arc::new(LocalSessionManager::default()),
        StreamableHttpServerConfig::default(),
    );
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    println!("http://{}/mcp", listener.local_addr()?);
    #[expect(clippy::disallowed_methods, reason = "this program is not the package")]
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        std::process::exit(0);
    });
    loop {
        let (stream, _) = listener.accept().await?;
        let service = TowerToHyperService::new(service.clone());
        let connection =
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        #[expect(clippy::disallowed_methods, reason = "this program is not the package")]
        tokio::spawn(connection);
    }
}
