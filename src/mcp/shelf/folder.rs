//! The folder itself: private, shared by processes, and never followed elsewhere.
//!
//! It may be one that a user chose, with files of the user's in it. So a file counts as ours only by its
//! whole name, and a catalogue by its beginning as well; nothing else is read, changed or removed.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

use super::MAGIC;

/// The key of the names, which no other program needs to know.
const SALT: &str = ".nanobot-tools-salt";
const SALT_LENGTH: usize = 32;
/// What is being written: this and some random characters. Such a file that is older than [`LEFT`] has lost
/// its writer.
const PARTIAL: &str = ".nanobot-tools-partial-";
const RANDOM: usize = 12;
const LEFT: Duration = Duration::from_secs(3600);
/// The name of a catalogue: at most so many characters of the server's name, a dot, so many of the hash...
pub(super) const READABLE: usize = 40;
pub(super) const HASH: usize = 32;
/// ... and this.
pub(super) const EXTENSION: &str = ".catalogue.json";

#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

/// A catalogue.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) bytes: u64,
    pub(super) modified: SystemTime,
}

impl Folder {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }

    /// The whole of a file, unless it is larger than that, and its time.
    pub(super) fn read(&self, name: &str, most: u64) -> io::Result<(String, SystemTime)> {
        self.check()?;
        let file = open(OpenOptions::new().read(true), &self.0.join(name))?;
        let kind = file.metadata()?;
        if !kind.is_file() || kind.len() > most {
            return Err(io::Error::other("it is no file, or too large"));
        }
        let mut text = String::with_capacity(usize::try_from(kind.len()).unwrap_or(0));
        file.take(most).read_to_string(&mut text)?;
        Ok((text, kind.modified()?))
    }

    /// Put a file in place, whole.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.make()?;
        let mut file = self.partial()?;
        file.write_all(content)?;
        // By this clock, not by that of a file server.
        file.as_file().set_modified(SystemTime::now())?;
        file.persist(self.0.join(name))?;
        Ok(())
    }

    /// Set a file's time to now if this is its content; whether that was done.
    pub(super) fn confirm(&self, name: &str, content: &str) -> bool {
        let confirm = || {
            self.check()?;
            // One and the same file is compared and touched, whatever others put in its place meanwhile.
            let file = open(OpenOptions::new().read(true).write(true), &self.0.join(name))?;
            let kind = file.metadata()?;
            if !kind.is_file() || kind.len() != content.len() as u64 {
                return Ok(false);
            }
            let mut former = Vec::with_capacity(content.len());
            (&file).take(kind.len()).read_to_end(&mut former)?;
            let same = former == content.as_bytes();
            if same {
                file.set_modified(SystemTime::now())?;
            }
            Ok::<_, io::Error>(same)
        };
        // Whatever is wrong with it, the file is written anew then.
        confirm().unwrap_or(false)
    }

    /// A new file under a name of its own. Its mode is private by itself, and it is removed again if
    /// anything fails.
    fn partial(&self) -> io::Result<tempfile::NamedTempFile> {
        tempfile::Builder::new().prefix(PARTIAL).rand_bytes(RANDOM).tempfile_in(&self.0)
    }

    /// The key of the names.
    ///
    /// # Errors
    /// `NotFound` if there is none, and `InvalidData` if what lies there is none: it may be somebody's, so it
    /// stays.
    pub(super) fn salt(&self) -> io::Result<Vec<u8>> {
        self.check()?;
        let file = open(OpenOptions::new().read(true), &self.0.join(SALT))?;
        let mut salt = Vec::with_capacity(SALT_LENGTH);
        if file.metadata()?.is_file() {
            file.take(SALT_LENGTH as u64 + 1).read_to_end(&mut salt)?;
        }
        if salt.len() != SALT_LENGTH {
            let why = format!("{SALT} is not the file that it should be");
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
        Ok(salt)
    }

    /// The key of the names; made if there is none.
    pub(super) fn salt_or_new(&self) -> io::Result<Vec<u8>> {
        match self.salt() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            salt => return salt,
        }
        self.make()?;
        let mut salt = [0; SALT_LENGTH];
        getrandom::fill(&mut salt).map_err(|error| io::Error::other(error.to_string()))?;
        let mut file = self.partial()?;
        file.write_all(&salt)?;
        // A loss of power must not leave an empty one, which nobody would remove.
        file.as_file().sync_all()?;
        match file.persist_noclobber(self.0.join(SALT)) {
            Ok(_) => Ok(salt.to_vec()),
            // Another process was quicker, or it cannot be made at all.
            Err(failed) => self.salt().map_err(|_| failed.error),
        }
    }

    /// The catalogues, and nothing else that may lie there.
    pub(super) fn files(&self) -> io::Result<Vec<File>> {
        self.check()?;
        let mut files = self.list(is_catalogue)?;
        files.retain(|file| self.begins(&file.name));
        Ok(files)
    }

    /// Whether a file begins as catalogues do, in whatever format.
    fn begins(&self, name: &str) -> bool {
        let mut head = [0; MAGIC.len()];
        let read = open(OpenOptions::new().read(true), &self.0.join(name))
            .and_then(|mut file| file.read_exact(&mut head));
        read.is_ok() && head == *MAGIC.as_bytes()
    }

    fn list(&self, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<File>> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let Ok(entry) = entry else { continue };
            let Ok(name) = entry.file_name().into_string() else { continue };
            // Of a symbolic link this is the link itself; what vanishes meanwhile is of no interest.
            let Ok(metadata) = entry.metadata() else { continue };
            if wanted(&name) && metadata.is_file() {
                let modified = metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                files.push(File { name, bytes: metadata.len(), modified });
            }
        }
        Ok(files)
    }

    /// Remove what is older than `max_age` and, oldest first, what is more than `max_total` bytes; how many.
    pub(super) fn sweep(&self, max_age: Duration, max_total: u64) -> io::Result<usize> {
        let old = |file: &File, age: Duration| match file.modified.elapsed() {
            Ok(is) => is >= age,
            // Nobody believes what was written under another clock.
            Err(ahead) => ahead.duration() >= LEFT,
        };
        let mut files = self.files()?;
        let mut left = self.list(is_partial)?;
        left.retain(|file| old(file, LEFT));
        self.remove(&left);
        files.sort_by_key(|file| std::cmp::Reverse(file.modified));
        let mut kept = 0;
        files.retain(|file| {
            kept += file.bytes;
            old(file, max_age) || kept > max_total
        });
        Ok(self.remove(&files))
    }

    /// Remove each that can be removed; how many.
    pub(super) fn remove(&self, files: &[File]) -> usize {
        let removed = files.iter().filter(|file| match fs::remove_file(self.0.join(&file.name)) {
            Ok(()) => true,
            Err(error) => {
                // Otherwise somebody else was quicker.
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::debug!(file = file.name, %error, "an old catalogue stays");
                }
                false
            }
        });
        removed.count()
    }

    /// Make the folder, for its owner alone.
    fn make(&self) -> io::Result<()> {
        let mut builder = fs::DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(&self.0)?;
        self.check()
    }

    /// Nobody else may be able to put anything there: what lies there is offered to a model.
    #[cfg(unix)]
    fn check(&self) -> io::Result<()> {
        use std::os::unix::fs::MetadataExt;

        static TOLD: AtomicBool = AtomicBool::new(false);
        let metadata = match fs::metadata(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            metadata => metadata?,
        };
        let why = if !metadata.is_dir() {
            "it is no folder"
        } else if metadata.uid() != nix::unistd::geteuid().as_raw() {
            "it belongs to somebody else"
        } else if metadata.mode() & 0o022 != 0 {
            "others may write there"
        } else {
            return Ok(());
        };
        if !TOLD.swap(true, Ordering::Relaxed) {
            tracing::warn!(folder = %self.0.display(), "what servers offer is not kept there: {why}");
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
    }

    #[cfg(not(unix))]
    #[expect(clippy::unnecessary_wraps, clippy::unused_self, reason = "as on Unix")]
    fn check(&self) -> io::Result<()> {
        Ok(())
    }
}

fn is_catalogue(name: &str) -> bool {
    let parts = name.strip_suffix(EXTENSION).and_then(|name| name.split_once('.'));
    parts.is_some_and(|(readable, hash)| {
        (1..=READABLE).contains(&readable.len())
            && readable.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
            && hash.len() == HASH
            && hash.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
    })
}

fn is_partial(name: &str) -> bool {
    name.strip_prefix(PARTIAL)
        .is_some_and(|random| random.len() == RANDOM && random.bytes().all(|b| b.is_ascii_alphanumeric()))
}

/// Open a file that lies there, not one that a link leads to.
fn open(options: &mut OpenOptions, path: &Path) -> io::Result<fs::File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options.open(path)
}
