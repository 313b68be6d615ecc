//! What a handshake leaves in memory that it gave back: nothing of a private key.
#![expect(unsafe_code, reason = "an allocator that looks at what is freed")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    slice,
    sync::{
        OnceLock,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use coreflow_vpnd::protocol::noise::{Asked, Asking, Binding, StaticKey};
use snow::{
    params::DHChoice,
    resolvers::{CryptoResolver, DefaultResolver},
};
use zeroize::Zeroizing;

/// Counts the blocks that are freed with the private key in them.
struct Watching;

static KEY: OnceLock<[u8; 32]> = OnceLock::new();
static FOUND: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every block is the system's; before it goes back it is only read.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's layout. Zeroed, so that every byte may be read when it is freed.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        if let Some(key) = KEY.get() {
            // SAFETY: the block is the caller's up to here, of this size, and was initialized when it was made.
            let bytes = unsafe { slice::from_raw_parts(block, layout.size()) };
            if bytes.windows(key.len()).any(|window| window == key) {
                FOUND.fetch_add(1, SeqCst);
            }
        }
        // SAFETY: the caller's block and layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// Handshakes that succeed, and that come to nothing at each of their steps, give no block back with the
/// private key of either end in it.
#[test]
fn no_freed_block_holds_a_private_key() {
    let private: [u8; 32] = std::array::from_fn(|at| u8::try_from(at * 7 + 3).unwrap());
    KEY.set(private).unwrap();
    let mut control = DefaultResolver.resolve_dh(&DHChoice::Curve25519).unwrap();
    control.set(&private);
    drop(control);
    assert_eq!(FOUND.swap(0, SeqCst), 1, "it would be seen");
    let key = || StaticKey::of_bytes(Zeroizing::new(private));
    let binding = Binding::of_bytes([5; 32]);
    let other = StaticKey::generate().unwrap();
    let as_hub = Box::new(key());
    let (asking, first) = Asking::begin(&other, &as_hub.public(), &binding, b"wish").unwrap();
    let asked = Asked::read(&as_hub, &binding, &first).unwrap_or_else(|why| panic!("{why}"));
    let second = asked.answer(b"grant").unwrap();
    assert!(asking.finish(&second).is_ok());
    assert!(Asked::read(&as_hub, &binding, &[7; 100]).is_err());
    drop(Asked::read(&as_hub, &binding, &first));
    let as_node = Box::new(key());
    let (asking, _) = Asking::begin(&as_node, &other.public(), &binding, b"wish").unwrap();
    drop(asking);
    let (asking, _) = Asking::begin(&as_node, &other.public(), &binding, b"wish").unwrap();
    assert!(asking.finish(&[7; 53]).is_err());
    drop((as_hub, as_node));
    assert_eq!(FOUND.load(SeqCst), 0);
}
