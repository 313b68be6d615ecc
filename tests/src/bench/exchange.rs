//! The one exchange that is measured, as texts that are built once: a node's report of 1 KiB and Cloudly's
//! answer to it. Per message only ids are put in, and nothing is parsed.

/// The method of the measured exchange, one of the nine that a registered node sends.
pub const METHOD: &str = "reportRuntimeAssignmentObservation";

/// Bytes of the observation in a request; the message around it has some 350 more.
const OBSERVATION: usize = 1024;
/// Bytes of the receipt in an answer.
const RECEIPT: usize = 256;

/// How far from its end a request states its ids: both relays write them last.
const TAIL: usize = 256;

/// A node's request under one binding.
pub struct Question {
    text: Vec<u8>,
    instance: usize,
    correlation: usize,
    asked: u64,
}

/// Digits of an id.
const DIGITS: usize = 24;

impl Question {
    /// The request of a node with `binding`, the JSON text that Cloudly issued.
    pub fn new(binding: &str) -> Self {
        let zeros = "0".repeat(DIGITS);
        let observation = "observed ".repeat(OBSERVATION / 9 + 1);
        let observation = &observation[..OBSERVATION];
        let before = format!(
            r#"{{"method":"{METHOD}","request":{{"session":{binding},"observation":"{observation}"}},"response":null,"requestInstanceId":"uni_"#
        );
        let between = format!(r#"{before}{zeros}","correlation":{{"id":"uni_"#);
        let text = format!(r#"{between}{zeros}","phase":"request"}}}}"#);
        Self { instance: before.len(), correlation: between.len(), text: text.into_bytes(), asked: 0 }
    }

    /// The request's text with new ids.
    pub fn ask(&mut self) -> &[u8] {
        self.asked += 1;
        let mut digits = [b'0'; DIGITS];
        let mut number = self.asked;
        for digit in digits.iter_mut().rev().take(16) {
            *digit = b"0123456789abcdef"[usize::try_from(number & 0xf).expect("it is below 16")];
            number >>= 4;
        }
        self.text[self.instance..][..DIGITS].copy_from_slice(&digits);
        self.text[self.correlation..][..DIGITS].copy_from_slice(&digits);
        &self.text
    }

    /// Whether `text` is the answer to the request asked last: not a refusal, and of its id.
    pub fn answered_by(&self, text: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(text) else { return false };
        let id = std::str::from_utf8(&self.text[self.correlation..][..DIGITS]).expect("digits are text");
        text.contains(RECEIPT_MEMBER) && id_of(text, CORRELATION).is_some_and(|of| of.ends_with(id))
    }
}

const CORRELATION: &str = r#""correlation":{"id":""#;
const INSTANCE: &str = r#""requestInstanceId":""#;
const RECEIPT_MEMBER: &str = r#""response":{"receipt":""#;

/// Cloudly's answers to the measured exchange.
pub struct Answers {
    before: String,
}

impl Default for Answers {
    fn default() -> Self {
        let receipt = "r".repeat(RECEIPT);
        Self { before: format!(r#"{{"method":"{METHOD}",{RECEIPT_MEMBER}{receipt}"}}"#) }
    }
}

impl Answers {
    /// Whether `text` is a request of the measured exchange.
    pub fn know(text: &str) -> bool {
        const BEGIN: &str = r#"{"method":""#;
        text.strip_prefix(BEGIN).is_some_and(|rest| rest.starts_with(METHOD))
    }

    /// Writes the answer to the request `text` into `answer`; `None` when the request has no id.
    pub fn write(&self, text: &str, answer: &mut String) -> Option<()> {
        let correlation = id_of(text, CORRELATION)?;
        answer.clear();
        answer.push_str(&self.before);
        if let Some(instance) = id_of(text, INSTANCE) {
            answer.extend([r#","requestInstanceId":""#, instance, r#"""#]);
        }
        answer.extend([r#","correlation":{"id":""#, correlation, r#"","phase":"response"}}"#]);
        Some(())
    }
}

/// The id behind the last `key` of a message. A library of the older generation writes an answer's echo of the
/// request first, so the last one is the envelope's own.
fn id_of<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut from = text.len().saturating_sub(TAIL);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    let at = text[from..].rfind(key)? + from + key.len();
    text[at..].split('"').next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::envelope::{Message, Phase};

    const BINDING: &str = r#"{"sessionId":"s","nodeId":"n","clusterId":"c","generation":1}"#;

    /// What is put together is an envelope of the contract, each time with ids of its own, and its answer is.
    #[test]
    fn the_texts_are_envelopes() {
        let mut question = Question::new(BINDING);
        let first = Message::parse(std::str::from_utf8(question.ask()).unwrap()).unwrap();
        let text = String::from_utf8(question.ask().to_vec()).unwrap();
        let second = Message::parse(&text).unwrap();
        assert_ne!(first.ids.correlation, second.ids.correlation);
        assert_eq!((second.phase, second.method.as_str()), (Phase::Request, METHOD));
        assert!(Answers::know(&text));
        let mut answer = String::new();
        Answers::default().write(&text, &mut answer).unwrap();
        assert!(question.answered_by(answer.as_bytes()));
        let answer = Message::parse(&answer).unwrap();
        assert_eq!((answer.phase, &answer.ids), (Phase::Response, &second.ids));
        assert!(answer.outcome().is_ok());
    }

    /// An answer to an earlier request, and a refusal, are no answer.
    #[test]
    fn only_its_own_answer_answers_a_question() {
        let mut question = Question::new(BINDING);
        let first = String::from_utf8(question.ask().to_vec()).unwrap();
        let mut answer = String::new();
        Answers::default().write(&first, &mut answer).unwrap();
        let ids = Message::parse(&first).unwrap().ids;
        let refusal = crate::envelope::refusal(METHOD, &crate::envelope::Refusal::new("no"), &ids);
        assert!(!question.answered_by(refusal.as_bytes()));
        question.ask();
        assert!(!question.answered_by(answer.as_bytes()));
    }
}
