//! Conditions on the arguments of a system call, in the few shapes the lists need. A filter sees numbers
//! only: what a pointer points at (an address, a path) is Landlock's.

use seccompiler::{BackendError, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompRule};

/// Argument `index`, counted from zero, as the 32-bit number the kernel takes it for, is `value`.
pub(super) fn is(index: u8, value: i32) -> Result<SeccompCondition, BackendError> {
    dword(index, SeccompCmpOp::Eq, value)
}

/// Argument `index`, as the 32-bit number the kernel takes it for, is any but `value`.
pub(super) fn is_not(index: u8, value: i32) -> Result<SeccompCondition, BackendError> {
    dword(index, SeccompCmpOp::Ne, value)
}

/// The bits of argument `index` that `mask` selects are `value`.
pub(super) fn bits(index: u8, mask: i32, value: i32) -> Result<SeccompCondition, BackendError> {
    dword(index, SeccompCmpOp::MaskedEq(u64::from(mask.cast_unsigned())), value)
}

/// Argument `index`, a pointer or a long, is zero in all 64 bits.
pub(super) fn null(index: u8) -> Result<SeccompCondition, BackendError> {
    SeccompCondition::new(index, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, 0)
}

/// All of `conditions` hold.
pub(super) fn all<const N: usize>(
    conditions: [Result<SeccompCondition, BackendError>; N],
) -> Result<SeccompRule, BackendError> {
    SeccompRule::new(conditions.into_iter().collect::<Result<_, _>>()?)
}

fn dword(index: u8, operator: SeccompCmpOp, value: i32) -> Result<SeccompCondition, BackendError> {
    let value = u64::from(value.cast_unsigned());
    SeccompCondition::new(index, SeccompCmpArgLen::Dword, operator, value)
}
