//! Both ends of the control socket: a request is exactly one, and an answer is one line within its bound whose text
//! acts on no terminal (PROT-21, PROT-22).
#![no_main]

use coreflow_supervisor::{
    constants::CONTROL_ANSWER_BYTES,
    control::protocol::{Answer, Command, Refused},
};
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

fn is_one_line(answer: &Answer) {
    let line = answer.line();
    assert!(
        line.len() <= CONTROL_ANSWER_BYTES
            && line.ends_with('\n')
            && line.trim_end_matches('\n').lines().count() == 1
    );
    let again: Answer = serde_json::from_str(&line).expect("an answer is read");
    assert_eq!(again, *answer);
}

fn request(line: &[u8]) {
    match Command::read(line) {
        Ok(command) => {
            let [asked, own] = [line, command.line().as_bytes()].map(serde_json::from_slice::<Value>);
            assert_eq!(
                asked.expect("a request is JSON"),
                own.expect("what is asked is JSON"),
                "no member is passed over"
            );
            assert_eq!(Command::read(command.line().trim_end().as_bytes()), Ok(command));
        }
        Err(refused) => {
            assert!(matches!(refused, Refused::Malformed(_) | Refused::Unknown(_)));
            let words = refused.to_string();
            assert!(words.len() < 1024 && !words.chars().any(char::is_control), "{words:?}");
            is_one_line(&refused.into());
        }
    }
}

fuzz_target!(|line: &[u8]| {
    request(line);
    let Ok(answer) = serde_json::from_slice::<Answer>(line) else { return };
    is_one_line(&answer);
    if let Answer::Status(status) = answer {
        for said in [status.text(), status.json()] {
            assert!(!said.chars().any(|character| character.is_control() && character != '\n'), "{said:?}");
        }
    }
});
