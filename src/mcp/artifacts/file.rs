//! Files of a store: how they are named, written and recognised.
//!
//! A name holds a hash of what the file was made from, so that a file proves by itself that the
//! store made it and that nobody changed it since. Files appear whole under their names or not at
//! all; what stands there already is never touched.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::SystemTime,
};

use sha2::{Digest, Sha256};

use super::{Image, Origin};

/// Prefix of files that are being written.
pub(super) const PARTIAL: &str = ".nanobot-tools-";
/// Names that are tried when others hold something else.
const TRIES: u8 = 8;
/// Hexadecimal digits of a hash in a name. The reference's names have 12 and are random.
pub(super) const DIGITS: usize = 16;
const CHUNK: usize = 64 << 10;

/// A file that is there now.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) path: PathBuf,
    pub(super) stem: String,
    /// Whether it was not there before.
    pub(super) fresh: bool,
}

/// The name, without extension, of something whose content alone counts.
pub(super) fn id(prefix: &str, bytes: &[u8], salt: u8) -> String {
    let mut hash = Sha256::new();
    hash.update(bytes);
    finish(prefix, hash, salt)
}

/// The name of an image: a different prompt makes it a different artifact.
pub(super) fn image_id(bytes: &[u8], origin: Origin<'_>, salt: u8) -> String {
    let mut hash = Sha256::new();
    hash.update(bytes);
    finish_image(hash, origin, salt)
}

fn finish(prefix: &str, mut hash: Sha256, salt: u8) -> String {
    if salt > 0 {
        hash.update([salt]);
    }
    let digest = hash.finalize();
    let mut out = String::with_capacity(prefix.len() + 1 + DIGITS);
    out.push_str(prefix);
    out.push('_');
    for byte in &digest[..DIGITS / 2] {
        out.push(char::from_digit(u32::from(byte >> 4), 16).unwrap_or('0'));
        out.push(char::from_digit(u32::from(byte & 15), 16).unwrap_or('0'));
    }
    out
}

fn finish_image(mut hash: Sha256, origin: Origin<'_>, salt: u8) -> String {
    for part in [origin.prompt, origin.model, origin.provider] {
        hash.update(b"\0");
        hash.update(part);
    }
    finish("img", hash, salt)
}

/// Whether a file's content is what its name was made from; reads all of it.
pub(super) fn is_ours(file: &mut File, stem: &str, origin: Option<Origin<'_>>) -> io::Result<bool> {
    let Some((prefix, _)) = stem.rsplit_once('_') else { return Ok(false) };
    let mut hash = Sha256::new();
    let mut buffer = vec![0; CHUNK];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => hash.update(&buffer[..read]),
        }
    }
    Ok((0..TRIES).any(|salt| match origin {
        Some(origin) => finish_image(hash.clone(), origin, salt) == stem,
        None => finish(prefix, hash.clone(), salt) == stem,
    }))
}

/// Today's folder, made if need be; a link in its place is refused.
pub(super) fn day(root: &Path, day: &str) -> io::Result<PathBuf> {
    create_private(root)?;
    // The path that a model passes on must not depend on the working directory.
    let root = if cfg!(windows) { std::path::absolute(root)? } else { root.canonicalize()? };
    let day = root.join(day);
    create_private(&day)?;
    if fs::symlink_metadata(&day)?.is_dir() {
        Ok(day)
    } else {
        Err(io::Error::new(io::ErrorKind::NotADirectory, "the folder of the day is a link"))
    }
}

fn create_private(path: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(path)
}

/// Keep `bytes` in a file of that day. The same content is kept once; other content under the
/// same name stays, and another name is taken.
pub(super) fn keep(
    day: &Path,
    bytes: &[u8],
    extension: &str,
    stem: impl Fn(u8) -> String,
) -> io::Result<Kept> {
    for salt in 0..TRIES {
        let stem = stem(salt);
        let path = day.join(format!("{stem}.{extension}"));
        let fresh = match fs::symlink_metadata(&path) {
            Ok(_) => false,
            Err(_) => create(day, &path, bytes)?,
        };
        if fresh || holds(&path, bytes).unwrap_or(false) {
            return Ok(Kept { path, stem, fresh });
        }
    }
    Err(io::Error::new(io::ErrorKind::AlreadyExists, "all names are taken"))
}

/// Write the record of an image beside it, or find the one that is there.
pub(super) fn record(day: &Path, image: &Image) -> io::Result<Image> {
    let path = day.join(format!("{}.json", image.id));
    let json = serde_json::to_vec_pretty(image)?;
    if create(day, &path, &json)? {
        return Ok(image.clone());
    }
    match read_record(&path, json.len() as u64 + 1024) {
        Ok(found)
            if Image { created_at: String::new(), ..found.clone() }
                == Image { created_at: String::new(), ..image.clone() } =>
        {
            Ok(found)
        }
        Ok(_) => Err(io::Error::new(io::ErrorKind::AlreadyExists, "another record has its name")),
        Err(error) => Err(error),
    }
}

/// The record of an image, if it is one.
pub(super) fn read_record(path: &Path, limit: u64) -> io::Result<Image> {
    let mut json = Vec::new();
    open(path)?.take(limit).read_to_end(&mut json)?;
    Ok(serde_json::from_slice(&json)?)
}

/// Write a new file; `false` if the name is taken.
fn create(day: &Path, path: &Path, bytes: &[u8]) -> io::Result<bool> {
    // Mode 0600, and gone again should anything fail.
    let mut partial = tempfile::Builder::new().prefix(PARTIAL).suffix(".tmp").tempfile_in(day)?;
    partial.write_all(bytes)?;
    match partial.persist_noclobber(path) {
        Ok(_) => Ok(true),
        Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(error.error),
    }
}

/// Whether a file holds exactly these bytes; if so it counts as made now.
fn holds(path: &Path, bytes: &[u8]) -> io::Result<bool> {
    let mut file = open(path)?;
    if file.metadata()?.len() != bytes.len() as u64 {
        return Ok(false);
    }
    let mut rest = bytes;
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = file.read(&mut buffer)?;
        match rest.get(..read) {
            Some(same) if same == &buffer[..read] => rest = &rest[read..],
            _ => return Ok(false),
        }
        if read == 0 {
            break;
        }
    }
    if rest.is_empty() {
        // Only its age is at stake.
        let _ = file.set_modified(SystemTime::now());
    }
    Ok(rest.is_empty())
}

/// Open a regular file for reading; links and devices are refused.
pub(super) fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
    }
    let not_regular = || io::Error::new(io::ErrorKind::InvalidInput, "not a regular file");
    if !fs::symlink_metadata(path)?.is_file() {
        return Err(not_regular());
    }
    let file = options.open(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular()) }
}
