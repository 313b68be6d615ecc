//! Memory for a secret: pages of its own that no core file, no child and, where the kernel has secret
//! memory, no other process and not even root can read; overwritten and unmapped on drop (ARC-02, ARC-23).
#![expect(unsafe_code, reason = "secret memory is mapped and reached through raw pointers")]

use std::io::{self, Read};
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use nix::errno::Errno;
use nix::sys::mman::{MapFlags, MmapAdvise, ProtFlags, madvise, mlock, mmap, mmap_anonymous, munmap};
use zeroize::Zeroize as _;

/// `memfd_secret` in the table of system calls shared by all architectures since Linux 5.14.
const SYS_MEMFD_SECRET: libc::c_long = 447;

/// How well the pages of a secret are protected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// `memfd_secret`: out of the kernel's own map, unreadable through `/proc/<pid>/mem` by anybody, never
    /// swapped.
    SecretMemory,
    /// Ordinary pages that are locked: never swapped, not in a core file, not in a forked child.
    Locked,
    /// Ordinary pages that could not be locked (`RLIMIT_MEMLOCK`): as above, but they may reach the swap.
    Unlocked,
}

impl std::fmt::Display for Protection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::SecretMemory => "secret memory",
            Self::Locked => "locked memory",
            Self::Unlocked => "memory that is neither secret nor locked",
        })
    }
}

/// A secret in pages of its own. It has no `Debug`, no `Clone` and no serial form; its bytes are read in
/// place.
pub struct SecretPages {
    start: NonNull<u8>,
    mapped: NonZeroUsize,
    length: usize,
    protection: Protection,
}

// SAFETY: the pages belong to this value alone and are written through `&mut self` only.
unsafe impl Send for SecretPages {}
// SAFETY: a shared reference only reads the pages.
unsafe impl Sync for SecretPages {}

impl SecretPages {
    /// Copies `secret` into pages of its own. Wiping the source is the caller's.
    pub fn copy_of(secret: &[u8]) -> Result<Self, Errno> {
        let mut pages = Self::with_capacity(secret.len())?;
        pages.writable()[..secret.len()].copy_from_slice(secret);
        pages.length = secret.len();
        Ok(pages)
    }

    /// Reads `source` to its end straight into pages of its own; nothing of it passes through other memory
    /// of ours.
    ///
    /// More than `limit` bytes are `InvalidData`, and what was read is wiped.
    pub fn read_from(source: &mut impl Read, limit: usize) -> io::Result<Self> {
        // One byte more than the limit, so that one byte too many is seen.
        let room = limit.saturating_add(1);
        let mut pages = Self::with_capacity(room)?;
        while pages.length < room {
            let length = pages.length;
            match source.read(&mut pages.writable()[length..room]) {
                Ok(0) => return Ok(pages),
                Ok(count) => pages.length += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, format!("the secret is longer than {limit} bytes")))
    }

    /// The secret, where it lies.
    pub fn as_bytes(&self) -> &[u8] {
        // SAFETY: `length` bytes from `start` are mapped and initialized as long as this value lives.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// How well the pages are protected.
    pub fn protection(&self) -> Protection {
        self.protection
    }

    fn with_capacity(capacity: usize) -> Result<Self, Errno> {
        let mapped = whole_pages(capacity)?;
        match Self::secret_memory(mapped) {
            Ok(pages) => Ok(pages),
            // Absent, off, filtered, or no locked memory left: ordinary pages do.
            Err(_) => Self::ordinary_memory(mapped),
        }
    }

    fn secret_memory(mapped: NonZeroUsize) -> Result<Self, Errno> {
        // SAFETY: the call takes numbers only.
        let answer = Errno::result(unsafe { libc::syscall(SYS_MEMFD_SECRET, libc::O_CLOEXEC) })?;
        let number = RawFd::try_from(answer).expect("the kernel answers a descriptor, which fits in an int");
        // SAFETY: the kernel has just installed this descriptor for us, and nobody else owns it.
        let memory = unsafe { OwnedFd::from_raw_fd(number) };
        nix::unistd::ftruncate(&memory, libc::off_t::try_from(mapped.get()).map_err(|_| Errno::EFBIG)?)?;
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs no other memory.
        let start = unsafe { mmap(None, mapped, READ_WRITE, MapFlags::MAP_SHARED, memory.as_fd(), 0) }?;
        // The descriptor would be a way to the bytes for whoever can take it; the mapping does without.
        drop(memory);
        let pages = Self { start: start.cast(), mapped, length: 0, protection: Protection::SecretMemory };
        pages.advise(MmapAdvise::MADV_DONTFORK)?;
        Ok(pages)
    }

    fn ordinary_memory(mapped: NonZeroUsize) -> Result<Self, Errno> {
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs no other memory.
        let start = unsafe { mmap_anonymous(None, mapped, READ_WRITE, MapFlags::MAP_PRIVATE) }?;
        let mut pages = Self { start: start.cast(), mapped, length: 0, protection: Protection::Unlocked };
        pages.advise(MmapAdvise::MADV_DONTDUMP)?;
        pages.advise(MmapAdvise::MADV_DONTFORK)?;
        // SAFETY: the range is the mapping just made.
        if unsafe { mlock(start, mapped.get()) }.is_ok() {
            pages.protection = Protection::Locked;
        }
        Ok(pages)
    }

    fn advise(&self, advice: MmapAdvise) -> Result<(), Errno> {
        // SAFETY: the range is this value's own mapping, and neither advice used changes its contents here.
        unsafe { madvise(self.start.cast(), self.mapped.get(), advice) }
    }

    fn writable(&mut self) -> &mut [u8] {
        // SAFETY: all `mapped` bytes are mapped, zeroed by the kernel at first, and borrowed mutably with
        // `self`.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.mapped.get()) }
    }
}

impl Drop for SecretPages {
    fn drop(&mut self) {
        self.writable().zeroize();
        // SAFETY: the mapping is this value's own, whole, and nothing can reach it after the drop.
        let unmapped = unsafe { munmap(self.start.cast(), self.mapped.get()) };
        debug_assert_eq!(unmapped, Ok(()), "an own mapping can be unmapped");
    }
}

const READ_WRITE: ProtFlags = ProtFlags::PROT_READ.union(ProtFlags::PROT_WRITE);

/// `capacity` rounded up to whole pages, one at least.
fn whole_pages(capacity: usize) -> Result<NonZeroUsize, Errno> {
    let page = match nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)? {
        Some(size) => usize::try_from(size).map_err(|_| Errno::EINVAL)?,
        None => return Err(Errno::EINVAL),
    };
    let bytes = capacity.max(1).checked_next_multiple_of(page).ok_or(Errno::ENOMEM)?;
    NonZeroUsize::new(bytes).ok_or(Errno::EINVAL)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::confine::refuse_on_this_thread;

    /// The line of flags in `/proc/self/smaps` of the mapping that contains `at`; neighbours of the same
    /// flags are one mapping to the kernel.
    fn flags_of(at: *const u8) -> Option<String> {
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let contains = |line: &&str| {
            let range = line.split_once(' ').and_then(|(range, _)| range.split_once('-'));
            let number = |text: &str| usize::from_str_radix(text, 16).ok();
            range.is_some_and(|(from, to)| {
                number(from).zip(number(to)).is_some_and(|(from, to)| (from..to).contains(&at.addr()))
            })
        };
        let mut lines = maps.lines().skip_while(|line| !contains(line));
        lines.next()?;
        lines.find_map(|line| line.strip_prefix("VmFlags:").map(str::to_owned))
    }

    /// ARC-23: the content is what went in, and the pages are kept from children and core files.
    #[test]
    fn a_secret_is_read_back_from_pages_that_no_child_and_no_core_file_gets() {
        for pages in [
            SecretPages::copy_of(b"a secret").unwrap(),
            SecretPages::read_from(&mut &b"a secret"[..], 8).unwrap(),
        ] {
            assert_eq!(pages.as_bytes(), b"a secret");
            let flags = flags_of(pages.as_bytes().as_ptr()).unwrap();
            assert!(flags.contains(" dc"), "not copied on fork: {flags}");
            match pages.protection() {
                Protection::SecretMemory | Protection::Locked => {
                    assert!(flags.contains(" lo"), "locked: {flags}")
                }
                Protection::Unlocked => assert!(flags.contains(" dd"), "not dumped: {flags}"),
            }
        }
    }

    /// ARC-23: secret memory is not readable through the file of the process's own memory, by root neither.
    #[test]
    fn secret_memory_is_unreadable_from_outside() {
        use std::os::unix::fs::FileExt;
        let read_outside = |pages: &SecretPages| {
            let memory = std::fs::File::open("/proc/self/mem").unwrap();
            let mut copy = [0_u8; 8];
            let place = u64::try_from(pages.as_bytes().as_ptr().addr()).unwrap();
            memory.read_exact_at(&mut copy, place).map(|()| copy)
        };
        let pages = SecretPages::copy_of(b"a secret").unwrap();
        match pages.protection() {
            Protection::SecretMemory => {
                assert_eq!(read_outside(&pages).unwrap_err().raw_os_error(), Some(libc::EIO));
            }
            // Ordinary pages are readable to the process itself: the control of the above.
            Protection::Locked | Protection::Unlocked => {
                assert_eq!(&read_outside(&pages).unwrap(), b"a secret")
            }
        }
        let mut ordinary = SecretPages::ordinary_memory(whole_pages(8).unwrap()).unwrap();
        ordinary.writable()[..8].copy_from_slice(b"a secret");
        ordinary.length = 8;
        assert_eq!(&read_outside(&ordinary).unwrap(), b"a secret");
    }

    #[test]
    fn ordinary_pages_are_neither_dumped_nor_forked() {
        let pages = SecretPages::ordinary_memory(whole_pages(1).unwrap()).unwrap();
        let flags = flags_of(pages.start.as_ptr()).unwrap();
        assert!(flags.contains(" dd") && flags.contains(" dc"), "{flags}");
        assert_ne!(pages.protection(), Protection::SecretMemory);
        assert_eq!(flags.contains(" lo"), pages.protection() == Protection::Locked, "{flags}");
    }

    /// ARC-23: the bytes are zero before the pages are given back, as a second mapping of the same pages
    /// sees.
    #[test]
    fn the_pages_are_wiped_on_drop() {
        let mapped = whole_pages(5000).unwrap();
        // SAFETY: a fresh mapping at an address of the kernel's choice disturbs no other memory.
        let start = unsafe { mmap_anonymous(None, mapped, READ_WRITE, MapFlags::MAP_SHARED) }.unwrap();
        let shared = SecretPages { start: start.cast(), mapped, length: 0, protection: Protection::Unlocked };
        for mut pages in [shared, SecretPages::with_capacity(5000).unwrap()] {
            pages.writable()[..5000].fill(0xA5);
            let (start, mapped) = (pages.start.as_ptr().cast(), pages.mapped.get());
            // SAFETY: an old size of zero duplicates a shared mapping and leaves the old one in place.
            let twin = unsafe { libc::mremap(start, 0, mapped, libc::MREMAP_MAYMOVE) };
            if twin == libc::MAP_FAILED {
                assert_eq!(pages.protection(), Protection::Locked, "only private pages have no twin");
                continue;
            }
            // SAFETY: the twin maps `mapped` bytes until it is unmapped below.
            let seen = unsafe { std::slice::from_raw_parts(twin.cast::<u8>(), mapped) };
            let before = seen.iter().filter(|byte| **byte == 0xA5).count();
            drop(pages);
            assert_eq!((before, std::hint::black_box(seen).iter().all(|byte| *byte == 0)), (5000, true));
            // SAFETY: the twin is this test's own mapping and not used after this.
            assert_eq!(unsafe { libc::munmap(twin, mapped) }, 0);
        }
    }

    /// A kernel or a filter without secret memory: the fallback is taken, and says what it is.
    #[test]
    fn without_secret_memory_the_pages_are_ordinary_and_locked_if_they_can_be() {
        let protections = std::thread::spawn(|| {
            refuse_on_this_thread(SYS_MEMFD_SECRET, libc::ENOSYS);
            let first = SecretPages::copy_of(b"a secret").unwrap();
            assert_eq!(first.as_bytes(), b"a secret");
            refuse_on_this_thread(libc::SYS_mlock, libc::ENOMEM);
            [first.protection(), SecretPages::copy_of(b"a secret").unwrap().protection()]
        });
        assert_eq!(protections.join().unwrap(), [Protection::Locked, Protection::Unlocked]);
    }

    #[test]
    fn a_secret_beyond_its_limit_is_refused_and_an_empty_one_is_empty() {
        let refused = SecretPages::read_from(&mut &[b'x'; 10][..], 9).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidData);
        assert!(SecretPages::read_from(&mut io::empty(), 9).unwrap().as_bytes().is_empty());
        assert!(SecretPages::copy_of(b"").unwrap().as_bytes().is_empty());
    }

    #[test]
    fn a_secret_of_many_pages_is_whole() {
        let long: Vec<u8> = (0..20_000_u32).map(|n| (n % 251) as u8).collect();
        let pages = SecretPages::read_from(&mut &long[..], 65536).unwrap();
        assert!(pages.as_bytes() == long);
    }
}
