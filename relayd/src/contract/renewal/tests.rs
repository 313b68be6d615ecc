//! A hold's validation, member by member.
use super::*;
