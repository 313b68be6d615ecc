//! What outlives a relayd: its last sequence, the pinned credential, the last record and the parked
//! state, for the life of the service (ARC-17), and no longer under relayd's control.
//!
//! A relayd that is taken over can add to it, and neither undo nor rewrite: parked stays parked, a pin
//! stays pinned, numbers only rise.

use coreflow_ipc::messages::relayd::Kept;

/// What a relayd may not do to what is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Violation {
    /// The sequence went back, or is none.
    Sequence,
    /// Another credential than the pinned one.
    Credential,
    /// Another record, or a generation that went back.
    Record,
    /// A parked relay was said not to be, or to be for another reason.
    Parked,
}

impl std::fmt::Display for Violation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sequence => "kept-sequence-went-back",
            Self::Credential => "kept-credential-rewritten",
            Self::Record => "kept-record-went-back",
            Self::Parked => "kept-parking-rewritten",
        })
    }
}

/// Largest `Sequence` of the contract: 2^53 − 1.
const LARGEST_SEQUENCE: u64 = (1 << 53) - 1;
/// Longest parked statement that is kept, in bytes.
const STATEMENT: usize = 1024;

/// The supervisor's custody.
#[derive(Debug, Default)]
pub struct Custody(Kept);

impl Custody {
    /// What a new relayd goes on from.
    pub fn kept(&self) -> &Kept {
        &self.0
    }

    /// Whether the relay is parked: no exchange happens any more (ARC-09).
    pub fn is_parked(&self) -> bool {
        self.0.parked.is_some()
    }

    /// Takes over what relayd states; a violation leaves everything as it was.
    pub fn take(&mut self, next: Kept) -> Result<(), Violation> {
        let held = &self.0;
        if next.last_sequence < held.last_sequence || next.last_sequence > Some(LARGEST_SEQUENCE) {
            return Err(Violation::Sequence);
        }
        if held.credential.is_some() && next.credential != held.credential {
            return Err(Violation::Credential);
        }
        if let Some(record) = &held.record
            && !next
                .record
                .as_ref()
                .is_some_and(|next| next.id == record.id && next.generation >= record.generation)
        {
            return Err(Violation::Record);
        }
        let rewritten = held.parked.is_some() && next.parked != held.parked;
        if rewritten || next.parked.as_ref().is_some_and(|line| line.len() > STATEMENT) {
            return Err(Violation::Parked);
        }
        self.0 = next;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use coreflow_ipc::messages::relayd::Reference;

    use super::*;

    fn reference(id: &str, generation: u64) -> Option<Reference> {
        Some(Reference { id: id.into(), generation })
    }

    fn kept() -> Kept {
        Kept {
            last_sequence: Some(3),
            credential: reference("c", 1),
            record: reference("r", 2),
            parked: None,
        }
    }

    /// ARC-17, REG-41: what is kept only ever advances.
    #[test]
    fn what_is_kept_advances_and_is_never_undone() {
        let mut custody = Custody::default();
        custody.take(kept()).unwrap();
        custody.take(Kept { last_sequence: Some(4), record: reference("r", 3), ..kept() }).unwrap();
        for (violation, next) in [
            (Violation::Sequence, Kept { last_sequence: Some(2), ..kept() }),
            (Violation::Sequence, Kept { last_sequence: None, ..kept() }),
            (Violation::Sequence, Kept { last_sequence: Some(u64::MAX), ..kept() }),
            (Violation::Credential, Kept { last_sequence: Some(4), credential: reference("c", 2), ..kept() }),
            (Violation::Credential, Kept { last_sequence: Some(4), credential: None, ..kept() }),
            (Violation::Record, Kept { last_sequence: Some(4), record: reference("r", 1), ..kept() }),
            (Violation::Record, Kept { last_sequence: Some(4), record: reference("x", 9), ..kept() }),
        ] {
            assert_eq!(custody.take(next), Err(violation));
        }
        assert_eq!(custody.kept().last_sequence, Some(4));
    }

    /// ARC-09, REG-62: parked is for the life of the service.
    #[test]
    fn a_parked_relay_stays_parked() {
        let mut custody = Custody::default();
        custody.take(Kept { parked: Some("why".into()), ..kept() }).unwrap();
        assert_eq!(custody.take(kept()), Err(Violation::Parked));
        assert_eq!(custody.take(Kept { parked: Some("other".into()), ..kept() }), Err(Violation::Parked));
        assert!(custody.is_parked());
    }
}
