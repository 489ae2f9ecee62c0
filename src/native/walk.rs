//! The files of a tree, in the order of Python's `os.walk`: a directory's own files by name, then
//! its subdirectories by name.
//!
//! `ignore` and `walkdir` sort files and directories together, and `ignore` hides what
//! `.gitignore` names, which the tools here do not. Links to directories are not entered, so that
//! loops cannot arise; directories that cannot be listed are skipped.

use std::{
    ffi::OsString,
    fs::{self, DirEntry},
    io,
    path::{Path, PathBuf},
};

/// Directories that are never entered.
const IGNORED: &[&str] = &[
    ".git",
    "node_modules",
    "__pycache__",
    ".venv",
    "venv",
    "dist",
    "build",
    ".tox",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".coverage",
    "htmlcov",
];

/// Whether directories of this name are left out.
pub(super) fn is_ignored(name: &str) -> bool {
    IGNORED.contains(&name)
}

/// What a directory entry is, links to directories left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Directory,
    File,
    /// A link that leads to something other than a directory, or nowhere.
    Link,
    /// A link that cannot be followed, such as a loop.
    LostLink,
    /// A pipe, a socket or a device.
    Special,
}

/// The kind of an entry; `None` for links to directories and for what cannot be examined.
pub(super) fn kind_of(entry: &DirEntry) -> Option<Kind> {
    let kind = entry.file_type().ok()?;
    if kind.is_dir() {
        Some(Kind::Directory)
    } else if kind.is_symlink() {
        match fs::metadata(entry.path()) {
            Ok(goal) if goal.is_dir() => None,
            Err(error) if error.kind() != io::ErrorKind::NotFound => Some(Kind::LostLink),
            _ => Some(Kind::Link),
        }
    } else if kind.is_file() {
        Some(Kind::File)
    } else {
        Some(Kind::Special)
    }
}

/// A file of the tree.
#[derive(Debug, Clone)]
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    /// Relative to the root, with slashes; odd names lossily.
    pub(super) relative: String,
    /// The last part of `relative` begins here.
    name_at: usize,
    pub(super) kind: Kind,
}

impl Candidate {
    /// A single file that a caller named.
    pub(super) fn single(path: &Path) -> Self {
        let relative = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Self { path: path.to_owned(), relative, name_at: 0, kind: Kind::File }
    }

    pub(super) fn name(&self) -> &str {
        &self.relative[self.name_at..]
    }
}

/// Walks a tree lazily.
#[derive(Debug)]
pub(super) struct Walk {
    /// Directories to enter, the next one last.
    directories: Vec<(PathBuf, String)>,
    /// Files to yield, the next one last.
    files: Vec<Candidate>,
}

impl Walk {
    pub(super) fn new(root: &Path) -> Self {
        Self { directories: vec![(root.to_owned(), String::new())], files: Vec::new() }
    }

    fn enter(&mut self, directory: &Path, prefix: &str) {
        let Ok(entries) = fs::read_dir(directory) else { return };
        let mut found: Vec<(String, OsString, Kind)> = entries
            .map_while(Result::ok)
            .filter_map(|entry| {
                let kind = kind_of(&entry)?;
                let name = entry.file_name();
                let shown = name.to_string_lossy().into_owned();
                (kind != Kind::Directory || !is_ignored(&shown)).then_some((shown, name, kind))
            })
            .collect();
        // Reversed: both stacks are emptied from their end.
        found.sort_unstable_by(|a, b| (&b.0, &b.1).cmp(&(&a.0, &a.1)));
        for (shown, name, kind) in found {
            let path = directory.join(name);
            if kind == Kind::Directory {
                self.directories.push((path, format!("{prefix}{shown}/")));
            } else {
                let relative = format!("{prefix}{shown}");
                self.files.push(Candidate { path, relative, name_at: prefix.len(), kind });
            }
        }
    }
}

impl Iterator for Walk {
    type Item = Candidate;

    fn next(&mut self) -> Option<Candidate> {
        loop {
            if let Some(file) = self.files.pop() {
                return Some(file);
            }
            let (directory, prefix) = self.directories.pop()?;
            self.enter(&directory, &prefix);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_files_come_before_those_of_subdirectories() {
        let dir = tempfile::tempdir().unwrap();
        for path in ["b/x", "a/z/y", "a/b", "c", "node_modules/n", "a-file"] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        let found: Vec<String> = Walk::new(dir.path()).map(|c| c.relative).collect();
        assert_eq!(found, ["a-file", "c", "a/b", "a/z/y", "b/x"]);
    }
}
