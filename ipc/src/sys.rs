//! The system calls the workspace makes beside the standard library and nix: one small file per concern,
//! each with a safe face. All `unsafe` of this crate is below this module.
//!
//! Holds the mechanisms of ARC-05 (descriptors), ARC-20 (parent death), ARC-21 (confinement) and ARC-23
//! (memory).

mod capabilities;
mod descriptors;
mod environment;
mod execution;
mod name_lookup;
mod passing;
mod pidfd;
mod process;
mod secret_pages;
mod signals;

pub use capabilities::drop_capabilities;
pub(crate) use descriptors::SO_PASSRIGHTS;
pub use descriptors::{
    close_from, close_from_on_exec, most_descriptors, refuse_descriptors, socket_protocol,
};
pub use environment::{EnvironmentError, take_environment_variable};
pub use execution::{begin_apart, execute_exactly};
pub use name_lookup::look_names_up_without_modules;
pub use nix::errno::Errno;
pub use nix::sys::signal::Signal;
pub use passing::{DESCRIPTORS_PER_MESSAGE, PassingError, receive_with_descriptors, send_with_descriptors};
pub use pidfd::{pidfd_open, pidfd_send_signal};
pub use process::{
    deny_write_execute, dumpable, no_new_privs, set_dumpable_off, set_no_new_privs, set_parent_death_signal,
    set_process_name, thread_count,
};
pub use secret_pages::{Protection, SecretPages};
pub use signals::{ignore_signals, reset_signal_mask, set_signal_default};
