//! What data is, by its first bytes or by what the server calls it.
//!
//! A file's extension comes from the tables here, never from a server's text. The four types that
//! the reference knows are told by the same bytes as there.

/// First bytes, where they stand, and the type that they tell.
const MAGIC: &[(usize, &[u8], &str)] = &[
    (0, b"\x89PNG\r\n\x1a\n", "image/png"),
    (0, b"\xff\xd8\xff", "image/jpeg"),
    (0, b"GIF87a", "image/gif"),
    (0, b"GIF89a", "image/gif"),
    (0, b"BM", "image/bmp"),
    (0, b"II*\0", "image/tiff"),
    (0, b"MM\0*", "image/tiff"),
    (0, b"\0\0\x01\0", "image/x-icon"),
    (4, b"ftypavif", "image/avif"),
    (4, b"ftypavis", "image/avif"),
    (4, b"ftypheic", "image/heic"),
    (4, b"ftypheix", "image/heic"),
    (4, b"ftypmif1", "image/heif"),
    (0, b"\xff\x0a", "image/jxl"),
    (0, b"\0\0\0\x0cJXL \r\n\x87\n", "image/jxl"),
    (0, b"ID3", "audio/mpeg"),
    (0, b"\xff\xfb", "audio/mpeg"),
    (0, b"OggS", "audio/ogg"),
    (0, b"fLaC", "audio/flac"),
    (4, b"ftypM4A ", "audio/mp4"),
    (4, b"ftyp", "video/mp4"),
    (0, b"\x1a\x45\xdf\xa3", "video/webm"),
    (0, b"%PDF-", "application/pdf"),
    (0, b"PK\x03\x04", "application/zip"),
    (0, b"\x1f\x8b", "application/gzip"),
];

/// Types and the extensions that their files get.
const EXTENSIONS: &[(&str, &str)] = &[
    ("image/png", "png"),
    ("image/jpeg", "jpg"),
    ("image/gif", "gif"),
    ("image/webp", "webp"),
    ("image/svg+xml", "svg"),
    ("image/bmp", "bmp"),
    ("image/tiff", "tiff"),
    ("image/x-icon", "ico"),
    ("image/avif", "avif"),
    ("image/heic", "heic"),
    ("image/heif", "heif"),
    ("image/jxl", "jxl"),
    ("audio/mpeg", "mp3"),
    ("audio/mp3", "mp3"),
    ("audio/wav", "wav"),
    ("audio/x-wav", "wav"),
    ("audio/wave", "wav"),
    ("audio/vnd.wave", "wav"),
    ("audio/ogg", "ogg"),
    ("audio/opus", "opus"),
    ("audio/flac", "flac"),
    ("audio/mp4", "m4a"),
    ("audio/x-m4a", "m4a"),
    ("audio/aac", "aac"),
    ("audio/webm", "webm"),
    ("video/mp4", "mp4"),
    ("video/webm", "webm"),
    ("application/pdf", "pdf"),
    ("application/zip", "zip"),
    ("application/gzip", "gz"),
    ("application/json", "json"),
    ("application/xml", "xml"),
    ("application/yaml", "yaml"),
    ("application/vnd.openxmlformats-officedocument.wordprocessingml.document", "docx"),
    ("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", "xlsx"),
    ("application/vnd.openxmlformats-officedocument.presentationml.presentation", "pptx"),
    ("text/plain", "txt"),
    ("text/markdown", "md"),
    ("text/csv", "csv"),
    ("text/html", "html"),
    ("text/xml", "xml"),
    ("text/yaml", "yaml"),
];

/// How far into a text `<svg` is looked for.
const SVG_PROLOGUE: usize = 4096;

/// The type that the bytes tell, if they tell one.
pub(in crate::mcp) fn sniff(bytes: &[u8]) -> Option<&'static str> {
    if bytes.starts_with(b"RIFF") {
        return match bytes.get(8..12) {
            Some(b"WEBP") => Some("image/webp"),
            Some(b"WAVE") => Some("audio/wav"),
            _ => None,
        };
    }
    let known = MAGIC.iter().find(|(at, magic, _)| bytes.get(*at..).is_some_and(|b| b.starts_with(magic)));
    known.map(|(_, _, mime)| *mime).or_else(|| is_svg(bytes).then_some("image/svg+xml"))
}

fn is_svg(bytes: &[u8]) -> bool {
    let start = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes).trim_ascii_start();
    let start = &start[..start.len().min(SVG_PROLOGUE)];
    start.starts_with(b"<svg")
        || (["<?xml", "<!--", "<!DOCTYPE svg"].iter().any(|head| start.starts_with(head.as_bytes()))
            && memchr::memmem::find(start, b"<svg").is_some())
}

/// The extension for a file: by its bytes, else by what it is called, else `bin`.
pub(super) fn extension(bytes: &[u8], called: Option<&str>) -> &'static str {
    let of =
        |mime: &str| EXTENSIONS.iter().find(|(known, _)| known.eq_ignore_ascii_case(mime)).map(|(_, e)| *e);
    let called = called.map(essence);
    // A document that is a zip file, or an audio in a video's container: the server knows better.
    match (sniff(bytes), called.and_then(of)) {
        (Some(told), None) => of(told).unwrap_or("bin"),
        (Some(told), Some(_)) if told.starts_with("image/") => of(told).unwrap_or("bin"),
        (_, Some(called)) => called,
        (None, None) => "bin",
    }
}

/// A media type without its parameters.
fn essence(mime: &str) -> &str {
    mime.split(';').next().unwrap_or_default().trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_tell_what_an_image_is() {
        for (bytes, mime) in [
            (&b"\x89PNG\r\n\x1a\n0000"[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a", Some("image/gif")),
            (b"RIFF....WEBPVP8 ", Some("image/webp")),
            (b"RIFF....WAVEfmt ", Some("audio/wav")),
            (b"\n<svg xmlns='x'/>", Some("image/svg+xml")),
            (b"\xEF\xBB\xBF<?xml version='1.0'?><!-- c --><svg/>", Some("image/svg+xml")),
            (b"\0\0\0\x20ftypavif", Some("image/avif")),
            (b"<html><svg/></html>", None),
            (b"\x89PNG", None),
            (b"RIFF", None),
            (b"", None),
        ] {
            assert_eq!(sniff(bytes), mime, "{bytes:?}");
        }
    }

    #[test]
    fn an_extension_never_comes_from_a_servers_text() {
        assert_eq!(extension(b"\x89PNG\r\n\x1a\n", Some("audio/wav")), "png");
        assert_eq!(extension(b"..", Some("Audio/WAV; rate=8000")), "wav");
        assert_eq!(extension(b"PK\x03\x04", Some("application/x-../../evil")), "zip");
        assert_eq!(extension(b"..", Some("application/../../evil")), "bin");
        let docx = "application/vnd.openxmlformats-officedocument.wordprocessingml.document";
        assert_eq!(extension(b"PK\x03\x04", Some(docx)), "docx");
        assert!(EXTENSIONS.iter().all(|(_, e)| e.bytes().all(|b| b.is_ascii_alphanumeric())));
    }
}
