//! The challenges of a `WWW-Authenticate` line (RFC 9110, 11.6.1): a realm at the registry's origin gets the
//! relay's, whatever the scheme, and every other byte of the line stays (PULL-10, PULL-11, PULL-12, PULL-13).
//!
//! The line is read to find the realms and then cut at byte positions; it is never written anew. What follows a
//! fault in it is not read. The realms before one move: clients whose reading stops there as well, as that of most
//! container runtimes, keep what they have read.

use std::ops::Range;

use crate::origin::Origin;

/// What was found about one realm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Realm {
    /// It had the registry's origin and has the relay's now.
    Own {
        /// Whether the listener serves what it leads to (PULL-31).
        served: bool,
    },
    /// It leads to this other origin, as it did.
    Foreign(Origin),
}

/// `line` with the realms at `registry` moved to `relay`, and what is to be said about its realms. A realm
/// that is no `http` or `https` URL is a name and not mentioned.
pub fn rewritten(line: &[u8], registry: &Origin, relay: &str) -> (Vec<u8>, Vec<Realm>) {
    let (mut out, mut found, mut kept) = (Vec::with_capacity(line.len()), Vec::new(), 0);
    for value in realms(line) {
        let (text, places) = unquoted(line, value.clone());
        let Some((origin, end)) = Origin::of_url(&text) else { continue };
        if origin != *registry {
            found.push(Realm::Foreign(origin));
            continue;
        }
        out.extend_from_slice(&line[kept..value.start]);
        out.extend_from_slice(relay.as_bytes());
        kept = places.get(end).copied().unwrap_or(value.end);
        found.push(Realm::Own { served: is_served(&text[end..]) });
    }
    out.extend_from_slice(&line[kept..]);
    (out, found)
}

/// Whether relayd takes the path of `rest`, which follows an origin (PULL-31): it lies under `/v2/` and has
/// neither a dot segment nor a byte that some server reads as one.
fn is_served(rest: &[u8]) -> bool {
    let path = rest.split(|byte| matches!(byte, b'?' | b'#')).next().unwrap_or_default();
    let odd = |byte: &u8| matches!(byte, b'%' | b'\\' | b';');
    path.starts_with(b"/v2/")
        && !path.iter().any(odd)
        && path.split(|byte| *byte == b'/').all(|segment| segment != b"." && segment != b"..")
}

/// The text of a value, and the place in the line of each of its bytes.
fn unquoted(line: &[u8], value: Range<usize>) -> (Vec<u8>, Vec<usize>) {
    let (mut text, mut places, mut at) = (Vec::new(), Vec::new(), value.start);
    while at < value.end {
        let escaped = line[at] == b'\\' && at + 1 < value.end;
        text.push(line[at + usize::from(escaped)]);
        places.push(at);
        at += 1 + usize::from(escaped);
    }
    (text, places)
}

/// Where the values of the parameters named `realm` stand, without quotes, up to the first byte that is out of
/// place in a list of challenges.
fn realms(line: &[u8]) -> Vec<Range<usize>> {
    let mut realms = Vec::new();
    // The end is the line's, or a fault.
    let _ = read(line, &mut realms);
    realms
}

/// Puts the realms of `line` into `realms` as they are read; `None` at a fault.
fn read(line: &[u8], realms: &mut Vec<Range<usize>>) -> Option<()> {
    let mut reader = Reader { line, at: 0 };
    let mut in_challenge = false;
    loop {
        reader.skip(|byte| matches!(byte, b' ' | b'\t' | b','));
        if reader.at == line.len() {
            return Some(());
        }
        let word = reader.token()?;
        let parameter = match reader.equals() {
            // A comma parts challenges and parameters alike: what has a value belongs to the challenge before.
            true if in_challenge => Some(word),
            true => return None,
            false => {
                in_challenge = true;
                reader.first_of_challenge()?
            }
        };
        if let Some(name) = parameter {
            let value = reader.value()?;
            if line[name].eq_ignore_ascii_case(b"realm") {
                realms.push(value);
            }
        }
        reader.skip(is_space);
        if !matches!(reader.peek(), None | Some(b',')) {
            return None;
        }
    }
}

struct Reader<'a> {
    line: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn peek(&self) -> Option<u8> {
        self.line.get(self.at).copied()
    }

    fn skip(&mut self, skipped: impl Fn(u8) -> bool) -> Range<usize> {
        let start = self.at;
        while self.peek().is_some_and(&skipped) {
            self.at += 1;
        }
        start..self.at
    }

    fn token(&mut self) -> Option<Range<usize>> {
        Some(self.skip(is_token)).filter(|token| !token.is_empty())
    }

    /// Goes past `=` and the space round it, if it comes next.
    fn equals(&mut self) -> bool {
        let start = self.at;
        self.skip(is_space);
        if self.peek() != Some(b'=') {
            self.at = start;
            return false;
        }
        self.at += 1;
        self.skip(is_space);
        true
    }

    /// After a scheme: `Some(Some(name))` of a parameter whose value comes next, `Some(None)` past a token68
    /// or for a scheme by itself, `None` for anything else.
    fn first_of_challenge(&mut self) -> Option<Option<Range<usize>>> {
        let space = self.skip(is_space);
        if matches!(self.peek(), None | Some(b',')) {
            return Some(None);
        }
        if space.is_empty() {
            return None;
        }
        let start = self.at;
        if let Some(name) = self.token()
            && self.equals()
            && !matches!(self.peek(), None | Some(b',' | b'='))
        {
            return Some(Some(name));
        }
        self.at = start;
        let credentials = self.skip(is_token68);
        self.skip(|byte| byte == b'=');
        (!credentials.is_empty()).then_some(None)
    }

    /// A token or a quoted string: the bytes of the one, what is between the quotes of the other.
    fn value(&mut self) -> Option<Range<usize>> {
        if self.peek() != Some(b'"') {
            return self.token();
        }
        self.at += 1;
        let start = self.at;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        let value = start..self.at;
        self.at += 1;
        Some(value)
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

fn is_token68(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"-._~+/".contains(&byte)
}

#[cfg(test)]
mod tests;
