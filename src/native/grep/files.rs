//! Searching one file: whether it is wanted, whether it is text, and which lines match.

use std::{
    fs::{self, File, Metadata, OpenOptions},
    io::{self, Read},
    path::Path,
};

use grep_searcher::Searcher;

use super::PREFIX;
use crate::native::{
    failure::Failure,
    glob::{FileType, Glob},
    paths::PathError,
    pattern::{Hits, Pattern, Want},
    stop::Stop,
    text::is_binary,
    walk::{Candidate, Kind},
    workspace::Admitted,
};

/// What one search does with every file.
#[derive(Debug)]
pub(super) struct FileSearch<'a> {
    pub(super) pattern: &'a Pattern,
    pub(super) glob: Option<Glob>,
    pub(super) file_type: Option<FileType>,
    pub(super) admitted: &'a Admitted,
    pub(super) root: &'a Path,
    /// Whether the caller named this very file.
    pub(super) explicit: bool,
    pub(super) max_bytes: u64,
    pub(super) want: Want,
    pub(super) stop: &'a Stop,
}

/// What became of one file.
#[derive(Debug)]
pub(super) enum Outcome {
    /// Not wanted, or without a match.
    Nothing,
    /// Binary, no UTF-8, no regular file, or not readable.
    Unreadable,
    TooLarge,
    /// PDF or Office.
    Document,
    /// A link that leads out of what may be read.
    Outside,
    Matched(Matched),
}

/// A file with matches.
#[derive(Debug)]
pub(super) struct Matched {
    pub(super) display: String,
    /// As Python's `st_mtime`.
    pub(super) modified: f64,
    pub(super) text: String,
    pub(super) hits: Hits,
}

impl FileSearch<'_> {
    pub(super) fn run(&self, searcher: &mut Searcher, file: &Candidate) -> Result<Outcome, Failure> {
        self.stop.check()?;
        let wanted = match &self.glob {
            Some(glob) => glob.matches(&file.relative, file.name()).map_err(|e| format!("{PREFIX}: {e}"))?,
            None => true,
        };
        if !wanted || self.file_type.as_ref().is_some_and(|t| !t.matches(file.name())) {
            return Ok(Outcome::Nothing);
        }
        if matches!(file.kind, Kind::Special | Kind::LostLink) {
            return Ok(Outcome::Unreadable);
        }
        if file.kind == Kind::Link {
            // Opening a pipe or a device has effects, so look first.
            if !fs::metadata(&file.path).is_ok_and(|m| m.is_file()) {
                return Ok(Outcome::Unreadable);
            }
            if self.admitted.fence.as_ref().is_some_and(|fence| !fence.holds_goal(&file.path)) {
                return Ok(Outcome::Outside);
            }
        }
        let is_document = is_document(&file.path);
        let (handle, metadata) = match open(&file.path) {
            Ok(opened) => opened,
            Err(error) if self.explicit => return Err(PathError::os(&error, &file.path).into()),
            Err(_) => return Ok(Outcome::Unreadable),
        };
        if !metadata.is_file() {
            return Ok(Outcome::Unreadable);
        }
        if metadata.len() > self.max_bytes {
            return Ok(Outcome::TooLarge);
        }
        if is_document {
            if self.explicit {
                let display = self.admitted.display(&file.path, self.root);
                return Err(Failure::Text(format!(
                    "Error searching document {display}: PDF and Office files are not supported."
                )));
            }
            return Ok(Outcome::Document);
        }
        let raw = match read(handle, metadata.len(), self.max_bytes) {
            Ok(raw) => raw,
            Err(error) if self.explicit => return Err(PathError::os(&error, &file.path).into()),
            Err(_) => return Ok(Outcome::Unreadable),
        };
        if is_binary(&raw) {
            return Ok(Outcome::Unreadable);
        }
        let Ok(text) = String::from_utf8(raw) else { return Ok(Outcome::Unreadable) };
        let hits = self.pattern.search(searcher, &text, self.want, self.stop)?;
        if hits.count == 0 {
            return Ok(Outcome::Nothing);
        }
        // Only matches that are shown need the text.
        let text = if self.want.keep > 1 { text } else { String::new() };
        let display = self.admitted.display(&file.path, self.root);
        Ok(Outcome::Matched(Matched { display, modified: modified(&metadata), text, hits }))
    }
}

fn is_document(path: &Path) -> bool {
    let extension = path.extension().map(|e| e.to_string_lossy().to_lowercase());
    extension.is_some_and(|e| matches!(e.as_str(), "pdf" | "docx" | "xlsx" | "pptx"))
}

fn open(path: &Path) -> io::Result<(File, Metadata)> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // A pipe that took the file's place must not block.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    let file = options.open(path)?;
    let metadata = file.metadata()?;
    Ok((file, metadata))
}

fn read(file: File, size: u64, most: u64) -> io::Result<Vec<u8>> {
    // One byte more than the size, so that the end is seen without growing.
    let mut raw = Vec::with_capacity(usize::try_from(size).unwrap_or(0).saturating_add(1));
    file.take(most + 1).read_to_end(&mut raw)?;
    Ok(raw)
}

/// The modification time in seconds, with the rounding of Python's `st_mtime`.
#[cfg(unix)]
#[expect(clippy::cast_precision_loss, reason = "the same loss as in Python, so that ties are the same")]
pub(in crate::native) fn modified(metadata: &Metadata) -> f64 {
    use std::os::unix::fs::MetadataExt;
    metadata.mtime() as f64 + 1e-9 * metadata.mtime_nsec() as f64
}

/// The modification time in seconds.
#[cfg(not(unix))]
pub(in crate::native) fn modified(metadata: &Metadata) -> f64 {
    let since = metadata.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
    since.map_or(0.0, |d| d.as_secs_f64())
}
