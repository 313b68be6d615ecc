//! The bearer cannot get into a panic message, an error or a line, since its type cannot be written (LOG-15).

use coreflow_ipc::sys::SecretPages;
use coreflow_supervisor::bearer::{Bearer, BearerFault};

/// Whether a type has a trait. What a type has itself goes before what every type has by another trait.
macro_rules! has {
    ($type:ty, $trait:path) => {{
        #[allow(dead_code, reason = "of the two constants one is asked for")]
        trait Otherwise {
            const ANSWER: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        #[allow(dead_code, reason = "it is asked and never made")]
        struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code, reason = "of the two constants one is asked for")]
        impl<T: ?Sized + $trait> Probe<T> {
            const ANSWER: bool = true;
        }
        <Probe<$type>>::ANSWER
    }};
}

/// LOG-15, LOG-01: neither the bearer nor the pages that hold it have a `Debug`, a `Display` or a copy; what
/// went wrong with one has, and the same question finds it.
#[test]
fn the_bearer_cannot_be_written() {
    assert!(!has!(Bearer, std::fmt::Debug) && !has!(Bearer, std::fmt::Display) && !has!(Bearer, Clone));
    assert!(!has!(SecretPages, std::fmt::Debug) && !has!(SecretPages, std::fmt::Display));
    assert!(has!(BearerFault, std::fmt::Debug) && has!(BearerFault, std::fmt::Display));
}
