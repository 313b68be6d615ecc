//! Which sources the C library asks for host names. A statically linked one would load the modules that the
//! host's `nsswitch.conf` names into the process, built against another C library than its own; it is told to
//! ask the two that it has inside: `/etc/hosts` and the name servers of `/etc/resolv.conf` (REL-01).
#![expect(unsafe_code, reason = "the C library's switch has no safe wrapper")]

use std::ffi::{CStr, c_char, c_int};

use nix::errno::Errno;

/// The switch's name for host names.
const HOSTS: &CStr = c"hosts";
/// The file of host names, then DNS.
const BUILT_IN: &CStr = c"files dns";

// SAFETY: the signature is that of glibc's `nss.h`; it keeps neither pointer.
#[cfg(target_env = "gnu")]
unsafe extern "C" {
    /// Sets the sources of a database in the place of `nsswitch.conf`, for this process. 0, or -1 and `errno`.
    #[link_name = "__nss_configure_lookup"]
    fn nss_configure_lookup(database: *const c_char, sources: *const c_char) -> c_int;
}

/// Has a statically linked process look host names up without a module of the host. In a dynamically linked one
/// the host's own configuration holds, and nothing is done. Called before the first lookup.
///
/// # Errors
/// What the C library says.
pub fn look_names_up_without_modules() -> Result<(), Errno> {
    if cfg!(target_feature = "crt-static") { configure(HOSTS, BUILT_IN) } else { Ok(()) }
}

#[cfg(target_env = "gnu")]
fn configure(database: &CStr, sources: &CStr) -> Result<(), Errno> {
    // SAFETY: both texts end with a zero byte and live for the program; the library copies what it keeps.
    Errno::result(unsafe { nss_configure_lookup(database.as_ptr(), sources.as_ptr()) }).map(drop)
}

/// A C library without that switch has no modules either.
#[cfg(not(target_env = "gnu"))]
fn configure(_database: &CStr, _sources: &CStr) -> Result<(), Errno> {
    Ok(())
}

#[cfg(all(test, target_env = "gnu"))]
mod tests {
    use std::net::ToSocketAddrs;

    use super::*;

    /// The C library takes these words, so a static process never starts with a refused call, and refuses others.
    #[test]
    fn the_two_built_in_sources_are_taken_and_answer() {
        assert_eq!(configure(HOSTS, BUILT_IN), Ok(()));
        assert!(("localhost", 443).to_socket_addrs().unwrap().count() > 0, "the file of host names is asked");
        assert!(configure(c"no-such-database", BUILT_IN).is_err());
    }
}
