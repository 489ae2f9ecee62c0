//! What servers offered when they were last there, kept in a folder.
//!
//! With it a server's tools are offered before the server runs. A catalogue is found by what decides what
//! a server offers and who we are to it: how it is reached, its arguments, directory, environment, address
//! and headers, and what it may ask us. These go into the name of its file as a keyed hash, and nowhere
//! else: the folder holds no secret that its key does not protect. Files are written whole or not at all,
//! so that several processes may share the folder, and so may anybody's other files: only what has the name
//! and the beginning of a catalogue is ever removed. Whatever cannot be read is as good as absent; nothing
//! here is an error to a user. All of it is blocking file access, and quick.

mod changes;
mod folder;

use std::{
    borrow::Cow,
    io,
    path::{Path, PathBuf},
    time::{Duration, Instant, SystemTime},
};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use self::folder::Folder;
use super::{
    catalog::{RawPrompt, RawResource, RawTool},
    config::{ServerConfig, TransportKind},
    delegate::{ListKind, Offered},
    session::About,
    wrap::Offer,
};

pub(super) use self::changes::changes;

/// The first line of a file, before its checksum; another number is another format.
const FORMAT: &str = "nanobot-tools catalogue 1";
/// How every format begins.
const MAGIC: &str = "nanobot-tools catalogue ";
/// A catalogue that was not confirmed for so long is not believed.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 3600);
/// A larger catalogue is not kept: a server that offers so much may be asked for it.
const MAX_BYTES: u64 = 8 << 20;
/// All of them together.
const MAX_TOTAL: u64 = 64 << 20;
/// How often a process sweeps a folder, at most.
const SWEEP: Duration = Duration::from_secs(3600);

/// A folder with the catalogues of servers. Making one touches nothing.
#[derive(Debug, Clone)]
pub struct Shelf {
    folder: Folder,
    max_age: Duration,
    max_bytes: u64,
    max_total: u64,
}

/// What is known of one catalogue without believing it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ShelfEntry {
    /// The server's name in the configuration.
    pub server: String,
    /// The server's own name and version.
    pub server_info: (String, String),
    /// How many tools it offers.
    pub tools: usize,
    /// Bytes of the file.
    pub bytes: u64,
    /// When the server last confirmed it.
    pub saved: SystemTime,
    /// The version of this package that wrote it.
    pub package: String,
}

/// What a server offered.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    pub(super) about: About,
    pub(super) offer: Offer,
    pub(super) saved: SystemTime,
}

impl Kept {
    /// Whether the lists still hold, as far as the server said for how long they do.
    pub(super) fn is_fresh(&self) -> bool {
        let age = self.saved.elapsed().unwrap_or_default();
        self.offer.fresh.values().all(|time| age < *time)
    }
}

/// The content of a file, after its first line. When it was confirmed, the file's time says.
#[derive(Serialize, Deserialize)]
struct Body {
    server: String,
    /// The version of this package that wrote it. Any is believed: what it would read differently, the
    /// server puts right when it answers.
    package: String,
    about: About,
    tools: Vec<RawTool>,
    resources: Vec<RawResource>,
    prompts: Vec<RawPrompt>,
    /// How long each list holds, in milliseconds.
    fresh: Vec<(ListKind, u64)>,
}

impl Shelf {
    /// The catalogues in this folder.
    #[must_use]
    pub const fn new(folder: PathBuf) -> Self {
        Self::with_limits(folder, MAX_AGE, MAX_BYTES, MAX_TOTAL)
    }

    /// With limits of one's own: how long a catalogue is believed (30 days), and the bytes of one (8 MiB) and
    /// of all together (64 MiB).
    #[must_use]
    pub const fn with_limits(folder: PathBuf, max_age: Duration, max_bytes: u64, max_total: u64) -> Self {
        Self { folder: Folder::new(folder), max_age, max_bytes, max_total }
    }

    /// Where catalogues are kept unless someone says otherwise: `NBTOOLS_CACHE_DIR`, or the user's folder for
    /// caches. `None` if there is no such place.
    #[must_use]
    pub fn default_folder() -> Option<PathBuf> {
        let named =
            |variable: &str| std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
        if let Some(folder) = named("NBTOOLS_CACHE_DIR") {
            return Some(folder.join("catalogues"));
        }
        let configured = named(if cfg!(windows) { "LOCALAPPDATA" } else { "XDG_CACHE_HOME" });
        let caches = configured.or_else(|| {
            let home = std::env::home_dir().filter(|home| home.is_absolute())?;
            Some(if cfg!(windows) {
                home.join("AppData").join("Local")
            } else if cfg!(target_os = "macos") {
                home.join("Library").join("Caches")
            } else {
                home.join(".cache")
            })
        })?;
        Some(caches.join("nanobot-tools").join("catalogues"))
    }

    /// What the server of this entry offered to a host that offers this, if that is known and may be
    /// believed. Nothing is written.
    pub(super) fn load(&self, server: &str, config: &ServerConfig, offered: Offered) -> Option<Kept> {
        match self.try_load(server, config, offered) {
            Ok(kept) => kept,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::debug!(server, %error, "its catalogue cannot be read");
                }
                None
            }
        }
    }

    fn try_load(&self, server: &str, config: &ServerConfig, offered: Offered) -> io::Result<Option<Kept>> {
        let name = name(&self.folder.salt()?, server, config, offered)?;
        let (text, saved) = self.folder.read(&name, self.max_bytes)?;
        let body = parse(&text).ok_or_else(|| io::Error::other("it is damaged"))?;
        // One from the future was written under another clock.
        let believed = body.server == server && saved.elapsed().is_ok_and(|age| age <= self.max_age);
        Ok(believed.then(|| Kept {
            about: body.about,
            offer: Offer {
                tools: body.tools,
                resources: body.resources,
                prompts: body.prompts,
                fresh: body.fresh.into_iter().map(|(k, ms)| (k, Duration::from_millis(ms))).collect(),
            },
            saved,
        }))
    }

    /// Keep what the server of this entry offers to a host that offers this.
    pub(super) fn store(
        &self,
        server: &str,
        config: &ServerConfig,
        offered: Offered,
        about: &About,
        offer: &Offer,
    ) {
        if let Err(error) = self.try_store(server, config, offered, about, offer) {
            tracing::debug!(server, %error, "its catalogue is not kept");
        }
    }

    fn try_store(
        &self,
        server: &str,
        config: &ServerConfig,
        offered: Offered,
        about: &About,
        offer: &Offer,
    ) -> io::Result<()> {
        let name = name(&self.folder.salt_or_new()?, server, config, offered)?;
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut fresh: Vec<_> = offer.fresh.iter().map(|(kind, time)| (*kind, millis(*time))).collect();
        // So that the same content is the same text.
        fresh.sort_by_key(|(kind, _)| kind.as_str());
        let body = Body {
            server: server.to_owned(),
            package: env!("CARGO_PKG_VERSION").to_owned(),
            about: about.clone(),
            tools: offer.tools.clone(),
            resources: offer.resources.clone(),
            prompts: offer.prompts.clone(),
            fresh,
        };
        let body = serde_json::to_string(&body)?;
        let text = format!("{FORMAT} {}\n{body}", hex(&Sha256::digest(&body)));
        if text.len() as u64 > self.max_bytes {
            return Err(io::Error::other(format!("it is larger than {} bytes", self.max_bytes)));
        }
        if !self.folder.confirm(&name, &text) {
            // What cannot be read back (it is too deep, say) would only be in the way.
            if parse(&text).is_none() {
                return Err(io::Error::other("it could not be read back"));
            }
            self.folder.write(&name, text.as_bytes())?;
        }
        if is_due(self.folder.path()) {
            self.sweep()?;
        }
        Ok(())
    }

    /// Remove what is too old or too much, oldest first, and what writers left behind; how many files.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn sweep(&self) -> io::Result<usize> {
        self.folder.sweep(self.max_age, self.max_total)
    }

    /// Remove all catalogues; how many there were.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn clear(&self) -> io::Result<usize> {
        self.folder.sweep(Duration::ZERO, 0)
    }

    /// The catalogues that there are.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn entries(&self) -> io::Result<Vec<ShelfEntry>> {
        let files = self.folder.files()?;
        let read = |file: folder::File| {
            let (text, saved) = self.folder.read(&file.name, self.max_bytes).ok()?;
            let body = parse(&text)?;
            Some(ShelfEntry {
                server: body.server,
                server_info: (body.about.name, body.about.version),
                tools: body.tools.len(),
                bytes: file.bytes,
                saved,
                package: body.package,
            })
        };
        Ok(files.into_iter().filter_map(read).collect())
    }
}

/// The name of the file for a server of this entry, and a host that offers this.
fn name(salt: &[u8], server: &str, config: &ServerConfig, offered: Offered) -> io::Result<String> {
    let mut hash = Sha256::new();
    hash.update(salt);
    let mut part = |bytes: &[u8]| {
        // With its length, so that no two entries run together.
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    };
    part(server.as_bytes());
    part(config.transport.as_str().as_bytes());
    part(config.command.as_bytes());
    part(&config.args.len().to_le_bytes());
    config.args.iter().for_each(|argument| part(argument.as_bytes()));
    if config.transport == TransportKind::Stdio {
        // What `python server.py` is depends on where it is started.
        let directory = match &config.cwd {
            Some(cwd) if cwd.is_absolute() => Cow::Borrowed(cwd),
            Some(cwd) => Cow::Owned(std::env::current_dir()?.join(cwd)),
            None => Cow::Owned(std::env::current_dir()?),
        };
        part(directory.as_os_str().as_encoded_bytes());
    }
    part(config.url.as_bytes());
    part(config.protocol.as_deref().unwrap_or_default().as_bytes());
    part(config.auth.as_deref().unwrap_or_default().as_bytes());
    for map in [&config.env, &config.headers] {
        part(&map.len().to_le_bytes());
        let mut pairs: Vec<_> = map.iter().collect();
        pairs.sort();
        for (name, value) in pairs {
            part(name.as_bytes());
            part(value.as_bytes());
        }
    }
    // Servers have tools that only some hosts are shown.
    let Offered { sampling, elicitation_form, elicitation_url, roots } = offered;
    part(&[sampling, elicitation_form, elicitation_url, roots].map(u8::from));
    let readable: String = server
        .chars()
        .take(folder::READABLE)
        .map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' })
        .collect();
    let readable = if readable.is_empty() { "_" } else { &readable };
    Ok(format!("{readable}.{}{}", &hex(&hash.finalize())[..folder::HASH], folder::EXTENSION))
}

/// Whether this process should sweep this folder now.
fn is_due(folder: &Path) -> bool {
    static SWEPT: Mutex<Vec<(PathBuf, Instant)>> = Mutex::new(Vec::new());
    let mut swept = SWEPT.lock();
    swept.retain(|(_, at)| at.elapsed() < SWEEP);
    if swept.iter().any(|(known, _)| known == folder) {
        return false;
    }
    swept.push((folder.to_owned(), Instant::now()));
    true
}

fn parse(text: &str) -> Option<Body> {
    let (head, body) = text.split_once('\n')?;
    let sum = head.strip_prefix(FORMAT)?.trim();
    if sum != hex(&Sha256::digest(body)) {
        return None;
    }
    serde_json::from_str(body).ok()
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
