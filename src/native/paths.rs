//! Paths as Python's `pathlib` understands them, since the refusal texts show its view.
//!
//! `~` is expanded, `.` and doubled slashes vanish, symbolic links are followed as far as the path
//! exists, and operating system errors read `[Errno 2] No such file or directory: '/x'`.

use std::{
    ffi::{OsStr, OsString},
    fs, io,
    path::{Component, Path, PathBuf},
};

use crate::validate::quote;

/// Links followed in one path before it counts as a loop.
const MAX_LINKS: usize = 255;

/// Why a path cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PathError {
    /// The file system or the workspace policy forbids it.
    Permission(String),
    /// Anything else.
    Other(String),
}

impl PathError {
    /// The error of a system call on `path`.
    pub(super) fn os(error: &io::Error, path: &Path) -> Self {
        let text = os_text(error, path);
        if error.kind() == io::ErrorKind::PermissionDenied {
            Self::Permission(text)
        } else {
            Self::Other(text)
        }
    }

    /// The text of a result whose other errors begin with `prefix`.
    pub(super) fn result_text(&self, prefix: &str) -> String {
        match self {
            Self::Permission(text) => format!("Error: {text}"),
            Self::Other(text) => format!("{prefix}: {text}"),
        }
    }
}

fn os_text(error: &io::Error, path: &Path) -> String {
    let shown = error.to_string();
    match error.raw_os_error() {
        Some(code) => {
            let suffix = format!(" (os error {code})");
            let words = shown.strip_suffix(&suffix).unwrap_or(&shown);
            format!("[Errno {code}] {words}: {}", repr(&path.to_string_lossy()))
        }
        None => shown,
    }
}

/// `repr()` of a Python string.
pub(super) fn repr(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    quote(text, &mut out);
    out
}

/// The path without `.` components and doubled slashes.
pub(super) fn tidy(path: &Path) -> PathBuf {
    path.components().filter(|c| !matches!(c, Component::CurDir)).collect()
}

/// The text of a path; the empty path is `.`.
pub(super) fn shown(path: &Path) -> String {
    if path.as_os_str().is_empty() { ".".to_owned() } else { path.to_string_lossy().into_owned() }
}

/// Replace a leading `~` or `~user`.
///
/// # Errors
/// When there is no such home directory.
pub(super) fn expand_user(path: &Path) -> Result<PathBuf, PathError> {
    let tidied = tidy(path);
    let mut parts = tidied.components();
    let Some(Component::Normal(first)) = parts.next() else { return Ok(tidied) };
    let Some(user) = first.to_str().and_then(|s| s.strip_prefix('~')) else { return Ok(tidied) };
    let home = if user.is_empty() { std::env::home_dir() } else { home_of(user) };
    match home {
        Some(home) if !home.as_os_str().is_empty() => Ok(tidy(&home).join(parts.as_path())),
        _ => Err(PathError::Other("Could not determine home directory.".into())),
    }
}

fn home_of(user: &str) -> Option<PathBuf> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(user)).then(|| fields.nth(4).map(PathBuf::from)).flatten()
    })
}

fn absolute(path: &Path) -> Result<PathBuf, PathError> {
    if path.is_absolute() {
        return Ok(path.to_owned());
    }
    let here = std::env::current_dir().map_err(|e| PathError::os(&e, path))?;
    Ok(here.join(path))
}

/// The absolute path with `..` taken lexically; links are not followed.
pub(super) fn lexical(path: &Path) -> Result<PathBuf, PathError> {
    let mut out = PathBuf::new();
    for part in absolute(path)?.components() {
        match part {
            Component::ParentDir => {
                out.pop();
            }
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    Ok(out)
}

/// The real path, as far as it exists; what does not exist stays as it is.
///
/// # Errors
/// For a loop of links, and for a path that no system call takes.
pub(super) fn resolve(path: &Path) -> Result<PathBuf, PathError> {
    if path.as_os_str().as_encoded_bytes().contains(&0) {
        return Err(PathError::Other("embedded null byte".into()));
    }
    let start = absolute(path)?;
    let mut todo: Vec<OsString> = reversed(&start).map(OsStr::to_owned).collect();
    let mut out = PathBuf::new();
    let mut links = 0;
    while let Some(part) = todo.pop() {
        match Path::new(&part).components().next() {
            None | Some(Component::CurDir) => {}
            Some(Component::ParentDir) => {
                out.pop();
            }
            Some(Component::Normal(name)) => {
                out.push(name);
                let is_link = fs::symlink_metadata(&out).is_ok_and(|m| m.file_type().is_symlink());
                let Some(goal) = is_link.then(|| fs::read_link(&out).ok()).flatten() else { continue };
                links += 1;
                if links > MAX_LINKS {
                    let text = repr(&shown(&lexical(&start)?));
                    return Err(PathError::Other(format!("Symlink loop from {text}")));
                }
                out.pop();
                todo.extend(reversed(&goal).map(OsStr::to_owned));
            }
            Some(root) => out = PathBuf::from(root.as_os_str()),
        }
    }
    Ok(out)
}

fn reversed(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.components().rev().map(Component::as_os_str)
}

/// What a path leads to; `None` when there is nothing.
///
/// # Errors
/// When the system refuses to say.
pub(super) fn stat(path: &Path) -> Result<Option<fs::Metadata>, PathError> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata)),
        Err(error) if is_absence(&error) => Ok(None),
        Err(error) => Err(PathError::os(&error, path)),
    }
}

fn is_absence(error: &io::Error) -> bool {
    #[cfg(unix)]
    let looped = error.raw_os_error() == Some(libc::ELOOP);
    #[cfg(not(unix))]
    let looped = false;
    looped || matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_paths_read_like_python() {
        assert_eq!(repr("a'b"), r#""a'b""#);
        assert_eq!(repr("a\nb\u{1}"), r"'a\nb\x01'");
        assert_eq!(shown(&tidy(Path::new("./"))), ".");
        assert_eq!(shown(&tidy(Path::new("a//./b"))), "a/b");
    }

    #[test]
    fn a_parent_is_taken_after_the_link_before_it() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().canonicalize().unwrap();
        fs::create_dir_all(base.join("real/deep")).unwrap();
        #[cfg(unix)]
        {
            std::os::unix::fs::symlink("real/deep", base.join("link")).unwrap();
            assert_eq!(resolve(&base.join("link/../x")).unwrap(), base.join("real/x"));
            assert_eq!(lexical(&base.join("link/../x")).unwrap(), base.join("x"));
            std::os::unix::fs::symlink("loop", base.join("loop")).unwrap();
            assert!(
                matches!(resolve(&base.join("loop")), Err(PathError::Other(t)) if t.contains("Symlink loop"))
            );
        }
    }
}
