//! One server's HTTP client: connections, headers, redirects.
//!
//! Every server entry has a client of its own, with its own connections and its own policy; nothing
//! is shared, and no lock is held while anything waits. Redirects are followed here and not in the
//! library below, because each hop is judged, may take another way (directly or through a proxy)
//! and, on another origin, must not carry what belongs to the first. There is no time limit but
//! that of connecting: how long a call may take is the call's business.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, OnceLock},
    time::{Duration, Instant},
};

use bytes::{Bytes, BytesMut};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode,
    header::{
        AUTHORIZATION, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, LOCATION, TE, TRAILER,
        TRANSFER_ENCODING, UPGRADE, USER_AGENT,
    },
};
use indexmap::IndexMap;
use parking_lot::Mutex;
use reqwest::{Url, redirect};
use url::{Host, Origin};

use super::{
    error::{NetError, NetErrorKind},
    guard::Policy,
    proxy::Proxies,
    redact::redacted,
    resolve::{Judged, Lookup, System, judge_for_proxy},
    tls,
};
use crate::Error;

/// How long a connection may take to come about, with the name's lookup and TLS.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// The same through a proxy, which has a way of its own to go.
const PROXIED_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Usual servers close an idle connection after 5 s. One that is closed just when a request is
/// written leaves open whether the request was seen.
const KEEP_IDLE: Duration = Duration::from_secs(4);
const MAX_HOPS: usize = 10;
/// How long it holds that a name may be asked for through a proxy.
const JUDGED_FOR: Duration = Duration::from_secs(60);

/// What must not reach another origin, among the headers of a request itself.
const OWN: [HeaderName; 4] = [
    AUTHORIZATION,
    COOKIE,
    HeaderName::from_static("mcp-session-id"),
    HeaderName::from_static("last-event-id"),
];

/// The HTTP client of one server's entry. Clones share its connections.
#[derive(Clone)]
pub struct HttpClient(Arc<Inner>);

struct Inner {
    policy: Arc<Policy>,
    headers: HeaderMap,
    lookup: Arc<dyn Lookup>,
    proxies: Proxies,
    plain: OnceLock<reqwest::Client>,
    secure: OnceLock<reqwest::Client>,
    /// By the proxy's address.
    proxied: Mutex<HashMap<String, reqwest::Client>>,
    judged: Mutex<HashMap<String, Instant>>,
}

impl fmt::Debug for HttpClient {
    /// Without the headers' values: they carry secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient")
            .field("headers", &self.0.headers.keys().map(HeaderName::as_str).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// One request to the server.
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) url: Url,
    /// What the transport says, beside the entry's own headers.
    pub(crate) headers: HeaderMap,
    /// Whether the address has the origin that the entry names, so that the entry's headers go with it.
    /// Nothing that is secret in `headers` goes beyond the origin of the address either.
    pub(crate) own_origin: bool,
    pub(crate) body: Option<Bytes>,
}

/// The way a request takes.
struct Route {
    client: reqwest::Client,
    /// The proxy, redacted.
    proxy: Option<String>,
}

impl HttpClient {
    /// The client of the entry `server`, whose `headers` go with every request to its own origin.
    ///
    /// # Errors
    /// [`Error::Config`], naming the entry and the header that HTTP does not allow.
    pub fn new(server: &str, policy: Policy, headers: &IndexMap<String, String>) -> crate::Result<Self> {
        Self::with(server, policy, headers, Arc::new(System), &|name| std::env::var(name).ok())
    }

    pub(super) fn with(
        server: &str,
        policy: Policy,
        headers: &IndexMap<String, String>,
        lookup: Arc<dyn Lookup>,
        env: &dyn Fn(&str) -> Option<String>,
    ) -> crate::Result<Self> {
        Ok(Self(Arc::new(Inner {
            policy: Arc::new(policy),
            headers: checked(server, headers)?,
            lookup,
            proxies: Proxies::from_env(env),
            plain: OnceLock::new(),
            secure: OnceLock::new(),
            proxied: Mutex::default(),
            judged: Mutex::default(),
        })))
    }

    /// Send a request and follow its redirects up to a response.
    ///
    /// # Errors
    /// Without a response's head. A status that tells of a failure is none.
    pub(crate) async fn send(&self, request: Request) -> Result<Response, NetError> {
        let Request { mut method, mut url, headers, mut own_origin, mut body } = request;
        let first = url.clone();
        let mut ran = false;
        // Whether the origin is still that of the address.
        let mut home = true;
        for _ in 0..=MAX_HOPS {
            let sent = self
                .hop(&method, &url, self.0.headers_for(&url, &headers, own_origin, home), body.as_ref())
                .await;
            let response = sent.map_err(|error| NetError { sent: error.sent || ran, ..error })?;
            let Some(next) = location(&response, &url) else {
                return Ok(Response { inner: response, url, own_origin });
            };
            if url.scheme() == "https" && next.scheme() == "http" {
                let text =
                    format!("{} redirects to an address without TLS, which is not followed", redacted(&url));
                return Err(NetError::new(NetErrorKind::Blocked, ran, text));
            }
            if response.status() == StatusCode::SEE_OTHER {
                // The request was understood, and its answer is elsewhere.
                ran = true;
                method = Method::GET;
                body = None;
            }
            home = home && same_origin(&next, &first);
            own_origin = own_origin && home;
            drain(response).await;
            url = next;
        }
        let text = format!("{} redirects more than {MAX_HOPS} times", redacted(&first));
        Err(NetError::new(NetErrorKind::Redirect, ran, text))
    }

    async fn hop(
        &self,
        method: &Method,
        url: &Url,
        mut headers: HeaderMap,
        body: Option<&Bytes>,
    ) -> Result<reqwest::Response, NetError> {
        let inner = &*self.0;
        inner.policy.judge_url(url).map_err(|refusal| NetError::refused(&refusal))?;
        let route = inner.route(url)?;
        if route.proxy.is_some() {
            inner.judge_for_proxy(url).await?;
        }
        let mut bare = url.clone();
        // Both fail for addresses that cannot have either.
        let _ = (bare.set_username(""), bare.set_password(None));
        let mut outgoing = reqwest::Request::new(method.clone(), bare);
        if body.is_none() {
            headers.remove(CONTENT_TYPE);
        }
        *outgoing.headers_mut() = headers;
        *outgoing.body_mut() = body.map(|body| body.clone().into());
        route
            .client
            .execute(outgoing)
            .await
            .map_err(|error| NetError::of_request(&error, &redacted(url), route.proxy.as_deref()))
    }
}

impl Inner {
    fn route(&self, url: &Url) -> Result<Route, NetError> {
        let Some(proxy) = self.proxies.for_url(url) else {
            let secure = url.scheme() == "https";
            let slot = if secure { &self.secure } else { &self.plain };
            let client = if let Some(client) = slot.get() {
                client.clone()
            } else {
                let tls = if secure { tls::trusting() } else { tls::trusting_nobody() }?;
                let judged = Judged { policy: Arc::clone(&self.policy), lookup: Arc::clone(&self.lookup) };
                let built =
                    builder(tls).connect_timeout(CONNECT_TIMEOUT).dns_resolver(Arc::new(judged)).build();
                let built = built.map_err(|error| cannot_build(&error))?;
                slot.get_or_init(|| built).clone()
            };
            return Ok(Route { client, proxy: None });
        };
        let shown = Url::parse(proxy).map_or_else(|_| "<redacted-url>".to_owned(), |url| redacted(&url));
        let known = self.proxied.lock().get(proxy).cloned();
        let client = if let Some(client) = known {
            client
        } else {
            let way = reqwest::Proxy::all(proxy).map_err(|_| {
                let text = format!("the proxy {shown} of the environment is no usable address");
                NetError::new(NetErrorKind::Proxy, false, text)
            })?;
            let built = builder(tls::trusting()?).proxy(way).connect_timeout(PROXIED_CONNECT_TIMEOUT).build();
            let built = built.map_err(|error| cannot_build(&error))?;
            self.proxied.lock().entry(proxy.to_owned()).or_insert(built).clone()
        };
        Ok(Route { client, proxy: Some(shown) })
    }

    /// Judge what this machine can know of a name that the proxy will resolve.
    async fn judge_for_proxy(&self, url: &Url) -> Result<(), NetError> {
        let Some(Host::Domain(name)) = url.host() else { return Ok(()) };
        if self.policy.admits_all()
            || self.judged.lock().get(name).is_some_and(|at| at.elapsed() < JUDGED_FOR)
        {
            return Ok(());
        }
        let verdict = judge_for_proxy(&self.policy, &*self.lookup, name).await;
        verdict.map_err(|refusal| NetError::refused(&refusal))?;
        self.judged.lock().insert(name.to_owned(), Instant::now());
        Ok(())
    }

    fn headers_for(&self, url: &Url, headers: &HeaderMap, own_origin: bool, home: bool) -> HeaderMap {
        let mut all = if own_origin { self.headers.clone() } else { HeaderMap::with_capacity(8) };
        for (name, value) in headers {
            if home || !OWN.contains(name) {
                all.insert(name, value.clone());
            }
        }
        all.entry(USER_AGENT).or_insert_with(|| {
            HeaderValue::from_static(concat!("nanobot-tools/", env!("CARGO_PKG_VERSION")))
        });
        if own_origin && !url.username().is_empty() && !all.contains_key(AUTHORIZATION) {
            all.extend(basic(url).map(|value| (AUTHORIZATION, value)));
        }
        all
    }
}

fn builder(tls: rustls::ClientConfig) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .redirect(redirect::Policy::none())
        .no_proxy()
        .referer(false)
        .tcp_nodelay(true)
        .tcp_keepalive(Duration::from_secs(15))
        .pool_idle_timeout(KEEP_IDLE)
        .http2_adaptive_window(true)
        .http2_keep_alive_interval(Duration::from_secs(30))
        .http2_keep_alive_timeout(Duration::from_secs(20))
}

fn cannot_build(error: &reqwest::Error) -> NetError {
    NetError::new(NetErrorKind::Tls, false, format!("no HTTP client can be set up: {error}"))
}

/// The entry's headers, checked. What belongs to the connection is not the entry's to say.
fn checked(server: &str, headers: &IndexMap<String, String>) -> crate::Result<HeaderMap> {
    const CONNECTIONS: [HeaderName; 9] = [
        CONNECTION,
        CONTENT_LENGTH,
        HOST,
        TE,
        TRAILER,
        TRANSFER_ENCODING,
        UPGRADE,
        HeaderName::from_static("keep-alive"),
        HeaderName::from_static("proxy-connection"),
    ];
    let mut checked = HeaderMap::with_capacity(headers.len() + 8);
    for (name, value) in headers {
        let shown = || name.escape_debug().take(64).collect::<String>();
        let header = HeaderName::from_bytes(name.as_bytes()).map_err(|_| {
            Error::Config(format!("MCP server '{server}': '{}' cannot be the name of a header", shown()))
        })?;
        let mut value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
            Error::Config(format!(
                "MCP server '{server}': the value of the header '{}' has a line break or another control character",
                shown()
            ))
        })?;
        value.set_sensitive(true);
        if !CONNECTIONS.contains(&header) {
            // Two spellings of one name are one header; the later stands.
            checked.insert(header, value);
        }
    }
    Ok(checked)
}

fn basic(url: &Url) -> Option<HeaderValue> {
    use base64::{Engine, prelude::BASE64_STANDARD};
    let decode = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let pair = [decode(url.username()), decode(url.password().unwrap_or_default())].join(&b':');
    let mut value = HeaderValue::try_from(format!("Basic {}", BASE64_STANDARD.encode(pair))).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// Where a response leads, if it leads anywhere.
fn location(response: &reqwest::Response, url: &Url) -> Option<Url> {
    if !matches!(response.status().as_u16(), 301 | 302 | 303 | 307 | 308) {
        return None;
    }
    let text = std::str::from_utf8(response.headers().get(LOCATION)?.as_bytes()).ok()?;
    let mut next = url.join(text).ok()?;
    if next.fragment().is_some() {
        next.set_fragment(None);
    }
    Some(next)
}

/// Whether two addresses have one origin. Addresses without one are strangers to all.
pub(crate) fn same_origin(one: &Url, other: &Url) -> bool {
    match (one.origin(), other.origin()) {
        (one @ Origin::Tuple(..), other) => one == other,
        _ => false,
    }
}

/// Read what is left of a short response, so that its connection can be used again.
async fn drain(mut response: reqwest::Response) {
    if response.content_length().is_some_and(|length| length <= 64 << 10) {
        let rest = async { while let Ok(Some(_)) = response.chunk().await {} };
        // Without it the connection is merely closed.
        let _ = tokio::time::timeout(Duration::from_millis(500), rest).await;
    }
}

/// A response whose head has come.
pub(crate) struct Response {
    inner: reqwest::Response,
    url: Url,
    own_origin: bool,
}

impl Response {
    pub(crate) fn status(&self) -> StatusCode {
        self.inner.status()
    }

    pub(crate) fn header(&self, name: impl http::header::AsHeaderName) -> Option<&HeaderValue> {
        self.inner.headers().get(name)
    }

    /// The address after all redirects.
    pub(crate) fn url(&self) -> &Url {
        &self.url
    }

    /// Whether it came from the origin that the entry names, and the entry's headers went there.
    pub(crate) fn own_origin(&self) -> bool {
        self.own_origin
    }

    /// The media type in lower case, without parameters; empty if there is none.
    pub(crate) fn media_type(&self) -> String {
        let value = self.header(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// The next piece of the body as it comes; `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, NetError> {
        self.inner.chunk().await.map_err(|error| NetError::of_body(&error, &redacted(&self.url)))
    }

    /// The whole body.
    ///
    /// # Errors
    /// When it breaks off, or is longer than `limit`.
    pub(crate) async fn collect(&mut self, limit: usize) -> Result<Bytes, NetError> {
        let told = self.inner.content_length().and_then(|length| usize::try_from(length).ok());
        if told.is_some_and(|length| length > limit) {
            return Err(self.too_large(limit));
        }
        let Some(first) = self.chunk().await? else { return Ok(Bytes::new()) };
        if told == Some(first.len()) {
            // Read to the end, so that the connection is free again.
            return match self.chunk().await? {
                None => Ok(first),
                Some(_) => Err(self.too_large(limit)),
            };
        }
        // A told length is not believed any further than memory is cheap.
        let room = told.unwrap_or(2 * first.len()).min(16 << 20);
        let mut body = BytesMut::with_capacity(room.max(first.len()));
        body.extend_from_slice(&first);
        while let Some(chunk) = self.chunk().await? {
            if body.len() + chunk.len() > limit {
                return Err(self.too_large(limit));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body.freeze())
    }

    /// The beginning of the body: what comes within `patience`, up to `limit` bytes.
    pub(crate) async fn beginning(&mut self, limit: usize, patience: Duration) -> BytesMut {
        let mut body = BytesMut::new();
        let read = async {
            while body.len() < limit {
                match self.chunk().await {
                    Ok(Some(chunk)) => body.extend_from_slice(&chunk[..chunk.len().min(limit - body.len())]),
                    // What came is shown; that it broke off adds nothing.
                    Ok(None) | Err(_) => break,
                }
            }
        };
        let _ = tokio::time::timeout(patience, read).await;
        body
    }

    /// Read a short rest that nobody wants, so that the connection can be used again.
    pub(crate) async fn finish(self) {
        drain(self.inner).await;
    }

    fn too_large(&self, limit: usize) -> NetError {
        let text = format!("the response from {} has more than {limit} bytes", redacted(&self.url));
        NetError::new(NetErrorKind::TooLarge, true, text)
    }
}

#[cfg(test)]
mod tests;
