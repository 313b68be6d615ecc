//! Signal dispositions at the start of a program: what it inherited over exec is reset, what it must survive
//! is ignored.
#![expect(unsafe_code, reason = "sigaction is unsafe because a handler could be")]

use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};

/// Gives each of `signals` its default action back; an ignored signal is inherited over exec.
pub fn set_signal_default(signals: &[Signal]) -> Result<(), Errno> {
    set_all(signals, SigHandler::SigDfl)
}

/// Ignores each of `signals`: a worker ends when its link does, not when a terminal or the unit's stop
/// reaches it too.
pub fn ignore_signals(signals: &[Signal]) -> Result<(), Errno> {
    set_all(signals, SigHandler::SigIgn)
}

/// Unblocks every signal for the calling thread; the mask is inherited over exec.
pub fn reset_signal_mask() -> Result<(), Errno> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)
}

fn set_all(signals: &[Signal], handler: SigHandler) -> Result<(), Errno> {
    let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
    for &signal in signals {
        // SAFETY: the default action and ignoring run no code of ours, so nothing can be unsafe in a handler.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nix::sys::signal::raise;

    use super::*;

    #[test]
    fn an_ignored_signal_is_survived_and_its_default_comes_back() {
        // SIGWINCH is ignored by default too, SIGUSR2 would end the process: only ignoring explains a
        // survival.
        ignore_signals(&[Signal::SIGUSR2]).unwrap();
        raise(Signal::SIGUSR2).unwrap();
        set_signal_default(&[Signal::SIGUSR2]).unwrap();
        let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
        // SAFETY: the default action runs no code of ours.
        let before = unsafe { sigaction(Signal::SIGUSR2, &default) }.unwrap();
        assert!(matches!(before.handler(), SigHandler::SigDfl));
    }

    #[test]
    fn a_signal_without_a_disposition_is_refused() {
        assert_eq!(ignore_signals(&[Signal::SIGKILL]), Err(Errno::EINVAL));
    }

    #[test]
    fn a_blocked_signal_is_unblocked() {
        let mut blocked = SigSet::empty();
        blocked.add(Signal::SIGUSR1);
        blocked.thread_block().unwrap();
        reset_signal_mask().unwrap();
        assert!(!SigSet::thread_get_mask().unwrap().contains(Signal::SIGUSR1));
    }
}
