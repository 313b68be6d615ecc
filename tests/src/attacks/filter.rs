//! Asks a worker's filter of calls what it answers, call by call and argument by argument, without one of them being
//! made: a filter that is loaded before answers what is asked, and by the kernel's rule the worker's own refusal is
//! stricter than that answer.
#![expect(unsafe_code, reason = "calls are asked about with raw system calls")]

use std::fmt::Write as _;

use coreflow_ipc::sys::Errno;
use seccompiler::{BpfProgram, apply_filter, sock_filter};

use super::attempts::{Answered, Attempt};
use super::child::{Answer, Attacker, Role, run};

pub(crate) const ATTEMPTS: &[(&str, Attempt)] = &[(ASK, ask)];

const ASK: &str = "ask the filter";

/// What a call has as its sixth argument, which no condition of a worker's filter looks at, when it only asks.
const QUESTION: u32 = 0x0a5c_0a5c;

/// An argument that is all ones.
pub const ONES: u64 = u64::MAX;

/// What `role` may call of what `question` describes: the number and the first five arguments, each as numbers or
/// ranges (`1,3,8-15`), or `own`, the asking process's id. Gives, for every combination that is allowed, the numbers of
/// those places that have more than one. A call that has no condition, or one that is answered `ENOSYS`, is allowed.
///
/// # Errors
/// How the asking process ended, where a call of the question ended it.
///
/// # Panics
/// When the process ends without an answer, or a call was made.
pub fn allowed(role: Role, question: &str) -> Result<Vec<Vec<u64>>, Answer> {
    match run(role, ASK, question).answer {
        Answer::Done(said) => Ok(said.lines().skip(1).map(numbers).collect()),
        ended => Err(ended),
    }
}

fn numbers(line: &str) -> Vec<u64> {
    line.split(' ').skip(1).map(|number| number.parse().expect("a number")).collect()
}

/// Loads the filter that answers questions with `ENOSYS` and lets every other call pass.
pub(crate) fn prepare(attempt: &str) -> Result<(), Errno> {
    if attempt != ASK {
        return Ok(());
    }
    // The low half of the sixth argument in `struct seccomp_data`; both architectures are little-endian.
    const SIXTH: u32 = 16 + 5 * 8;
    // Asks a tracer, and nobody traces: `ENOSYS`, and the call is not made.
    const ASKS_A_TRACER: u32 = 0x7ff0_0000;
    const ALLOWS: u32 = 0x7fff_0000;
    let instruction = |code, jt, jf, k| sock_filter { code, jt, jf, k };
    let program: BpfProgram = vec![
        instruction(0x20, 0, 0, SIXTH),
        instruction(0x15, 0, 1, QUESTION),
        instruction(0x06, 0, 0, ASKS_A_TRACER),
        instruction(0x06, 0, 0, ALLOWS),
    ];
    apply_filter(&program).expect("every process may filter itself");
    Ok(())
}

/// All combinations, one after the other; a line for each that is allowed, after a first one that is none.
fn ask(attacker: &mut Attacker) -> Answered {
    let places: Vec<Vec<u64>> = attacker.argument.split(' ').map(values).collect();
    let places: [Vec<u64>; 6] = places.try_into().expect("a number and five arguments");
    let mut said = "allowed:".to_owned();
    let mut at = [0_usize; 6];
    loop {
        let asked: [u64; 6] = std::array::from_fn(|place| places[place][at[place]]);
        if is_allowed(asked) {
            let varied = (0..6).filter(|place| places[*place].len() > 1).map(|place| asked[place]);
            let varied: String = varied.map(|number| format!(" {number}")).collect();
            write!(said, "\nyes{varied}").expect("a string takes every text");
        }
        // As the wheels of a counter; the last place turns fastest.
        let Some(turned) = (0..6).rev().find(|place| at[*place] + 1 < places[*place].len()) else { break };
        at[turned] += 1;
        at[turned + 1..].fill(0);
    }
    Ok(said)
}

fn values(place: &str) -> Vec<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    let values = place.split(',').flat_map(|part| match part.split_once('-') {
        Some((first, last)) => number(first)..=number(last),
        None if part == "own" => u64::from(std::process::id())..=u64::from(std::process::id()),
        None => number(part)..=number(part),
    });
    values.collect()
}

fn is_allowed([number, a, b, c, d, e]: [u64; 6]) -> bool {
    let number = libc::c_long::try_from(number).expect("a call's number");
    // SAFETY: the filter that `prepare` has loaded answers every call with this sixth argument; none is made.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, u64::from(QUESTION)) };
    match Errno::result(answer) {
        Err(Errno::ENOSYS) => true,
        Err(Errno::EPERM) => false,
        made => panic!("call {number} was made: {made:?}"),
    }
}
