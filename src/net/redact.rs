//! Texts that may be shown: addresses without what can be secret in them, bodies cut short.

use reqwest::Url;

/// An address as its origin and a sign that there is more. Userinfo, path and query can all be secrets.
pub(crate) fn redacted(url: &Url) -> String {
    let Some(host) = url.host_str() else { return "<redacted-url>".to_owned() };
    let mut text = format!("{}://{host}", url.scheme());
    if let Some(port) = url.port() {
        text.push(':');
        text.push_str(&port.to_string());
    }
    text.push_str(if url.path() == "/" && url.query().is_none() { "/" } else { "/..." });
    text
}

/// The beginning of a body as plain text on one line: no tags, scripts or control characters.
pub(crate) fn excerpt(body: &[u8], limit: usize) -> String {
    // What does not fit after the markup is gone is not looked at.
    let text = String::from_utf8_lossy(&body[..body.len().min(16 << 10)]);
    let mut out = String::new();
    let mut rest = text.as_ref();
    let looks_marked_up = rest.trim_start().starts_with('<');
    while !rest.is_empty() && out.len() < limit {
        let Some(at) = rest.find('<').filter(|_| looks_marked_up) else {
            words(rest, &mut out, limit);
            break;
        };
        words(&rest[..at], &mut out, limit);
        rest = &rest[at..];
        let hidden = ["script", "style"]
            .into_iter()
            .find(|name| rest.get(1..=name.len()).is_some_and(|tag| tag.eq_ignore_ascii_case(name)));
        rest = match hidden {
            None => rest,
            Some(name) => {
                let closing = format!("</{name}");
                rest.to_ascii_lowercase().find(&closing).map_or("", |end| &rest[end..])
            }
        };
        rest = rest.split_once('>').map_or("", |(_, rest)| rest);
    }
    out
}

/// Append the words of `text`, with one space between, up to `limit` bytes of `out`.
fn words(text: &str, out: &mut String, limit: usize) {
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty()) {
        if !out.is_empty() {
            out.push(' ');
        }
        if out.len() + word.len() > limit {
            let mut end = limit.saturating_sub(out.len());
            while !word.is_char_boundary(end) {
                end -= 1;
            }
            out.push_str(&word[..end]);
            out.push('…');
            return;
        }
        out.push_str(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_origin_of_an_address_is_shown() {
        for (url, shown) in [
            ("https://user:hush@h.example:8443/hush?key=hush#hush", "https://h.example:8443/..."),
            ("http://h.example/", "http://h.example/"),
            ("http://h.example?key=hush", "http://h.example/..."),
            ("http://[::1]:80/hush", "http://[::1]/..."),
        ] {
            assert_eq!(redacted(&Url::parse(url).unwrap()), shown);
        }
    }

    #[test]
    fn a_page_is_shown_as_its_words() {
        let page = b"<!DOCTYPE html><html><head><style>p{}</style><SCRIPT>alert(1)</SCRIPT></head>\n<body><h1>502</h1>  Bad\tGateway</body>";
        assert_eq!(excerpt(page, 100), "502 Bad Gateway");
        assert_eq!(excerpt(b"a < b\x1b[31m and\r\nmore", 100), "a < b [31m and more");
        assert_eq!(excerpt("ääää".as_bytes(), 5), "ää…");
        assert_eq!(excerpt(b"<<<<", 10), "");
        assert_eq!(excerpt(b"<script>unclosed", 10), "");
    }
}
