//! The clean-up of a store.
//!
//! Counts what the store keeps and removes what is too old, then the oldest while there is too
//! much. Only files that prove by name and content that the store made them are removed: what a
//! user put into the folder, changed, or what the reference stored there stays. One sweep looks
//! at a bounded number of files and hashes a bounded number of bytes.

use std::{
    ffi::OsStr,
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use super::{
    Limits, Origin,
    file::{self, DIGITS, PARTIAL},
};

/// Directory entries that one sweep looks at.
const MAX_SEEN: usize = 50_000;
/// Files that one sweep removes.
const MAX_REMOVED: usize = 500;
/// Bytes that one sweep reads to prove that files are the store's.
const MAX_READ: u64 = 256 << 20;
/// Items this young do not make room for others: someone is about to use them.
const SPARED: Duration = Duration::from_secs(3600);
/// A file that is still being written after this long never will be.
const PARTIAL_AGE: Duration = Duration::from_secs(24 * 3600);
/// Longest record of an image that is read.
const MAX_RECORD: u64 = 4 << 20;

/// What a sweep found.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Swept {
    /// Bytes that are left.
    pub(super) bytes: u64,
    pub(super) removed: usize,
}

struct Item {
    path: PathBuf,
    modified: SystemTime,
    length: u64,
    partial: bool,
}

/// Clean up so that `wanted` bytes have room, as far as the bounds allow.
pub(super) fn sweep(root: &Path, limits: Limits, wanted: u64) -> Swept {
    let mut items = list(root);
    items.sort_unstable_by_key(|item| item.modified);
    let now = SystemTime::now();
    let mut swept = Swept { bytes: items.iter().map(|item| item.length).sum(), removed: 0 };
    let mut read = 0_u64;
    for item in &items {
        if swept.removed >= MAX_REMOVED || read > MAX_READ {
            break;
        }
        let age = now.duration_since(item.modified).unwrap_or_default();
        let old = limits.age.is_some_and(|limit| age > limit);
        let much = age > SPARED && swept.bytes.saturating_add(wanted) > limits.total;
        let doomed = if item.partial { age > PARTIAL_AGE } else { old || much };
        if !doomed {
            continue;
        }
        read = read.saturating_add(item.length);
        // Another process may have been faster.
        if item.partial && fs::remove_file(&item.path).is_ok() || !item.partial && remove(&item.path).is_ok()
        {
            swept.removed += 1;
            swept.bytes = swept.bytes.saturating_sub(item.length);
        }
    }
    if swept.removed > 0 {
        remove_empty_days(root, &items);
    }
    swept
}

/// The files that look like the store's.
fn list(root: &Path) -> Vec<Item> {
    let mut items = Vec::new();
    let mut seen = 0;
    for day in entries(root).filter(|day| is_day(&day.file_name())) {
        // `file_type` does not follow links.
        if !day.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        for entry in entries(&day.path()) {
            seen += 1;
            if seen > MAX_SEEN {
                return items;
            }
            let name = entry.file_name();
            let partial = name.to_str().is_some_and(|name| name.starts_with(PARTIAL));
            if !partial && !looks_ours(&name) {
                continue;
            }
            let Ok(metadata) = entry.metadata() else { continue };
            if let (true, Ok(modified)) = (metadata.is_file(), metadata.modified()) {
                items.push(Item { path: entry.path(), modified, length: metadata.len(), partial });
            }
        }
    }
    items
}

fn entries(path: &Path) -> impl Iterator<Item = fs::DirEntry> {
    fs::read_dir(path).into_iter().flatten().filter_map(Result::ok)
}

/// `2026-12-01`
fn is_day(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| {
        name.len() == 10
            && name.bytes().enumerate().all(|(at, byte)| match at {
                4 | 7 => byte == b'-',
                _ => byte.is_ascii_digit(),
            })
    })
}

/// `img_0123456789abcdef.png`, but no record: that goes with its image.
fn looks_ours(name: &OsStr) -> bool {
    let parts = name.to_str().and_then(|name| name.split_once('.'));
    let Some((prefix, digits)) = parts.and_then(|(stem, _)| stem.split_once('_')) else { return false };
    ["img", "audio", "blob", "text"].contains(&prefix)
        && digits.len() == DIGITS
        && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
        && !(prefix == "img" && parts.is_some_and(|(_, extension)| extension == "json"))
}

/// Remove a file that proves to be the store's, and its record.
fn remove(path: &Path) -> io::Result<()> {
    let foreign = || io::Error::other("not made by the store");
    let stem = path.file_stem().and_then(OsStr::to_str).ok_or_else(foreign)?;
    let mut content = file::open(path)?;
    if !stem.starts_with("img_") {
        return if file::is_ours(&mut content, stem, None)? { fs::remove_file(path) } else { Err(foreign()) };
    }
    let record = path.with_extension("json");
    let image = file::read_record(&record, MAX_RECORD)?;
    let origin = Origin { prompt: &image.prompt, model: &image.model, provider: &image.provider };
    if image.id != stem || !file::is_ours(&mut content, stem, Some(origin))? {
        return Err(foreign());
    }
    fs::remove_file(path)?;
    fs::remove_file(record)
}

/// Folders that a sweep emptied; `remove_dir` refuses the others, and the last one is today's.
fn remove_empty_days(root: &Path, items: &[Item]) {
    let mut days: Vec<_> = items.iter().filter_map(|item| item.path.parent()).collect();
    days.sort_unstable();
    days.dedup();
    let today = root.join(chrono::Local::now().format("%Y-%m-%d").to_string());
    for day in days.into_iter().filter(|day| *day != today) {
        let _ = fs::remove_dir(day);
    }
}
