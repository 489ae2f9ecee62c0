//! Files for what does not belong into a model's context: images, audio, blobs, very long texts.
//!
//! A [`Store`] owns a folder with one folder a day, as the reference lays it out: an image is
//! `img_<hash>.png` with its particulars in `img_<hash>.json` beside it. Names come from the
//! content, so that the same thing is kept once and nothing is ever overwritten. Folders and files
//! are the user's alone, links are not followed, and several processes may share a folder. Limits
//! hold for one item, for all together, and for age (`sweep`).
//!
//! Boundaries: what a model is told of a file is `render`'s business. All of this blocks; nothing
//! here is a failure of the call that brought the data.

mod decode;
mod file;
mod kind;
mod sweep;
#[cfg(test)]
mod tests;

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use chrono::Local;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub(super) use self::{decode::Encoded, kind::sniff};
use self::{file::Kept, sweep::Swept};

/// How much is kept, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one item; what is larger is not stored.
    pub item: u64,
    /// Bytes of all items together; the oldest ones make room for new ones.
    pub total: u64,
    /// Age from which items are removed; `None` keeps them.
    pub age: Option<Duration>,
}

impl Default for Limits {
    /// 64 MiB an item, 1 GiB together, 30 days.
    fn default() -> Self {
        Self { item: 64 << 20, total: 1 << 30, age: Some(Duration::from_secs(30 * 24 * 3600)) }
    }
}

/// Why something is not stored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refused {
    #[error("invalid base64")]
    NotBase64,
    #[error("unsupported or unrecognized image data")]
    NoImage,
    #[error("{length} bytes are more than the {limit} that one item may have")]
    TooLarge { length: u64, limit: u64 },
    #[error("the folder is full")]
    Full,
    #[error("too many files in one result")]
    TooMany,
    #[error("{0}")]
    Io(String),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        Self::Io(error.to_string())
    }
}

/// What a stored thing is; the first part of its file's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Audio,
    Blob,
    Text,
}

impl Kind {
    const fn prefix(self) -> &'static str {
        match self {
            Self::Audio => "audio",
            Self::Blob => "blob",
            Self::Text => "text",
        }
    }
}

/// A stored image with what the reference records of it, in the reference's order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Image {
    pub(super) id: String,
    pub(super) path: String,
    pub(super) mime: String,
    pub(super) prompt: String,
    pub(super) model: String,
    pub(super) provider: String,
    pub(super) source_images: Vec<String>,
    pub(super) created_at: String,
}

/// What is known of the call that an image came from.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) prompt: &'a str,
    pub(super) model: &'a str,
    pub(super) provider: &'a str,
}

/// A folder for artifacts.
#[derive(Debug)]
pub struct Store {
    root: PathBuf,
    limits: Limits,
    usage: Mutex<Usage>,
    sweeping: AtomicBool,
}

/// What the folder holds, as far as this process knows.
#[derive(Debug, Default)]
struct Usage {
    bytes: u64,
    swept: Option<Instant>,
    /// The last sweep left no room.
    futile: bool,
}

/// How long a count of the folder is believed; other processes store as well.
const SWEEP_EVERY: Duration = Duration::from_secs(600);
/// How often a folder is swept that stays full, for it holds what is not the store's to remove.
const SWEEP_FULL_EVERY: Duration = Duration::from_secs(10);

impl Store {
    /// A store in `root`, which is created at the first use.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self::with_limits(root, Limits::default())
    }

    /// A store with limits of its own.
    pub fn with_limits(root: impl Into<PathBuf>, limits: Limits) -> Self {
        Self { root: root.into(), limits, usage: Mutex::default(), sweeping: AtomicBool::new(false) }
    }

    /// Where artifacts go when no folder is configured: the reference's `~/.nanobot/media/generated`
    /// where `~/.nanobot` exists, else the user's folder for data of programs.
    #[must_use]
    pub fn default_root() -> Option<PathBuf> {
        let home = std::env::home_dir().filter(|home| home.is_absolute())?;
        let nanobot = home.join(".nanobot");
        if nanobot.is_dir() {
            return Some(nanobot.join("media").join("generated"));
        }
        let configured = if cfg!(windows) { "LOCALAPPDATA" } else { "XDG_DATA_HOME" };
        let configured = std::env::var_os(configured).map(PathBuf::from).filter(|path| path.is_absolute());
        let data = configured.unwrap_or_else(|| {
            if cfg!(windows) {
                home.join("AppData").join("Local")
            } else if cfg!(target_os = "macos") {
                home.join("Library").join("Application Support")
            } else {
                home.join(".local").join("share")
            }
        });
        Some(data.join("nanobot-tools").join("artifacts"))
    }

    /// The folder.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The limits.
    #[must_use]
    pub const fn limits(&self) -> Limits {
        self.limits
    }

    /// Remove what is too old, and the oldest if there is too much; at most some hundreds of files
    /// at once. Runs by itself as things are stored.
    pub fn sweep(&self) {
        let bytes = self.swept(0);
        *self.usage.lock() = Usage { bytes, swept: Some(Instant::now()), futile: false };
    }

    /// Store an image; its type is told by its bytes.
    pub(super) fn put_image(&self, bytes: &[u8], origin: Origin<'_>) -> Result<Image, Refused> {
        let mime = sniff(bytes).filter(|mime| mime.starts_with("image/")).ok_or(Refused::NoImage)?;
        let extension = kind::extension(bytes, None);
        let (day, now) = self.ready(bytes.len())?;
        let kept = file::keep(&day, bytes, extension, |salt| file::image_id(bytes, origin, salt))?;
        let image = Image {
            path: utf8(&kept.path)?.to_owned(),
            mime: mime.to_owned(),
            prompt: origin.prompt.to_owned(),
            model: origin.model.to_owned(),
            provider: origin.provider.to_owned(),
            source_images: Vec::new(),
            created_at: now,
            id: kept.stem.clone(),
        };
        let recorded = file::record(&day, &image);
        self.count(&kept, bytes.len());
        match recorded {
            Ok(image) => Ok(image),
            Err(error) => {
                if kept.fresh {
                    // Without its record it would never be recognised as ours.
                    let _ = fs::remove_file(&kept.path);
                }
                Err(error.into())
            }
        }
    }

    /// Store anything else; `called` is the type that the server gives it.
    pub(super) fn put(&self, kind: Kind, bytes: &[u8], called: Option<&str>) -> Result<String, Refused> {
        let extension = if kind == Kind::Text { "txt" } else { kind::extension(bytes, called) };
        let (day, _) = self.ready(bytes.len())?;
        let kept = file::keep(&day, bytes, extension, |salt| file::id(kind.prefix(), bytes, salt))?;
        self.count(&kept, bytes.len());
        Ok(utf8(&kept.path)?.to_owned())
    }

    /// Room for `length` bytes, today's folder, and the time.
    fn ready(&self, length: usize) -> Result<(PathBuf, String), Refused> {
        let length = length as u64;
        if length > self.limits.item {
            return Err(Refused::TooLarge { length, limit: self.limits.item });
        }
        self.make_room(length)?;
        let now = Local::now();
        let day = file::day(&self.root, &now.format("%Y-%m-%d").to_string())?;
        utf8(&day)?;
        // As Python's `isoformat` writes it.
        Ok((day, now.format("%Y-%m-%dT%H:%M:%S%.6f%:z").to_string()))
    }

    fn make_room(&self, length: u64) -> Result<(), Refused> {
        if length > self.limits.total {
            return Err(Refused::Full);
        }
        let full = |usage: &Usage| usage.bytes.saturating_add(length) > self.limits.total;
        let (due, is_full) = {
            let usage = self.usage.lock();
            let every = if full(&usage) { SWEEP_FULL_EVERY } else { SWEEP_EVERY };
            let stale = usage.swept.is_none_or(|at| at.elapsed() > every);
            (stale || full(&usage) && !usage.futile, full(&usage))
        };
        // While another thread sweeps, what is known will do, unless it is that there is no room; two
        // sweeps at once do no harm, as those of two processes do none.
        if due && (!self.sweeping.swap(true, Ordering::AcqRel) || is_full) {
            let bytes = self.swept(length);
            self.sweeping.store(false, Ordering::Release);
            let mut usage = self.usage.lock();
            *usage = Usage { bytes, swept: Some(Instant::now()), futile: false };
            usage.futile = full(&usage);
        }
        let is_full = full(&self.usage.lock());
        if is_full { Err(Refused::Full) } else { Ok(()) }
    }

    fn swept(&self, wanted: u64) -> u64 {
        let Swept { bytes, removed } = sweep::sweep(&self.root, self.limits, wanted);
        if removed > 0 {
            tracing::debug!(removed, bytes, "old artifacts were removed");
        }
        bytes
    }

    fn count(&self, kept: &Kept, length: usize) {
        if kept.fresh {
            let mut usage = self.usage.lock();
            usage.bytes = usage.bytes.saturating_add(length as u64);
        }
    }
}

/// A path that is not Unicode cannot be told to a model.
fn utf8(path: &Path) -> Result<&str, Refused> {
    path.to_str().ok_or_else(|| Refused::Io("the folder's name is not Unicode".to_owned()))
}
