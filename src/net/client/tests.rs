//! The client against real sockets on loopback.

use std::{
    io,
    net::SocketAddr,
    sync::atomic::{AtomicUsize, Ordering},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::*;
use crate::{
    BoxFuture,
    net::{
        guard::AllowPrivate,
        testing::{Seen, Server, Wire},
    },
};

/// Resolves every name, the n-th time to the n-th answer.
struct Names(Vec<Vec<SocketAddr>>, AtomicUsize);

impl Lookup for Names {
    fn lookup(&self, _name: &str) -> BoxFuture<io::Result<Vec<SocketAddr>>> {
        let at = self.1.fetch_add(1, Ordering::Relaxed).min(self.0.len().saturating_sub(1));
        let answer = self.0.get(at).cloned().ok_or_else(|| io::Error::other("no such name"));
        Box::pin(async move { answer })
    }
}

fn names(answers: &[&[&str]]) -> Arc<Names> {
    let addresses =
        |texts: &&[&str]| texts.iter().map(|text| SocketAddr::new(text.parse().unwrap(), 0)).collect();
    Arc::new(Names(answers.iter().map(addresses).collect(), AtomicUsize::new(0)))
}

fn loopback() -> Policy {
    Policy::new(AllowPrivate::No, &["127.0.0.0/8".parse().unwrap()])
}

fn headers() -> IndexMap<String, String> {
    [("Authorization", "Bearer hush"), ("X-Key", "hush")].map(|(k, v)| (k.to_owned(), v.to_owned())).into()
}

fn client(policy: Policy, lookup: Arc<Names>, env: &[(&str, String)]) -> HttpClient {
    let env = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
    HttpClient::with("s", policy, &headers(), lookup, &env).unwrap()
}

fn local() -> HttpClient {
    client(loopback(), names(&[&["127.0.0.1"]]), &[])
}

fn post(url: &str) -> Request {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("mcp-session-id", HeaderValue::from_static("hush"));
    let url = Url::parse(url).unwrap();
    Request {
        method: Method::POST,
        url,
        headers,
        own_origin: true,
        body: Some(Bytes::from_static(b"{\"a\":1}")),
    }
}

async fn text(client: &HttpClient, url: &str) -> Result<String, NetError> {
    let mut response = client.send(post(url)).await?;
    let body = response.collect(1 << 20).await?;
    Ok(format!("{} {}", response.status().as_u16(), String::from_utf8_lossy(&body)))
}

async fn redirecting(status: u16, to: &str) -> Server {
    let location = format!("Location: {to}\r\n");
    Server::start(move |seen: Seen, wire: Wire| {
        let location = location.clone();
        async move {
            if seen.target.ends_with("/end") {
                return wire.answer(200, "text/plain", "", format!("{} {}", seen.method, seen.body)).await;
            }
            wire.answer(status, "text/plain", &location, "moved").await
        }
    })
    .await
}

async fn closed_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port()
}

/// A closed port is reported at once, as a request that never left.
#[tokio::test]
async fn a_closed_port_is_unreachable_at_once() {
    let error = text(&local(), &format!("http://127.0.0.1:{}/hush", closed_port().await)).await.unwrap_err();
    assert_eq!((error.kind, error.sent), (NetErrorKind::Unreachable, false));
    let text = error.to_string();
    assert!(text.contains("unreachable") && text.contains("refused") && !text.contains("hush"), "{text}");
}

/// The address policy holds for literal addresses and for what a name resolves to, each of its addresses.
#[tokio::test]
async fn a_private_address_is_refused_before_anything_is_sent() {
    let server = Server::start(|_, wire: Wire| wire.json("{}")).await;
    let port = server.address.port();
    for (host, answers) in [
        ("127.0.0.1", names(&[])),
        ("localhost", names(&[&["127.0.0.1"]])),
        ("public.example", names(&[&["127.0.0.1"]])),
        ("public.example", names(&[&["93.184.216.34", "127.0.0.1"]])),
        ("public.example", names(&[&["::ffff:127.0.0.1"]])),
    ] {
        let client = client(Policy::default(), answers, &[]);
        let error = text(&client, &format!("http://{host}:{port}/")).await.unwrap_err();
        assert_eq!((error.kind, error.sent), (NetErrorKind::Blocked, false), "{host}: {error}");
        assert!(error.to_string().contains("allowPrivate"), "{error}");
    }
    assert!(server.seen().is_empty());
}

/// A name that answers otherwise the second time changes nothing: what was judged is what is dialled.
#[tokio::test]
async fn the_address_that_was_judged_is_the_address_that_is_dialled() {
    let server = Server::start(|_, wire: Wire| wire.json("{}")).await;
    let port = server.address.port();
    let policy = Policy::new(AllowPrivate::No, &["127.0.0.1/32".parse().unwrap()]);
    let lookup = names(&[&["127.0.0.1"], &["127.0.0.2"]]);
    let client = client(policy, Arc::clone(&lookup), &[]);
    assert_eq!(text(&client, &format!("http://rebind.example:{port}/")).await.unwrap(), "200 {}");
    assert_eq!(lookup.1.load(Ordering::Relaxed), 1, "asked once for one connection");
    // A connection of its own asks again, and is refused.
    let error = text(&client, &format!("http://rebind.example:{}/", closed_port().await)).await.unwrap_err();
    assert_eq!(error.kind, NetErrorKind::Blocked);
}

/// Redirects that keep the method keep the body and, on the same origin, the headers.
#[tokio::test]
async fn a_redirect_on_the_same_origin_carries_everything() {
    for status in [301, 302, 307, 308] {
        let server = redirecting(status, "/deep/end").await;
        assert_eq!(text(&local(), &server.url("/start")).await.unwrap(), "200 POST {\"a\":1}");
        let seen = server.seen();
        assert_eq!(seen[1].header("x-key"), Some("hush"));
        assert_eq!(seen[1].header("mcp-session-id"), Some("hush"));
        assert_eq!(seen[1].connection, 0, "the connection is used again");
    }
    let server = redirecting(303, "/end").await;
    assert_eq!(text(&local(), &server.url("/start")).await.unwrap(), "200 GET ");
    assert_eq!(server.seen()[1].header("content-type"), None);
}

/// Another origin gets the message and nothing that is secret, on the way back as well.
#[tokio::test]
async fn a_redirect_to_another_origin_carries_no_credentials() {
    let other = redirecting(307, "/end").await;
    let first = redirecting(307, &other.url("/start")).await;
    let response =
        local().send(post(&first.url("/start").replace("http://", "http://user:hush@"))).await.unwrap();
    assert_eq!(response.status(), 200);
    assert!(!response.own_origin() && response.url().path() == "/end");
    assert!(first.seen()[0].header("authorization").is_some());
    for seen in other.seen() {
        assert!(!format!("{seen:?}").contains("hush"), "{seen:?}");
        assert_eq!(seen.header("content-type"), Some("application/json"));
    }
    assert_eq!(other.seen().len(), 2);
}

/// Each hop is judged like the first address.
#[tokio::test]
async fn a_redirect_to_a_private_address_is_refused() {
    let target = Server::start(|_, wire: Wire| wire.json("{}")).await;
    for to in [
        format!("http://127.0.0.2:{}/", target.address.port()),
        "http://169.254.169.254/latest/meta-data".to_owned(),
        "file:///etc/passwd".to_owned(),
        format!("http://elsewhere.example:{}/", target.address.port()),
    ] {
        let server = redirecting(307, &to).await;
        let policy = Policy::new(AllowPrivate::No, &["127.0.0.1/32".parse().unwrap()]);
        let client = client(policy, names(&[&["127.0.0.2"]]), &[]);
        let error = text(&client, &server.url("/start")).await.unwrap_err();
        assert_eq!((error.kind, error.sent), (NetErrorKind::Blocked, false), "{to}: {error}");
    }
    assert!(target.seen().is_empty());
}

/// Redirects end: in a circle as well as without an address.
#[tokio::test]
async fn redirects_without_an_end_are_given_up() {
    let server = redirecting(307, "/start").await;
    let error = text(&local(), &server.url("/start")).await.unwrap_err();
    assert_eq!(error.kind, NetErrorKind::Redirect);
    assert_eq!(server.seen().len(), MAX_HOPS + 1);
    let server = Server::start(|_, wire: Wire| wire.answer(307, "", "", "")).await;
    assert_eq!(text(&local(), &server.url("/")).await.unwrap(), "307 ");
}

/// A name that only the proxy can resolve is asked for through it; what this machine knows is judged.
#[tokio::test]
async fn a_proxy_of_the_environment_does_the_dns() {
    let proxy = Server::start(|seen: Seen, wire: Wire| wire.answer(200, "text/plain", "", seen.target)).await;
    let env = [("HTTP_PROXY", format!("http://user:hush@{}", proxy.address))];
    let through = |lookup| client(Policy::default(), lookup, &env);

    let answer = text(&through(names(&[])), "http://only-the-proxy-knows.example/x").await.unwrap();
    assert_eq!(answer, "200 http://only-the-proxy-knows.example/x");
    assert!(proxy.seen()[0].header("proxy-authorization").is_some());

    for url in ["http://10.0.0.1/", "http://localhost/", "http://2130706433/", "http://private.example/"] {
        let error = text(&through(names(&[&["10.0.0.1"]])), url).await.unwrap_err();
        assert_eq!((error.kind, error.sent), (NetErrorKind::Blocked, false), "{url}: {error}");
    }
    assert_eq!(proxy.seen().len(), 1);
}

/// For https the proxy is asked for a tunnel by name. What it says no to never left.
#[tokio::test]
async fn a_proxy_that_refuses_is_named_without_its_password() {
    let proxy = Server::start(|_, wire: Wire| wire.answer(403, "", "", "")).await;
    let env = [("https_proxy", format!("http://user:hush@{}", proxy.address))];
    let error =
        text(&client(Policy::default(), names(&[]), &env), "https://h.example/hush").await.unwrap_err();
    assert_eq!((error.kind, error.sent), (NetErrorKind::Proxy, false), "{error}");
    let text = error.to_string();
    assert!(text.contains(&proxy.address.to_string()) && !text.contains("hush"), "{text}");
    let connect = &proxy.seen()[0];
    assert_eq!((connect.method.as_str(), connect.target.as_str()), ("CONNECT", "h.example:443"));
}

/// A SOCKS proxy is given the name, however its scheme is spelled.
#[tokio::test]
async fn a_socks_proxy_is_given_the_name() {
    let target = Server::start(|_, wire: Wire| wire.json("{}")).await;
    for scheme in ["socks5", "socks5h"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let env = [("ALL_PROXY", format!("{scheme}://{}", listener.local_addr().unwrap()))];
        let address = target.address;
        let proxy = crate::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut greeting = [0; 3];
            stream.read_exact(&mut greeting).await.unwrap();
            stream.write_all(&[5, 0]).await.unwrap();
            // Version, connect, reserved, a name, its length.
            let mut head = [0; 5];
            stream.read_exact(&mut head).await.unwrap();
            assert_eq!(head[..4], [5, 1, 0, 3]);
            let mut name = vec![0; usize::from(head[4]) + 2];
            stream.read_exact(&mut name).await.unwrap();
            stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
            let mut onward = TcpStream::connect(address).await.unwrap();
            crate::spawn(async move { tokio::io::copy_bidirectional(&mut stream, &mut onward).await });
            name.truncate(usize::from(head[4]));
            String::from_utf8(name).unwrap()
        });
        let client = client(Policy::default(), names(&[]), &env);
        assert_eq!(text(&client, "http://only-the-proxy-knows.example/").await.unwrap(), "200 {}");
        assert_eq!(proxy.await.unwrap(), "only-the-proxy-knows.example");
    }
}

/// The connection of a request is used for the next.
#[tokio::test]
async fn connections_are_used_again() {
    let server = Server::start(|_, wire: Wire| wire.json("{}")).await;
    let client = local();
    for _ in 0..3 {
        assert_eq!(text(&client, &server.url("")).await.unwrap(), "200 {}");
    }
    assert!(server.seen().iter().all(|seen| seen.connection == 0));
}

/// Whether a request may have run is told from what is certain: one that a server read and then closed on was
/// sent; a connection that was closed while idle is not used for the next.
#[tokio::test]
async fn a_connection_that_the_server_closes_is_told_apart() {
    let reads_and_closes = Server::start(|_, _| async { None }).await;
    let error = text(&local(), &reads_and_closes.url("/")).await.unwrap_err();
    assert_eq!((error.kind, error.sent), (NetErrorKind::Broken, true), "{error}");

    let closes_when_idle = Server::start(|_, wire: Wire| async {
        wire.json("{}").await;
        None
    })
    .await;
    let client = local();
    for _ in 0..3 {
        assert_eq!(text(&client, &closes_when_idle.url("/")).await.unwrap(), "200 {}");
        // The end of the connection comes after the response.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A body that breaks off, and one over the limit, are errors of that response alone.
#[tokio::test]
async fn a_body_that_breaks_off_or_never_ends_is_an_error() {
    let server = Server::start(|seen: Seen, mut wire: Wire| async move {
        match seen.target.as_str() {
            "/cut" => wire.raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"half\"").await,
            "/told" => wire.raw("HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n").await,
            _ => wire.raw([b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &vec![b'x'; 2 << 20]].concat()).await,
        }
        None
    })
    .await;
    for (path, kind) in [
        ("/cut", NetErrorKind::Broken),
        ("/told", NetErrorKind::TooLarge),
        ("/endless", NetErrorKind::TooLarge),
    ] {
        let error = text(&local(), &server.url(path)).await.unwrap_err();
        assert_eq!((error.kind, error.sent), (kind, true), "{path}: {error}");
    }
}

/// A server without TLS under https is told as such, and never saw the request.
#[tokio::test]
async fn a_server_without_tls_is_told_as_such() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answer = crate::spawn(async move {
        let (stream, _): (TcpStream, _) = listener.accept().await.unwrap();
        Wire(stream).raw("HTTP/1.1 400 Bad Request\r\n\r\n").await;
    });
    let error = text(&local(), &format!("https://127.0.0.1:{port}/")).await.unwrap_err();
    answer.await.unwrap();
    assert_eq!((error.kind, error.sent), (NetErrorKind::Tls, false), "{error}");
    assert!(error.to_string().contains("TLS with https://127.0.0.1"), "{error}");
}

/// A faulty header costs the entry, with a text that names it and not its value.
#[test]
fn a_faulty_header_is_named_without_its_value() {
    for (name, value) in [("X Key", "hush"), ("", "hush"), ("X-Key", "hush\n"), ("X-Key", "hu\0sh")] {
        let headers = IndexMap::from([(name.to_owned(), value.to_owned())]);
        let error = HttpClient::new("srv", Policy::default(), &headers).unwrap_err();
        assert_eq!(error.code(), "config");
        let text = error.to_string();
        assert!(
            text.contains("'srv'") && text.contains(&format!("'{name}'")) && !text.contains("hu"),
            "{text}"
        );
    }
    let client = HttpClient::new("s", Policy::default(), &headers()).unwrap();
    assert!(!format!("{client:?}").contains("hush"));
}
