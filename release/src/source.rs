//! The tree that a release is made from: its version, its commit, and what keeps it from being published (REL-05).

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use crate::{
    failure::Failure,
    program::{answer, command},
};

/// The compiler that a published release is built with (REL-22).
pub const TOOLCHAIN: &str = "1.95.0";

/// What a commit's digits are followed by where the tree is not that commit's.
const CHANGED: &str = "-changed";

/// The tree that a release is made from.
#[derive(Debug, Clone)]
pub struct Source {
    /// The workspace's folder.
    pub root: PathBuf,
    /// The version of its executables.
    pub version: String,
    /// The commit that is checked out, in hexadecimal digits; followed by `-changed` where the tree differs from it, so
    /// that nothing made of such a tree passes for the commit's.
    pub commit: String,
    /// When that commit was made, in seconds since 1970: the time of everything in a release.
    pub committed_at: u64,
    /// The compiler's own account of itself: `release` of `rustc -vV`.
    pub compiler: String,
    /// Why it may not be published, each reason in words; empty for the clean source of its version's tag.
    pub unpublishable: Vec<String>,
}

impl Source {
    /// Looks at the tree at `root`.
    ///
    /// # Errors
    /// git or rustc failed.
    pub fn at(root: &Path) -> Result<Self, Failure> {
        let root = root.canonicalize().map_err(Failure::file(root))?;
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let head = answer(git(&root).args(["show", "--no-patch", "--format=%H %ct", "HEAD"]))?;
        let (commit, time) = head.trim().split_once(' ').unwrap_or_default();
        let committed_at =
            time.parse().map_err(|_| Failure::Answer("git", format!("no commit in \"{}\"", head.trim())))?;
        let changed = answer(git(&root).args(["status", "--porcelain", "--untracked-files=normal"]))?;
        let tags = answer(git(&root).args(["tag", "--points-at", "HEAD"]))?;
        let compiler = answer(command("rustc").arg("-vV"))?;
        let compiler = compiler.lines().find_map(|line| line.strip_prefix("release: "));
        let compiler = compiler.ok_or(Failure::Answer("rustc", "no release".to_owned()))?.to_owned();
        let unpublishable = reasons(&version, &changed, &tags, &compiler);
        let commit = if changed.is_empty() { commit.to_owned() } else { format!("{commit}{CHANGED}") };
        Ok(Self { root, version, commit, committed_at, compiler, unpublishable })
    }

    /// Refuses a tree that may not be published.
    ///
    /// # Errors
    /// [`Failure::NotPublishable`] with every reason.
    pub fn demand_publishable(&self) -> Result<(), Failure> {
        if self.unpublishable.is_empty() {
            Ok(())
        } else {
            Err(Failure::NotPublishable(self.unpublishable.clone()))
        }
    }
}

pub(crate) fn git(root: &Path) -> Command {
    let mut git = command("git");
    git.arg("-C").arg(root);
    git
}

/// What keeps a tree of `version` from being published.
fn reasons(version: &str, changed: &str, tags: &str, compiler: &str) -> Vec<String> {
    let mut reasons = Vec::new();
    if let Some(first) = changed.lines().next() {
        let more = changed.lines().count() - 1;
        reasons.push(format!("the tree is not clean: {} and {more} more", first.trim()));
    }
    let tag = format!("v{version}");
    if !tags.lines().any(|found| found == tag) {
        reasons.push(format!("the commit has no tag {tag}"));
    }
    if compiler != TOOLCHAIN {
        reasons.push(format!("the compiler is {compiler} and not {TOOLCHAIN}"));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    /// REL-05, REL-22: only the clean source of the version's tag is published, built with the pinned compiler.
    #[test]
    fn the_clean_source_of_the_tag_alone_is_publishable() {
        assert_eq!(reasons("33.1.0", "", "other\nv33.1.0\n", TOOLCHAIN), Vec::<String>::new());
        let all = reasons("33.1.0", " M Cargo.toml\n?? new\n", "v33.1.0-rc\nv33.1\n", "1.94.0");
        assert_eq!(
            all,
            [
                "the tree is not clean: M Cargo.toml and 1 more",
                "the commit has no tag v33.1.0",
                "the compiler is 1.94.0 and not 1.95.0"
            ]
        );
    }
}
