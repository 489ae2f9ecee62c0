//! Where a tool may read: the workspace, its boundary and what is allowed besides.
//!
//! The policy is applied anew at each call, because links and directories change. It is a guard of
//! the application, no sandbox: a link that is put in place between the check and the read is
//! followed. Refusals name the boundary and tell the model not to work around it.

use std::path::{Path, PathBuf};

use super::paths::{self, PathError};

const BOUNDARY_NOTE: &str = " (this is a hard policy boundary, not a transient failure; \
    do not retry with shell tricks or alternative tools, and ask \
    the user how to proceed if the resource is genuinely required)";

/// The workspace of a tool and what it may read.
#[derive(Debug, Clone, Default)]
pub struct Workspace {
    /// Relative paths start here, and shown paths are relative to it. Default: the current directory.
    pub workspace: Option<PathBuf>,
    /// The directory that bounds all reading; unlike the workspace it wins over `restrict`.
    pub allowed_dir: Option<PathBuf>,
    /// Whether the workspace itself is a boundary.
    pub restrict: bool,
    /// Directories that may be read although they lie outside of the boundary.
    pub extra_dirs: Vec<PathBuf>,
    /// Single files that may be read although they lie outside; never through a link.
    pub extra_files: Vec<PathBuf>,
}

impl Workspace {
    /// A workspace without a boundary.
    pub fn open(workspace: impl Into<PathBuf>) -> Self {
        Self { workspace: Some(workspace.into()), ..Self::default() }
    }

    /// A workspace that is its own boundary.
    pub fn bounded(workspace: impl Into<PathBuf>) -> Self {
        let workspace = workspace.into();
        Self {
            allowed_dir: Some(workspace.clone()),
            workspace: Some(workspace),
            restrict: true,
            ..Self::default()
        }
    }

    fn project(&self) -> Result<Option<PathBuf>, PathError> {
        self.workspace.as_deref().map(paths::expand_user).transpose()
    }

    fn boundary(&self, project: Option<&Path>) -> Result<Option<PathBuf>, PathError> {
        let own = project.filter(|_| self.restrict).map(Path::to_owned);
        let Some(allowed) = &self.allowed_dir else { return Ok(own) };
        let allowed = paths::expand_user(allowed)?;
        let Some(project) = project else { return Ok(Some(allowed)) };
        let real = paths::resolve(&allowed)?;
        Ok(if real == paths::resolve(project)? { own } else { Some(real) })
    }

    /// The real path that `path` stands for, and how to go on from there.
    pub(super) fn admit(&self, path: &str) -> Result<Admitted, PathError> {
        let project = self.project()?;
        let boundary = self.boundary(project.as_deref())?;
        let mut wanted = paths::expand_user(Path::new(path))?;
        if let Some(project) = project.as_ref().filter(|_| !wanted.is_absolute()) {
            wanted = project.join(&wanted);
        }
        let target = paths::resolve(&wanted)?;
        let fence = boundary.map(|boundary| self.fence(boundary));
        if let Some(fence) = &fence {
            let exact = paths::lexical(&wanted).is_ok_and(|p| p == target) && fence.files.contains(&target);
            if !exact && !fence.holds(&target) {
                return Err(PathError::Permission(format!(
                    "Path {} is outside allowed directory {}{BOUNDARY_NOTE}",
                    path,
                    paths::shown(&fence.boundary),
                )));
            }
        }
        // A relative workspace cannot be a prefix of the real path.
        let shown_from = project.filter(|p| p.is_absolute());
        Ok(Admitted { target, fence, shown_from })
    }

    fn fence(&self, boundary: PathBuf) -> Fence {
        let real = |path: &PathBuf| paths::expand_user(path).and_then(|p| paths::resolve(&p)).ok();
        let exact = |path: &PathBuf| paths::expand_user(path).and_then(|p| paths::lexical(&p)).ok();
        let dirs = std::iter::once(&boundary).chain(&self.extra_dirs).filter_map(real).collect();
        let files = self.extra_files.iter().filter_map(exact).collect();
        Fence { boundary, dirs, files }
    }
}

/// The boundary of one call.
#[derive(Debug, Clone)]
pub(super) struct Fence {
    boundary: PathBuf,
    dirs: Vec<PathBuf>,
    files: Vec<PathBuf>,
}

impl Fence {
    /// Whether a real path lies inside.
    pub(super) fn holds(&self, real: &Path) -> bool {
        self.dirs.iter().any(|dir| real.starts_with(dir))
    }

    /// Whether what a link leads to lies inside.
    pub(super) fn holds_goal(&self, link: &Path) -> bool {
        paths::resolve(link).is_ok_and(|real| self.holds(&real))
    }
}

/// A path that may be read.
#[derive(Debug, Clone)]
pub(super) struct Admitted {
    pub(super) target: PathBuf,
    pub(super) fence: Option<Fence>,
    shown_from: Option<PathBuf>,
}

impl Admitted {
    /// How a path below `root` is shown.
    pub(super) fn display(&self, path: &Path, root: &Path) -> String {
        let relative = self.shown_from.as_deref().and_then(|from| path.strip_prefix(from).ok());
        paths::shown(relative.unwrap_or_else(|| path.strip_prefix(root).unwrap_or(path)))
    }
}
