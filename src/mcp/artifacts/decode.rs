//! Data as servers send it: base64 of every dialect, and `data:` URLs.
//!
//! The common case (base64 in one piece) is decoded in one copy. White space, missing padding and
//! the URL alphabet are understood; what is no base64 at all is refused.

use std::borrow::Cow;

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};

use super::Refused;

const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// What a server calls data: a payload, and the type that a `data:` URL gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::mcp) struct Encoded<'a> {
    payload: &'a str,
    base64: bool,
    /// The media type of the `data:` URL, without parameters.
    pub(in crate::mcp) mime: Option<&'a str>,
}

impl<'a> Encoded<'a> {
    /// A `data` or `blob` member: base64, or a `data:` URL.
    pub(in crate::mcp) fn new(text: &'a str) -> Self {
        Self::of_url(text).unwrap_or(Self { payload: text, base64: true, mime: None })
    }

    /// A `data:` URL; `None` for any other text.
    pub(in crate::mcp) fn of_url(text: &'a str) -> Option<Self> {
        let text = text.trim_start();
        if !text.get(..5)?.eq_ignore_ascii_case("data:") {
            return None;
        }
        let (head, payload) = text[5..].split_once(',')?;
        let mut parts = head.split(';').map(str::trim);
        let mime = parts.next().filter(|mime| !mime.is_empty());
        let base64 = parts.any(|part| part.eq_ignore_ascii_case("base64"));
        Some(Self { payload, base64, mime })
    }

    pub(in crate::mcp) const fn is_base64(&self) -> bool {
        self.base64
    }

    /// How many bytes it stands for, without decoding it.
    pub(in crate::mcp) fn length(&self) -> usize {
        if self.base64 {
            let bytes = self.payload.bytes();
            bytes.filter(|byte| !byte.is_ascii_whitespace() && *byte != b'=').count() * 3 / 4
        } else {
            percent_encoding::percent_decode_str(self.payload).count()
        }
    }

    /// The bytes; at most `limit` of them.
    pub(in crate::mcp) fn decode(&self, limit: u64) -> Result<Cow<'a, [u8]>, Refused> {
        let length = self.length() as u64;
        if length > limit {
            return Err(Refused::TooLarge { length, limit });
        }
        if !self.base64 {
            return Ok(percent_encoding::percent_decode_str(self.payload).into());
        }
        LENIENT.decode(self.payload).or_else(|_| self.decode_untidy()).map(Cow::Owned)
    }

    fn decode_untidy(&self) -> Result<Vec<u8>, Refused> {
        // In a URL, `+`, `/`, `=` and line ends may be escaped.
        let payload: Cow<'_, [u8]> = percent_encoding::percent_decode_str(self.payload).into();
        let mut tidy: Vec<u8> = payload
            .iter()
            .filter(|byte| !byte.is_ascii_whitespace())
            .map(|byte| match byte {
                b'-' => b'+',
                b'_' => b'/',
                other => *other,
            })
            .collect();
        let significant = tidy.trim_ascii_end().iter().rposition(|byte| *byte != b'=').map_or(0, |at| at + 1);
        tidy.truncate(significant);
        LENIENT.decode(tidy).map_err(|_| Refused::NotBase64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(text: &str) -> Result<Vec<u8>, Refused> {
        Encoded::new(text).decode(1 << 20).map(Cow::into_owned)
    }

    #[test]
    fn base64_of_every_dialect_is_understood() {
        for text in [
            "+/+/QQ==",
            "+/+/QQ",
            "-_-_QQ",
            " +/+/\r\n QQ==\n",
            "+/+/QQ=\n=",
            "data:;base64,%2B%2F+/QQ%3D%3D",
        ] {
            assert_eq!(decoded(text).unwrap(), b"\xfb\xff\xbfA", "{text}");
        }
        assert_eq!(decoded("").unwrap(), b"");
    }

    #[test]
    fn data_urls_bring_their_type_and_need_not_be_base64() {
        let url = Encoded::new("DATA:image/svg+xml;charset=utf-8,%3Csvg/%3E");
        assert_eq!((url.mime, &*url.decode(99).unwrap()), (Some("image/svg+xml"), &b"<svg/>"[..]));
        assert_eq!(url.length(), 6);
        let url = Encoded::new("data:image/png;name=a;BASE64,QUJD");
        assert_eq!((url.mime, &*url.decode(99).unwrap()), (Some("image/png"), &b"ABC"[..]));
        assert_eq!(Encoded::of_url("https://x/data:,"), None);
        assert_eq!(Encoded::of_url("daté:,"), None);
    }

    #[test]
    fn what_is_no_base64_is_refused_and_so_is_too_much() {
        for text in ["!!", "not-valid-base64!!", "A", "é", "data:x"] {
            assert_eq!(decoded(text), Err(Refused::NotBase64), "{text}");
        }
        let refused = Encoded::new("QUJD").decode(2);
        assert_eq!(refused, Err(Refused::TooLarge { length: 3, limit: 2 }));
    }

    proptest::proptest! {
        #[test]
        fn the_length_is_known_without_decoding(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..99)) {
            let text = LENIENT.encode(&bytes);
            proptest::prop_assert_eq!(Encoded::new(&text).length(), bytes.len());
            proptest::prop_assert_eq!(decoded(&text).unwrap(), bytes);
        }

        #[test]
        fn no_text_panics(text in "(data:|;base64|,|%|%2|=|A|é|\\PC){0,12}") {
            let encoded = Encoded::new(&text);
            let _ = (encoded.length(), encoded.decode(u64::MAX));
        }
    }
}
