//! The memory that work costs, counted by the allocator of every target: an input may not cost many times its bytes.

use peak_alloc::PeakAlloc;

#[global_allocator]
static ALLOCATED: PeakAlloc = PeakAlloc;

/// What `work` gives, and the most bytes that were allocated during it beyond those before.
pub fn peak_of<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.current_usage();
    ALLOCATED.reset_peak_usage();
    let done = work();
    (done, ALLOCATED.peak_usage().saturating_sub(before))
}
