//! What a server asks or tells on its own.
//!
//! Every request is answered: by the [`Delegate`], which speaks for the user and the host, or with an
//! error that says what this client does not offer. Answering runs in a task of its own that ends
//! when the server takes its request back or the connection ends. While the user is asked, the
//! deadlines of the connection's calls stand still. Notifications go to the delegate as [`Event`]s;
//! that a list has changed is left in [`Changes`] for whoever keeps the lists.

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use rmcp::model::{ClientCapabilities, ErrorCode};
use serde_json::{Map, Value, json, value::RawValue};
use tokio::{sync::Notify, task::AbortHandle};

use super::{
    delegate::{Delegate, Event, ListKind, RequestError},
    peer::{Asker, InputRequired, Peer},
    wire,
};

/// How long the user may think. A question that nobody answers must not keep a call for ever.
const PATIENCE: Duration = Duration::from_secs(600);

/// Requests of one server that are answered at once; one that asks for more is mad.
const MAX_RUNNING: usize = 256;

pub(super) struct Handler {
    server: Arc<str>,
    delegate: Arc<dyn Delegate>,
    peer: Weak<Peer>,
    /// What is being answered, by the server's id as it wrote it.
    running: Mutex<HashMap<String, (u64, AbortHandle)>>,
    next: AtomicU64,
    pub(super) changes: Arc<Changes>,
}

impl std::fmt::Debug for Handler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handler").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Which lists the server says have changed, until someone reads them again.
#[derive(Debug, Default)]
pub(super) struct Changes {
    tools: AtomicBool,
    resources: AtomicBool,
    prompts: AtomicBool,
    /// Whether the server has forgotten what was asked of it once.
    renewed: AtomicBool,
    changed: Notify,
}

impl Changes {
    /// Note that a list has changed.
    pub(super) fn mark(&self, kind: ListKind) {
        self.flag(kind).store(true, Ordering::Release);
        self.changed.notify_one();
    }

    fn flag(&self, kind: ListKind) -> &AtomicBool {
        match kind {
            ListKind::Tools => &self.tools,
            ListKind::Resources => &self.resources,
            ListKind::Prompts => &self.prompts,
        }
    }

    /// Note that the server knows nothing any more of what was asked of it, and may offer something else.
    pub(super) fn renew(&self) {
        self.renewed.store(true, Ordering::Release);
        for kind in ListKind::ALL {
            self.mark(kind);
        }
    }

    /// Note that the server has to be asked again for what it was asked once.
    pub(super) fn ask_again(&self) {
        self.renewed.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    /// Whether one of these was noted since it was last asked.
    pub(super) fn take_renewed(&self) -> bool {
        self.renewed.swap(false, Ordering::AcqRel)
    }

    /// Wait for a change.
    pub(super) async fn wait(&self) {
        self.changed.notified().await;
    }

    /// Whether this list has changed since it was last asked.
    pub(super) fn take(&self, kind: ListKind) -> bool {
        self.flag(kind).swap(false, Ordering::AcqRel)
    }
}

impl Handler {
    pub(super) fn new(peer: &Arc<Peer>, delegate: Arc<dyn Delegate>) -> Arc<Self> {
        let handler = Arc::new(Self {
            server: Arc::clone(peer.server()),
            delegate,
            peer: Arc::downgrade(peer),
            running: Mutex::default(),
            next: AtomicU64::new(0),
            changes: Arc::default(),
        });
        peer.answer_by(Arc::new(Questions(Arc::downgrade(&handler))));
        handler
    }

    /// A request of the server's.
    pub(super) fn request(self: &Arc<Self>, id: &RawValue, method: &str, params: Option<&RawValue>) {
        let id = id.get().to_owned();
        if method == "ping" {
            return self.answer(&id, Ok(json!({})));
        }
        if let Err(error) = self.offered(method, params) {
            return self.answer(&id, Err(error));
        }
        let params = match params.map(|raw| wire::from_str::<Value>(raw.get())) {
            None => Value::Object(Map::new()),
            Some(Ok(params)) => params,
            Some(Err(error)) => {
                let message = format!("the parameters cannot be read: {error}");
                return self.answer(&id, Err(RequestError::new(ErrorCode::INVALID_PARAMS.0, message)));
            }
        };
        let mut running = self.running.lock();
        if running.len() >= MAX_RUNNING {
            drop(running);
            let message = "too many requests at once".to_owned();
            return self.answer(&id, Err(RequestError::new(ErrorCode::INTERNAL_ERROR.0, message)));
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let handler = Arc::clone(self);
        let (method, key) = (method.to_owned(), id.clone());
        let task = crate::spawn(async move {
            let result = handler.ask(&method, params).await;
            // Whoever takes it out answers; a request that was taken back is not answered.
            let mut running = handler.running.lock();
            if running.get(&key).is_some_and(|(mine, _)| *mine == number) {
                running.remove(&key);
                drop(running);
                handler.answer(&key, result);
            }
        });
        if let Some((_, former)) = running.insert(id, (number, task.abort_handle())) {
            // The server used one id twice, so that nobody could tell the answers apart.
            former.abort();
        }
    }

    /// Ask the delegate, with the clocks of the calls stopped.
    async fn ask(&self, method: &str, params: Value) -> Result<Value, RequestError> {
        let _paused = self.peer.upgrade().map(|peer| peer.pause());
        self.patiently(method, params).await
    }

    /// Ask the delegate, and give up when nobody answers.
    async fn patiently(&self, method: &str, params: Value) -> Result<Value, RequestError> {
        let asked = self.delegate.request(&self.server, method, params);
        tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| {
            let message = format!("nobody answered within {}s", PATIENCE.as_secs());
            Err(RequestError::new(ErrorCode::INTERNAL_ERROR.0, message))
        })
    }

    /// Whether the host answers such requests.
    fn offered(&self, method: &str, params: Option<&RawValue>) -> Result<(), RequestError> {
        let offered = self.delegate.offered();
        let (is_offered, capability) = match method {
            "roots/list" => (offered.roots, "roots"),
            "sampling/createMessage" => (offered.sampling, "sampling"),
            "elicitation/create" => {
                let mode = params
                    .and_then(|raw| wire::from_str::<Value>(raw.get()).ok())
                    .and_then(|params| params.get("mode")?.as_str().map(str::to_owned));
                let by_mode = match mode.as_deref() {
                    None | Some("form") => offered.elicitation_form,
                    Some("url") => offered.elicitation_url,
                    Some(_) => false,
                };
                if !by_mode && (offered.elicitation_form || offered.elicitation_url) {
                    let mode = mode.as_deref().unwrap_or("form");
                    let message = format!("elicitation in the mode '{mode}' is not offered by this client");
                    return Err(RequestError::new(ErrorCode::INVALID_PARAMS.0, message));
                }
                (by_mode, "elicitation")
            }
            other => {
                let message = format!("Method not found: {other}");
                return Err(RequestError::new(ErrorCode::METHOD_NOT_FOUND.0, message));
            }
        };
        if is_offered {
            return Ok(());
        }
        let message = format!("{capability} is not offered by this client");
        Err(RequestError::new(ErrorCode::METHOD_NOT_FOUND.0, message))
    }

    fn answer(&self, id: &str, result: Result<Value, RequestError>) {
        let Some(peer) = self.peer.upgrade() else { return };
        let id = serde_json::from_str::<Value>(id).unwrap_or(Value::Null);
        let message = match result {
            Ok(result) => json!({"jsonrpc": "2.0", "id": id, "result": result}),
            Err(error) => json!({"jsonrpc": "2.0", "id": id, "error": error.to_json()}),
        };
        // Refused only when the connection ends.
        let _ = peer.answer(&message);
    }

    /// A notification of the server's.
    pub(super) fn notification(&self, method: &str, params: Option<&RawValue>) {
        let params = || params.and_then(|raw| wire::from_str::<Value>(raw.get()).ok()).unwrap_or(Value::Null);
        match method {
            "notifications/message" => {
                let params = params();
                let text = |key: &str| params.get(key).and_then(Value::as_str).map(str::to_owned);
                self.tell(Event::Log {
                    level: text("level").unwrap_or_else(|| "info".to_owned()),
                    logger: text("logger"),
                    data: params.get("data").cloned().unwrap_or(Value::Null),
                });
            }
            "notifications/cancelled" => {
                let id = params().get("requestId").map(Value::to_string).unwrap_or_default();
                if let Some((_, task)) = self.running.lock().remove(&id) {
                    task.abort();
                }
            }
            "notifications/tools/list_changed" => self.changed(ListKind::Tools),
            "notifications/resources/list_changed" => self.changed(ListKind::Resources),
            "notifications/prompts/list_changed" => self.changed(ListKind::Prompts),
            "notifications/resources/updated" => {
                if let Some(uri) = params().get("uri").and_then(Value::as_str) {
                    if let Some(peer) = self.peer.upgrade() {
                        peer.forget_kept(ListKind::Resources, Some(uri));
                    }
                    self.tell(Event::ResourceUpdated { uri: uri.to_owned() });
                }
            }
            "notifications/elicitation/complete" => {
                if let Some(id) = params().get("elicitationId").and_then(Value::as_str) {
                    self.tell(Event::ElicitationComplete { id: id.to_owned() });
                }
            }
            other => tracing::debug!(server = &*self.server, method = other, "notification ignored"),
        }
    }

    fn changed(&self, kind: ListKind) {
        if let Some(peer) = self.peer.upgrade() {
            peer.forget_kept(kind, None);
        }
        self.changes.mark(kind);
    }

    /// Pass an event on.
    pub(super) fn tell(&self, event: Event) {
        self.delegate.event(&self.server, event);
    }

    /// The connection has ended: nobody wants answers any more.
    pub(super) fn stop(&self) {
        for (_, (_, task)) in self.running.lock().drain() {
            task.abort();
        }
    }

    /// Answer the questions of one result, all at once.
    async fn answers(&self, requests: Map<String, Value>) -> Result<Map<String, Value>, String> {
        let asked = requests.into_iter().map(|(key, request)| async move {
            let method = request.get("method").and_then(Value::as_str).unwrap_or_default().to_owned();
            let params = request.get("params").cloned().unwrap_or_else(|| Value::Object(Map::new()));
            let raw = serde_json::value::to_raw_value(&params).ok();
            let asked = match self.offered(&method, raw.as_deref()) {
                Ok(()) => self.patiently(&method, params).await,
                Err(error) => Err(error),
            };
            let asked = asked.map_err(|error| error.message);
            asked
                .map(|answer| (key, answer))
                .map_err(|why| format!("the server asks for input ({method}): {why}"))
        });
        futures_util::future::try_join_all(asked).await.map(|answers| answers.into_iter().collect())
    }
}

/// Answers results that ask for input.
struct Questions(Weak<Handler>);

impl Asker for Questions {
    fn ask(&self, key: i64, input: InputRequired) -> AbortHandle {
        let handler = Weak::clone(&self.0);
        crate::spawn(async move {
            let Some(handler) = handler.upgrade() else { return };
            let answers = handler.answers(input.requests).await;
            if let Some(peer) = handler.peer.upgrade() {
                peer.resume(key, answers, input.state);
            }
        })
        .abort_handle()
    }
}

/// What the client announces of itself, from what its delegate offers.
pub(super) fn capabilities(delegate: &dyn Delegate) -> ClientCapabilities {
    let offered = delegate.offered();
    let mut map = Map::new();
    if offered.roots {
        map.insert("roots".to_owned(), json!({"listChanged": true}));
    }
    if offered.sampling {
        map.insert("sampling".to_owned(), json!({}));
    }
    let mut elicitation = Map::new();
    if offered.elicitation_form {
        elicitation.insert("form".to_owned(), json!({}));
    }
    if offered.elicitation_url {
        elicitation.insert("url".to_owned(), json!({}));
    }
    if !elicitation.is_empty() {
        map.insert("elicitation".to_owned(), Value::Object(elicitation));
    }
    // Of the specification's own shape, which the test below reads back.
    serde_json::from_value(Value::Object(map)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BoxFuture, mcp::delegate::Offered};

    struct Host(Offered);

    impl Delegate for Host {
        fn offered(&self) -> Offered {
            self.0
        }

        fn request(&self, _: &str, _: &str, _: Value) -> BoxFuture<Result<Value, RequestError>> {
            Box::pin(std::future::ready(Ok(Value::Null)))
        }

        fn event(&self, _: &str, _: Event) {}
    }

    #[test]
    fn what_is_offered_is_announced_and_nothing_else() {
        let announced = |offered| serde_json::to_value(capabilities(&Host(offered))).unwrap();
        assert_eq!(announced(Offered::default()), json!({}));
        let all = Offered { sampling: true, elicitation_form: true, elicitation_url: true, roots: true };
        assert_eq!(
            announced(all),
            json!({"roots": {"listChanged": true}, "sampling": {}, "elicitation": {"form": {}, "url": {}}})
        );
    }
}
