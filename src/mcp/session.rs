//! The session: the handshake of either era, and the lists, page by page.
//!
//! Which era a server speaks is asked with `server/discover`. An old server may keep silent, so that
//! after [`PATIENCE`] `initialize` is sent as well, and whichever is answered first with something
//! usable decides. A session has no deadline of its own: [`connect`](super::connect) keeps one over
//! start, handshake and lists together.

use std::{collections::HashSet, sync::Arc, time::Duration};

use rmcp::model::{ClientCapabilities, InitializeRequestParams, ProtocolVersion};
use serde_json::{Map, Value, json, value::RawValue};

use super::{
    delegate::ListKind,
    era::{self, Era, MODERN, Manner, NEWEST_LEGACY},
    peer::{Params, Peer, What},
    wire,
};
use crate::{CallContext, Error};

/// How long a server over stdio may leave `server/discover` unanswered before it is also asked to
/// initialize. Not a verdict: one that is slow to start answers both, in order.
const PATIENCE: Duration = Duration::from_secs(2);
/// The same over HTTP, where every request should get an answer.
const PATIENCE_HTTP: Duration = Duration::from_secs(5);

/// Pages that are read of one list. At a page of one item each that is more than any model can
/// be offered.
const MAX_PAGES: usize = 1000;

/// Items that are read of one list.
const MAX_ITEMS: usize = 10_000;

/// JSON-RPC codes of the newer era; see [`rmcp::model::ErrorCode`].
const UNSUPPORTED_VERSION: i64 = -32022;
const NEWER_CODES: std::ops::RangeInclusive<i64> = -32029..=-32020;

/// What went wrong, as a text that goes into the error of the connection.
pub(super) type Failure = String;

/// What the server says about itself.
#[derive(Debug, Clone, Default, serde::Serialize, serde::Deserialize)]
pub(super) struct About {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) protocol: String,
    pub(super) instructions: Option<String>,
    pub(super) capabilities: Map<String, Value>,
}

impl About {
    fn read(protocol: &str, result: &Map<String, Value>) -> Self {
        let object = |value: Option<&Value>| value.and_then(Value::as_object).cloned().unwrap_or_default();
        let info = result
            .get("serverInfo")
            .filter(|info| info.is_object())
            .or_else(|| result.get("_meta").and_then(|meta| meta.get("io.modelcontextprotocol/serverInfo")));
        let text =
            |key: &str| info.and_then(|info| info.get(key)).and_then(Value::as_str).unwrap_or("unknown");
        Self {
            name: text("name").to_owned(),
            version: text("version").to_owned(),
            protocol: protocol.to_owned(),
            instructions: result
                .get("instructions")
                .and_then(Value::as_str)
                .filter(|text| !text.trim().is_empty())
                .map(str::to_owned),
            capabilities: object(result.get("capabilities")),
        }
    }

    /// Whether the server announces that it has such a list.
    pub(super) fn has(&self, kind: ListKind) -> bool {
        self.capabilities.get(kind.as_str()).is_some_and(|capability| !capability.is_null())
    }

    /// A flag of a capability, such as `listChanged` of `tools`.
    pub(super) fn flag(&self, capability: &str, name: &str) -> bool {
        self.capabilities.get(capability).and_then(|c| c.get(name)) == Some(&Value::Bool(true))
    }
}

/// How a handshake is to go.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) capabilities: ClientCapabilities,
    /// Whether messages travel over HTTP, where the newer era has headers and every request an answer.
    pub(super) http: bool,
    /// Whether the transport has the newer era at all.
    pub(super) may_be_modern: bool,
    /// A version that the entry asks for.
    pub(super) pinned: Option<String>,
    /// What was found out before.
    pub(super) remembered: Option<Era>,
}

/// Shake hands, in the era that the server speaks.
pub(super) async fn open(peer: &Arc<Peer>, terms: &Terms) -> Result<About, Failure> {
    if let Some(version) = &terms.pinned {
        return match Era::of(version) {
            Era::Legacy => initialize(peer, terms, version).await,
            Era::Modern => match discover(peer, terms).await {
                Ok(Found::Modern(about)) if about.protocol == *version => Ok(about),
                found => {
                    let why = match found {
                        Ok(Found::Modern(about)) => format!("it offers {}", about.protocol),
                        Ok(Found::Legacy(why)) | Err(why) => why,
                    };
                    Err(format!("the server does not speak {version}, which its entry asks for: {why}"))
                }
            },
        };
    }
    let newest = NEWEST_LEGACY;
    let newest = newest.as_str();
    if !terms.may_be_modern || terms.remembered == Some(Era::Legacy) {
        return initialize(peer, terms, newest).await;
    }
    let old = |why: String| async move {
        let explain =
            |error: Failure| if why.is_empty() { error } else { format!("{error} (server/discover: {why})") };
        initialize(peer, terms, newest).await.map_err(explain)
    };
    let mut discovery = std::pin::pin!(discover(peer, terms));
    let patience = if terms.http { PATIENCE_HTTP } else { PATIENCE };
    if let Ok(found) = tokio::time::timeout(patience, &mut discovery).await {
        return match found? {
            Found::Modern(about) => Ok(about),
            Found::Legacy(why) => old(why).await,
        };
    }
    let mut initialized = std::pin::pin!(initialize_request(peer, terms, newest));
    tokio::select! {
        biased;
        found = &mut discovery => match found? {
            Found::Modern(about) => Ok(about),
            Found::Legacy(_) => finish(peer, &initialized.await?),
        },
        result = &mut initialized => match result {
            Ok(result) => finish(peer, &result),
            // A server of the newer era refuses it; its answer to the other question is on the way.
            Err(refused) => match discovery.await? {
                Found::Modern(about) => Ok(about),
                Found::Legacy(_) => Err(refused),
            },
        },
    }
}

enum Found {
    Modern(About),
    /// Why it is taken for an old server.
    Legacy(String),
}

async fn discover(peer: &Arc<Peer>, terms: &Terms) -> Result<Found, Failure> {
    let mut version = MODERN[0].clone();
    let mut again = true;
    loop {
        let manner = Arc::new(Manner::modern(version.as_str(), &terms.capabilities, terms.http));
        let reply = ask(peer, "server/discover", &Params::None, Some(manner)).await;
        let result = match reply {
            Ok(result) => result,
            Err(Error::Remote { rpc_code: UNSUPPORTED_VERSION, message, data, .. }) => {
                let supported = versions(data.as_ref().and_then(|data| data.get("supported")));
                // Once, even with the version that was just refused: a server may be choosy at first.
                if let Some(next) = best(&supported).filter(|_| again) {
                    again = false;
                    version = next;
                    continue;
                }
                return nothing_in_common(&supported, message);
            }
            Err(Error::Remote { rpc_code, message, .. }) if NEWER_CODES.contains(&rpc_code) => {
                return Err(format!("server/discover was refused: {message} [code {rpc_code}]"));
            }
            Err(Error::Remote { message, .. }) => return Ok(Found::Legacy(message)),
            // A server of the old era, or something in front of it, that knows no such request.
            Err(
                Error::Http { text: why, .. }
                | Error::Protocol(why)
                | Error::Connection { text: why, sent: true, .. },
            ) if peer.why_ended().is_none() => {
                return Ok(Found::Legacy(why));
            }
            Err(error) => return Err(plain(error)),
        };
        let result = object(&result, "server/discover")?;
        let supported = versions(result.get("supportedVersions"));
        let Some(agreed) = best(&supported) else {
            return nothing_in_common(&supported, String::new());
        };
        let about = About::read(agreed.as_str(), &result);
        peer.set_manner(Manner::modern(agreed.as_str(), &terms.capabilities, terms.http));
        if let Some(carrier) = peer.carrier() {
            carrier.agreed(agreed.as_str(), false);
        }
        return Ok(Found::Modern(about));
    }
}

/// What a server is that supports no version of the newer era that we know: one of the older era, as is
/// one that names none because it answers whatever it is asked; or too new.
fn nothing_in_common(supported: &[String], why: String) -> Result<Found, Failure> {
    if supported.is_empty() || supported.iter().any(|v| Era::of(v) == Era::Legacy) {
        return Ok(Found::Legacy(why));
    }
    let (theirs, ours) = (supported.join(", "), &MODERN[0]);
    Err(format!("the server speaks protocol version {theirs}; this client knows up to {ours}"))
}

fn versions(value: Option<&Value>) -> Vec<String> {
    let items = value.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

fn best(supported: &[String]) -> Option<ProtocolVersion> {
    MODERN.into_iter().find(|version| supported.iter().any(|s| s == version.as_str()))
}

async fn initialize(peer: &Arc<Peer>, terms: &Terms, version: &str) -> Result<About, Failure> {
    let result = initialize_request(peer, terms, version).await?;
    finish(peer, &result)
}

async fn initialize_request(
    peer: &Arc<Peer>,
    terms: &Terms,
    version: &str,
) -> Result<Map<String, Value>, Failure> {
    let mut params = InitializeRequestParams::new(terms.capabilities.clone(), era::client_info());
    params.protocol_version = serde_json::from_value(version.into())
        .map_err(|error| format!("the version '{version}': {error}"))?;
    let Ok(Value::Object(params)) = serde_json::to_value(&params) else {
        return Err("initialize cannot be written".to_owned());
    };
    let manner = Arc::new(Manner::legacy(version));
    let result =
        ask(peer, "initialize", &Params::Object(&params), Some(manner)).await.map_err(
            |error| match error {
                Error::Remote { rpc_code, message, .. } => {
                    format!("the server refused to initialize: {message} [code {rpc_code}]")
                }
                other => plain(other),
            },
        )?;
    let result = object(&result, "initialize")?;
    match result.get("protocolVersion").and_then(Value::as_str) {
        Some(version) => check_version(version)?,
        None => return Err("initialize failed: the server's reply names no protocolVersion".to_owned()),
    }
    Ok(result)
}

/// End the old era's handshake.
fn finish(peer: &Arc<Peer>, result: &Map<String, Value>) -> Result<About, Failure> {
    let version = result.get("protocolVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let about = About::read(&version, result);
    peer.set_manner(Manner::legacy(&version));
    let taken = peer.notify("notifications/initialized", None);
    if !taken {
        return Err("the server went away during initialize".to_owned());
    }
    if let Some(carrier) = peer.carrier() {
        carrier.agreed(&version, true);
    }
    Ok(about)
}

/// Known versions and older ones are fine; of a newer one nobody knows what it means.
fn check_version(version: &str) -> Result<(), Failure> {
    let dated = version.len() == 10 && version.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    let newest = NEWEST_LEGACY;
    if dated && version <= newest.as_str() {
        return Ok(());
    }
    Err(format!(
        "the server speaks protocol version '{version}', which is unknown; this client knows up to {newest}"
    ))
}

async fn ask(
    peer: &Arc<Peer>,
    method: &str,
    params: &Params<'_>,
    dressed: Option<Arc<Manner>>,
) -> crate::Result<Box<RawValue>> {
    peer.request(What::of(method), *params, CallContext::default(), dressed).await
}

fn object(result: &RawValue, method: &str) -> Result<Map<String, Value>, Failure> {
    match wire::by_parts(result) {
        Ok(Value::Object(map)) => Ok(map),
        Ok(_) => Err(format!("{method} failed: the server's reply could not be read: it is not an object")),
        Err(error) => Err(format!("{method} failed: the server's reply could not be read: {error}")),
    }
}

/// An error of a request that belongs to connecting, without what is said of calls.
fn plain(error: Error) -> Failure {
    match error {
        Error::Remote { rpc_code, text, .. } if text.is_empty() => format!("error {rpc_code}"),
        other => other.to_string(),
    }
}

/// The lists that can be read: method, and the member of a page that holds the items.
const fn list_request(list: List) -> (&'static str, &'static str) {
    match list {
        List::Tools => ("tools/list", "tools"),
        List::Resources => ("resources/list", "resources"),
        List::Templates => ("resources/templates/list", "resourceTemplates"),
        List::Prompts => ("prompts/list", "prompts"),
    }
}

/// One of the lists of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum List {
    /// `tools/list`.
    Tools,
    /// `resources/list`.
    Resources,
    /// `resources/templates/list`.
    Templates,
    /// `prompts/list`.
    Prompts,
}

/// A list as it was read: all items, as the server sent them.
#[derive(Debug, Clone, Default)]
pub(super) struct Listed {
    pub(super) items: Vec<Value>,
    /// What was odd about it.
    pub(super) notes: Vec<String>,
    /// How long the server says that it holds (2026-07-28, `ttlMs`), the shortest of all pages.
    pub(super) fresh_for: Option<Duration>,
}

/// Read a list, page by page.
///
/// # Errors
/// The server's, unless it does not announce the list at all (`announced`): then it has none.
pub(super) async fn list(peer: &Arc<Peer>, list: List, announced: bool) -> Result<Listed, Error> {
    let (method, member) = list_request(list);
    let mut listed = Listed::default();
    let mut cursors = HashSet::new();
    let mut cursor: Option<String> = None;
    for page in 1.. {
        // `""` is a cursor like any other.
        let params: Map<String, Value> =
            cursor.iter().map(|cursor| ("cursor".to_owned(), Value::from(cursor.clone()))).collect();
        let params = if params.is_empty() { Params::None } else { Params::Object(&params) };
        let reply = match ask(peer, method, &params, None).await {
            Ok(reply) => reply,
            // A server that announces none may refuse the request in any way it likes.
            Err(Error::Remote { .. } | Error::Http { .. } | Error::Protocol(_))
                if page == 1 && !announced =>
            {
                return Ok(listed);
            }
            Err(error) => return Err(error),
        };
        let mut result = object(&reply, method).map_err(Error::Protocol)?;
        match result.get_mut(member).map(Value::take) {
            Some(Value::Array(items)) => listed.items.extend(items),
            None | Some(Value::Null) => {}
            Some(_) => return Err(Error::Protocol(format!("{method} brought no list of {member}"))),
        }
        if let Some(ttl) = result.get("ttlMs").and_then(Value::as_u64).filter(|ttl| *ttl > 0) {
            let ttl = Duration::from_millis(ttl);
            listed.fresh_for = Some(listed.fresh_for.map_or(ttl, |known| known.min(ttl)));
        }
        cursor = match result.get("nextCursor") {
            None | Some(Value::Null) => return Ok(listed),
            Some(Value::String(next)) => Some(next.clone()),
            Some(other) => {
                listed.notes.push(format!("{method}: the cursor {other} is no string; the list ends there"));
                return Ok(listed);
            }
        };
        if !cursors.insert(cursor.clone()) {
            listed.notes.push(format!("{method}: a cursor repeats; the list ends there"));
            return Ok(listed);
        }
        if page >= MAX_PAGES || listed.items.len() >= MAX_ITEMS {
            let items = listed.items.len();
            listed.notes.push(format!("{method}: the list ends after {page} pages and {items} items"));
            return Ok(listed);
        }
    }
    Ok(listed)
}

/// The parameters of `subscriptions/listen`: whatever of these the server announces; `None` if
/// nothing.
pub(super) fn subscriptions(about: &About, resources: &[String]) -> Option<Map<String, Value>> {
    let mut wanted = Map::new();
    for (capability, key) in [
        ("tools", "toolsListChanged"),
        ("prompts", "promptsListChanged"),
        ("resources", "resourcesListChanged"),
    ] {
        if about.flag(capability, "listChanged") {
            wanted.insert(key.to_owned(), true.into());
        }
    }
    if !resources.is_empty() {
        wanted.insert("resourceSubscriptions".to_owned(), json!(resources));
    }
    if wanted.is_empty() {
        return None;
    }
    let mut params = Map::new();
    params.insert("notifications".to_owned(), Value::Object(wanted));
    Some(params)
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

    #[test]
    fn the_servers_name_is_found_where_either_era_puts_it() {
        let info = json!({"name": "n", "version": "1"});
        for result in
            [json!({"serverInfo": info}), json!({"_meta": {"io.modelcontextprotocol/serverInfo": info}})]
        {
            let about = About::read("v", result.as_object().unwrap());
            assert_eq!((about.name.as_str(), about.version.as_str()), ("n", "1"));
        }
        let odd = json!({"serverInfo": 7, "capabilities": [], "instructions": 5});
        let about = About::read("v", odd.as_object().unwrap());
        assert!(about.name == "unknown" && about.capabilities.is_empty() && about.instructions.is_none());
    }

    #[test]
    fn only_what_the_server_announces_is_subscribed_to() {
        let about = |capabilities: Value| About {
            capabilities: capabilities.as_object().unwrap().clone(),
            ..About::default()
        };
        assert_eq!(subscriptions(&about(json!({"tools": {}})), &[]), None);
        let some =
            subscriptions(&about(json!({"tools": {"listChanged": true}, "prompts": {}})), &["u".to_owned()]);
        assert_eq!(
            Value::Object(some.unwrap()),
            json!({"notifications": {"toolsListChanged": true, "resourceSubscriptions": ["u"]}})
        );
    }
}
