//! The folder itself: private, shared by processes, and never followed elsewhere.

use std::{
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    path::PathBuf,
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, SystemTime},
};

/// The key of the names, which no other program needs to know.
const SALT: &str = "key";
/// What is being written. Such a file that is older than [`LEFT`] has lost its writer.
const PARTIAL: &str = ".partial-";
const LEFT: Duration = Duration::from_secs(3600);
const EXTENSION: &str = ".json";

#[derive(Debug, Clone)]
pub(super) struct Folder(PathBuf);

/// A catalogue.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) bytes: u64,
    modified: SystemTime,
}

impl Folder {
    pub(super) const fn new(path: PathBuf) -> Self {
        Self(path)
    }

    /// The whole of a file, unless it is larger than that.
    pub(super) fn read(&self, name: &str, most: u64) -> io::Result<String> {
        self.check()?;
        let file = open(OpenOptions::new().read(true), &self.0.join(name))?;
        let kind = file.metadata()?;
        if !kind.is_file() || kind.len() > most {
            return Err(io::Error::other("it is no file, or too large"));
        }
        let mut text = String::with_capacity(usize::try_from(kind.len()).unwrap_or(0));
        file.take(most).read_to_string(&mut text)?;
        Ok(text)
    }

    /// Put a file in place, whole.
    pub(super) fn write(&self, name: &str, content: &[u8]) -> io::Result<()> {
        self.make()?;
        // Its mode is private by itself, and it is removed again if anything fails.
        let mut file = tempfile::Builder::new().prefix(PARTIAL).tempfile_in(&self.0)?;
        file.write_all(content)?;
        file.persist(self.0.join(name))?;
        Ok(())
    }

    /// The key of the names; made if there is none.
    pub(super) fn salt(&self) -> io::Result<Vec<u8>> {
        const LENGTH: usize = 32;
        let read = || {
            let mut salt = Vec::with_capacity(LENGTH);
            open(OpenOptions::new().read(true), &self.0.join(SALT))?.take(64).read_to_end(&mut salt)?;
            Ok::<_, io::Error>(salt)
        };
        self.check()?;
        match read() {
            Ok(salt) if salt.len() == LENGTH => return Ok(salt),
            // Nobody else can mend it, and what it was good for is only a cache.
            Ok(_) => fs::remove_file(self.0.join(SALT))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        self.make()?;
        let mut salt = [0; LENGTH];
        getrandom::fill(&mut salt).map_err(|error| io::Error::other(error.to_string()))?;
        let mut file = tempfile::Builder::new().prefix(PARTIAL).tempfile_in(&self.0)?;
        file.write_all(&salt)?;
        match file.persist_noclobber(self.0.join(SALT)) {
            Ok(_) => Ok(salt.to_vec()),
            // Another process was quicker.
            Err(_) => read(),
        }
    }

    /// The catalogues, and nothing else that may lie there.
    pub(super) fn files(&self) -> io::Result<Vec<File>> {
        self.check()?;
        self.list(|name| name.ends_with(EXTENSION) && !name.starts_with('.'))
    }

    fn list(&self, wanted: impl Fn(&str) -> bool) -> io::Result<Vec<File>> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for entry in entries {
            let entry = entry?;
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

    /// Remove what is older than `max_age` and, oldest first, what is more than `max_total` bytes.
    pub(super) fn sweep(&self, max_age: Duration, max_total: u64) -> io::Result<usize> {
        let old = |file: &File, age: Duration| file.modified.elapsed().is_ok_and(|is| is >= age);
        for file in self.list(|name| name.starts_with(PARTIAL))? {
            if old(&file, LEFT) {
                self.remove(&file.name)?;
            }
        }
        let mut files = self.files()?;
        files.sort_by_key(|file| std::cmp::Reverse(file.modified));
        let (mut kept, mut removed) = (0, 0);
        for file in files {
            kept += file.bytes;
            if old(&file, max_age) || kept > max_total {
                self.remove(&file.name)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.0.join(name)) {
            // Somebody else was quicker.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        }
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

/// Open a file that lies there, not one that a link leads to.
fn open(options: &mut OpenOptions, path: &std::path::Path) -> io::Result<fs::File> {
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::custom_flags(options, libc::O_NOFOLLOW | libc::O_NONBLOCK);
    options.open(path)
}
