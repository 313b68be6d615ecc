//! Text that must reach no log line, error or Debug output, and that is wiped when dropped (LOG-15).

use bincode::{
    BorrowDecode, Decode, Encode,
    de::{BorrowDecoder, Decoder},
    enc::Encoder,
    error::{DecodeError, EncodeError},
};
use zeroize::Zeroizing;

/// A secret text. It has no `Debug`, `Display` or `Serialize`; its one exit is [`SecretText::expose`].
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// Takes custody of `text`.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    /// The text itself, for the one place that has to send it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl Encode for SecretText {
    fn encode<E: Encoder>(&self, encoder: &mut E) -> Result<(), EncodeError> {
        self.0.as_str().encode(encoder)
    }
}

impl<C> Decode<C> for SecretText {
    fn decode<D: Decoder<Context = C>>(decoder: &mut D) -> Result<Self, DecodeError> {
        Ok(Self::new(String::decode(decoder)?))
    }
}

impl<'de, C> BorrowDecode<'de, C> for SecretText {
    fn borrow_decode<D: BorrowDecoder<'de, Context = C>>(decoder: &mut D) -> Result<Self, DecodeError> {
        Ok(Self::new(String::decode(decoder)?))
    }
}
