//! JSON from a server as rmcp's types, with what is missing or odd put right.
//!
//! Results come as `CustomResult` but for the handshake: rmcp's own union of all results costs
//! 4-7 us a reply and can take one kind for another.

use indexmap::IndexMap;
use rmcp::{
    RoleClient,
    model::{ErrorData, InitializeResult, ServerResult},
    service::RxJsonRpcMessage,
};
use serde::Deserialize;
use serde_json::{Value, json, value::RawValue};

use super::wire;
use crate::Progress;

/// What rmcp receives.
pub(super) type Incoming = RxJsonRpcMessage<RoleClient>;

pub(super) fn unreadable(why: &str) -> ErrorData {
    ErrorData::internal_error(format!("the server's reply could not be read: {why}"), None)
}

/// A message of the server's own, with what is missing put in; `None` if rmcp cannot take it.
pub(super) fn message(text: &str) -> Option<Incoming> {
    if let Ok(message) = wire::from_str::<Incoming>(text) {
        return Some(message);
    }
    let mut value: Value = wire::from_str(text).ok()?;
    value.as_object_mut()?.insert("jsonrpc".to_owned(), "2.0".into());
    serde_json::from_value(value).ok()
}

/// A result as JSON. Where it cannot be read as a whole (nested too deeply, say), its lists are
/// read item by item, with null for an item that cannot be read, so that it costs only itself.
pub(super) fn by_parts(raw: &RawValue) -> serde_json::Result<Value> {
    let error = match wire::from_str::<Value>(raw.get()) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    let Ok(members) = serde_json::from_str::<IndexMap<String, &RawValue>>(raw.get()) else {
        return Err(error);
    };
    let part = |raw: &RawValue| wire::from_str::<Value>(raw.get()).unwrap_or(Value::Null);
    let members = members.into_iter().map(|(key, raw)| {
        let value = match serde_json::from_str::<Vec<&RawValue>>(raw.get()) {
            Ok(items) => Value::Array(items.into_iter().map(part).collect()),
            Err(_) => part(raw),
        };
        (key, value)
    });
    Ok(Value::Object(members.collect()))
}

pub(super) fn progress(params: &str) -> Option<(i64, Progress)> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Params {
        progress_token: Value,
        #[serde(default)]
        progress: Option<Value>,
        #[serde(default)]
        total: Option<Value>,
        #[serde(default)]
        message: Option<Value>,
    }
    let params: Params = wire::from_str(params).ok()?;
    let token = wire::sent_id(&params.progress_token.to_string())?;
    let number = |value: Option<Value>| value.as_ref().and_then(Value::as_f64);
    let message = match params.message {
        Some(Value::String(text)) => Some(text),
        _ => None,
    };
    Some((
        token,
        Progress { progress: number(params.progress).unwrap_or(0.0), total: number(params.total), message },
    ))
}

/// The result of `initialize`, with members that are missing or odd put right one by one.
pub(super) fn initialize_result(raw: &RawValue) -> Result<ServerResult, ErrorData> {
    let mut value: Value = wire::from_str(raw.get()).map_err(|error| unreadable(&error.to_string()))?;
    let Some(map) = value.as_object_mut() else { return Err(unreadable("it is not an object")) };
    if !map.get("protocolVersion").is_some_and(Value::is_string) {
        return Err(unreadable("it names no protocolVersion"));
    }
    let read = |value: &Value| InitializeResult::deserialize(value);
    if !map.get("capabilities").is_some_and(Value::is_object) {
        map.insert("capabilities".to_owned(), json!({}));
    }
    let info = map.get("serverInfo");
    let text = |key: &str| info.and_then(|info| info.get(key)).and_then(Value::as_str).unwrap_or("unknown");
    let plain = json!({"name": text("name"), "version": text("version")});
    if !map.get("serverInfo").is_some_and(Value::is_object) {
        map.insert("serverInfo".to_owned(), plain.clone());
    }
    if !map.get("instructions").is_none_or(Value::is_string) {
        map.shift_remove("instructions");
    }
    if let Ok(result) = read(&value) {
        return Ok(ServerResult::InitializeResult(result));
    }
    // Something inside is odd: keep what is asked for later, capability by capability.
    if let Some(map) = value.as_object_mut() {
        map.insert("serverInfo".to_owned(), plain);
        map.shift_remove("_meta");
        if let Some(Value::Object(capabilities)) = map.get_mut("capabilities") {
            for capability in capabilities.values_mut() {
                *capability = json!({});
            }
        }
    }
    read(&value).map(ServerResult::InitializeResult).map_err(|error| unreadable(&error.to_string()))
}
