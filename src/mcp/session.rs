//! The session: the handshake through rmcp, and the lists, paged and decoded by us.
//!
//! A session ends with its transport. It has no deadline of its own: [`connect`](super::connect)
//! keeps one over start, handshake and lists together.

use std::collections::HashSet;

use rmcp::{
    RoleClient,
    model::{
        ClientRequest, CustomResult, Extensions, ListToolsRequest, ListToolsRequestMethod,
        PaginatedRequestParams, ProtocolVersion, ServerResult,
    },
    service::{ClientInitializeError, RunningService, ServerSink, ServiceError, serve_client},
};
use serde_json::Value;

use super::{
    catalog::{self, RawTool},
    handler::Handler,
    transport::stdio::StdioTransport,
};

/// Pages that are read of one list. At a page of one item each that is more than any model can
/// be offered.
const MAX_PAGES: usize = 1000;

/// Items that are read of one list.
const MAX_ITEMS: usize = 10_000;

/// What went wrong, as a text that goes into the error of the connection.
pub(super) type Failure = String;

pub(super) struct Session {
    service: RunningService<RoleClient, Handler>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// What the server says about itself.
#[derive(Debug, Clone, Default)]
pub(super) struct About {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) protocol: String,
    pub(super) instructions: Option<String>,
    pub(super) has_tools: bool,
}

impl Session {
    /// Shake hands.
    pub(super) async fn open(transport: StdioTransport) -> Result<(Self, About), Failure> {
        let service = serve_client(Handler, transport).await.map_err(|error| match error {
            ClientInitializeError::JsonRpcError(error) => {
                format!("the server refused to initialize: {} [code {}]", error.message, error.code.0)
            }
            ClientInitializeError::ConnectionClosed(_) => "the server went away during initialize".to_owned(),
            other => format!("initialize failed: {other}"),
        })?;
        let info = service.peer_info().ok_or("initialize brought no information about the server")?;
        let about = About {
            name: info.server_info.as_ref().map(|info| info.name.clone()).unwrap_or_default(),
            version: info.server_info.as_ref().map(|info| info.version.clone()).unwrap_or_default(),
            protocol: info.protocol_version.as_str().to_owned(),
            instructions: info.instructions.clone().filter(|text| !text.trim().is_empty()),
            has_tools: info.capabilities.tools.is_some(),
        };
        check_version(&about.protocol)?;
        Ok((Self { service }, about))
    }

    fn peer(&self) -> &ServerSink {
        self.service.peer()
    }

    /// All tools of the server, in its order; oddities are appended to `notes`.
    pub(super) async fn list_tools(
        &self,
        about: &About,
        notes: &mut Vec<String>,
    ) -> Result<Vec<RawTool>, Failure> {
        let mut tools = Vec::new();
        let mut cursors = HashSet::new();
        let mut cursor: Option<String> = None;
        for page in 1.. {
            // `""` is a cursor like any other.
            let params = PaginatedRequestParams::default().with_cursor(cursor.clone());
            let request = ClientRequest::ListToolsRequest(ListToolsRequest {
                method: ListToolsRequestMethod,
                params: Some(params),
                extensions: Extensions::default(),
            });
            let reply = match self.peer().send_request(request).await {
                Ok(ServerResult::CustomResult(CustomResult(reply))) => reply,
                Ok(_) => return Err("tools/list brought a result of another kind".to_owned()),
                // A server that announces no tools may refuse the request in any way it likes.
                Err(ServiceError::McpError(_)) if page == 1 && !about.has_tools => return Ok(tools),
                Err(ServiceError::McpError(error)) => {
                    return Err(format!("tools/list failed: {} [code {}]", error.message, error.code.0));
                }
                Err(error) => return Err(format!("tools/list failed: {error}")),
            };
            catalog::tools_of_page(&reply, &mut tools, notes)?;
            cursor = match reply.get("nextCursor") {
                None | Some(Value::Null) => return Ok(tools),
                Some(Value::String(next)) => Some(next.clone()),
                Some(other) => {
                    notes.push(format!("tools/list: the cursor {other} is no string; the list ends there"));
                    return Ok(tools);
                }
            };
            if !cursors.insert(cursor.clone()) {
                notes.push("tools/list: a cursor repeats; the list ends there".to_owned());
                return Ok(tools);
            }
            if page >= MAX_PAGES || tools.len() >= MAX_ITEMS {
                notes.push(format!("tools/list: the list ends after {page} pages and {} tools", tools.len()));
                return Ok(tools);
            }
        }
        Ok(tools)
    }
}

/// Known versions and older ones are fine; of a newer one nobody knows what it means.
fn check_version(version: &str) -> Result<(), Failure> {
    let dated = version.len() == 10 && version.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    let newest = ProtocolVersion::LATEST_WITH_INITIALIZE;
    if dated && version <= newest.as_str() {
        return Ok(());
    }
    Err(format!(
        "the server speaks protocol version '{version}', which is unknown; this client knows up to {newest}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_and_older_versions_are_accepted_and_newer_ones_refused() {
        for version in ["2025-11-25", "2025-06-18", "2024-11-05", "2024-10-07"] {
            assert!(check_version(version).is_ok());
        }
        for version in ["2026-07-28", "2099-01-01", "latest", "", "1.0"] {
            assert!(check_version(version).unwrap_err().contains(version));
        }
    }
}
