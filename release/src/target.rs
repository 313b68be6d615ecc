//! The two targets of a host release (REL-08, REL-23), by the names that the release contract gives them.

use std::path::Path;

use crate::{
    failure::Failure,
    program::{answer, command},
};

/// A target of a host release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// Linux on x86-64.
    LinuxAmd64,
    /// Linux on 64-bit ARM.
    LinuxArm64,
}

impl Target {
    /// Both, in the order of the manifest.
    pub const ALL: [Self; 2] = [Self::LinuxAmd64, Self::LinuxArm64];

    /// The id of its bundle, and the name of its folder in `dist_relay`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::LinuxAmd64 => "linux-amd64",
            Self::LinuxArm64 => "linux-arm64",
        }
    }

    /// What rustc calls it. With glibc on both, so that there is one C library to account for.
    #[must_use]
    pub fn triple(self) -> &'static str {
        match self {
            Self::LinuxAmd64 => "x86_64-unknown-linux-gnu",
            Self::LinuxArm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// What Debian calls it.
    #[must_use]
    pub fn debian_architecture(self) -> &'static str {
        match self {
            Self::LinuxAmd64 => "amd64",
            Self::LinuxArm64 => "arm64",
        }
    }

    /// The target that this program was built for, where it is one of the two.
    #[must_use]
    pub fn of_host() -> Option<Self> {
        Self::ALL.into_iter().find(|target| target.triple().starts_with(std::env::consts::ARCH))
    }

    /// The target of this name.
    ///
    /// # Errors
    /// [`Failure::TargetUnknown`].
    pub fn named(name: &str) -> Result<Self, Failure> {
        let found = Self::ALL.into_iter().find(|target| target.name() == name);
        found.ok_or_else(|| Failure::TargetUnknown(name.to_owned()))
    }

    /// The C compiler that links for it: the host's own, or Debian's cross compiler.
    #[must_use]
    pub fn c_compiler(self) -> &'static str {
        match self {
            _ if Self::of_host() == Some(self) => "cc",
            Self::LinuxAmd64 => "x86_64-linux-gnu-gcc",
            Self::LinuxArm64 => "aarch64-linux-gnu-gcc",
        }
    }

    /// Refuses a target whose standard library rustc does not have.
    ///
    /// # Errors
    /// [`Failure::TargetNotInstalled`].
    pub fn demand_installed(self) -> Result<(), Failure> {
        let libraries =
            answer(command("rustc").args(["--print", "target-libdir", "--target", self.triple()]))?;
        if Path::new(libraries.trim()).is_dir() {
            Ok(())
        } else {
            Err(Failure::TargetNotInstalled(self.name(), self.triple()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_found_by_its_name_alone() {
        for target in Target::ALL {
            assert_eq!(Target::named(target.name()).unwrap(), target);
            assert!(Target::named(target.triple()).is_err());
        }
    }

    /// A target that rustc cannot build for is refused by name, and this host's own is not.
    #[test]
    fn a_target_without_a_standard_library_is_refused_by_name() {
        for target in Target::ALL {
            let installed = target.demand_installed();
            if Target::of_host() == Some(target) {
                installed.unwrap();
            } else if let Err(refused) = installed {
                let said = refused.to_string();
                assert!(said.starts_with(&format!("target-not-installed: {}", target.name())), "{said}");
            }
        }
    }
}
