//! The proxies that the environment names.
//!
//! `HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY` and `NO_PROXY`, in capitals or not, as curl reads them.
//! This machine is never asked for through a proxy. A SOCKS proxy always does the DNS, as in the
//! reference's HTTP library.

use hyper_util::client::proxy::matcher::Matcher;
use reqwest::Url;
use url::Host;

use super::guard::is_localhost;

pub(super) struct Proxies {
    matcher: Matcher,
    http: Option<String>,
    https: Option<String>,
}

impl Proxies {
    /// Read the variables through `lookup`. Empty ones count as absent.
    pub(super) fn from_env(lookup: &dyn Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| {
            [name.to_ascii_lowercase(), name.to_owned()]
                .iter()
                .find_map(|name| lookup(name).map(|value| value.trim().to_owned()))
                .filter(|value| !value.is_empty())
        };
        let all = get("ALL_PROXY");
        // Under CGI the variable in capitals is what a client sent as the header `Proxy`.
        let http = if lookup("REQUEST_METHOD").is_some() { lookup("http_proxy") } else { get("HTTP_PROXY") };
        let http = http.filter(|value| !value.is_empty()).or_else(|| all.clone()).map(remote_dns);
        let https = get("HTTPS_PROXY").or(all).map(remote_dns);
        let matcher = Matcher::builder()
            .http(http.clone().unwrap_or_default())
            .https(https.clone().unwrap_or_default())
            .no(get("NO_PROXY").unwrap_or_default())
            .build();
        Self { matcher, http, https }
    }

    /// The proxy's address for a URL, with its userinfo.
    pub(super) fn for_url(&self, url: &Url) -> Option<&str> {
        let proxy = match url.scheme() {
            "https" => self.https.as_deref(),
            _ => self.http.as_deref(),
        }?;
        let own = match url.host()? {
            Host::Domain(name) => is_localhost(name),
            Host::Ipv4(address) => address.is_loopback(),
            Host::Ipv6(address) => address.to_canonical().is_loopback(),
        };
        if own {
            return None;
        }
        self.matcher.intercept(&url.as_str().parse().ok()?).map(|_| proxy)
    }
}

/// Whatever kind of SOCKS is named, the proxy is given the name.
fn remote_dns(proxy: String) -> String {
    match proxy.split_once("://") {
        Some(("socks5" | "socks", rest)) => format!("socks5h://{rest}"),
        Some(("socks4", rest)) => format!("socks4a://{rest}"),
        Some(_) => proxy,
        None => format!("http://{proxy}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(env: &[(&str, &str)], url: &str) -> Option<String> {
        let lookup =
            |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Proxies::from_env(&lookup).for_url(&Url::parse(url).unwrap()).map(str::to_owned)
    }

    #[test]
    fn the_variables_are_read_as_curl_reads_them() {
        let env = [
            ("HTTP_PROXY", "http://p:1"),
            ("https_proxy", "q:2"),
            ("NO_PROXY", "internal.example,10.0.0.0/8"),
        ];
        assert_eq!(proxy(&env, "http://h.example/").as_deref(), Some("http://p:1"));
        assert_eq!(proxy(&env, "https://h.example/").as_deref(), Some("http://q:2"));
        assert_eq!(proxy(&env, "https://a.internal.example/"), None);
        assert_eq!(proxy(&env, "http://10.1.1.1/"), None);
        assert_eq!(proxy(&[("NO_PROXY", "*"), ("ALL_PROXY", "p:1")], "http://h.example/"), None);
        assert_eq!(proxy(&[("ALL_PROXY", "socks5://p:1")], "http://h/").as_deref(), Some("socks5h://p:1"));
        assert_eq!(proxy(&[("HTTP_PROXY", "")], "http://h.example/"), None);
    }

    #[test]
    fn a_client_of_a_cgi_program_cannot_name_the_proxy() {
        let env = [("REQUEST_METHOD", "GET"), ("HTTP_PROXY", "http://evil")];
        assert_eq!(proxy(&env, "http://h.example/"), None);
    }

    #[test]
    fn this_machine_is_never_asked_for_through_a_proxy() {
        for url in ["http://localhost/", "http://127.0.0.2/", "http://[::1]/", "http://x.localhost/"] {
            assert_eq!(proxy(&[("HTTP_PROXY", "http://p:1")], url), None);
        }
    }
}
