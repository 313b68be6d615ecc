//! X25519 for snow, with private keys that are overwritten when they are dropped. snow's own leaves them in freed
//! memory, and with every handshake another copy of the hub's.

use curve25519_dalek::MontgomeryPoint;
use snow::{
    Error,
    params::{CipherChoice, DHChoice, HashChoice},
    resolvers::CryptoResolver,
    types::{Cipher, Dh, Hash, Random},
};
use zeroize::Zeroizing;

/// A key pair.
#[derive(Default)]
pub(super) struct X25519 {
    private: Zeroizing<[u8; 32]>,
    public: [u8; 32],
}

impl X25519 {
    /// The pair of a private key.
    pub(super) fn of(private: Zeroizing<[u8; 32]>) -> Self {
        let public = MontgomeryPoint::mul_base_clamped(*private).to_bytes();
        Self { private, public }
    }

    /// Both halves.
    pub(super) fn into_halves(self) -> (Zeroizing<[u8; 32]>, [u8; 32]) {
        (self.private, self.public)
    }
}

impl Dh for X25519 {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        32
    }

    fn priv_len(&self) -> usize {
        32
    }

    fn set(&mut self, private: &[u8]) {
        let mut own = Zeroizing::new([0; 32]);
        own.copy_from_slice(private);
        *self = Self::of(own);
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        let mut own = Zeroizing::new([0; 32]);
        random.try_fill_bytes(own.as_mut_slice())?;
        *self = Self::of(own);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.public
    }

    fn privkey(&self) -> &[u8] {
        self.private.as_slice()
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = public.first_chunk().ok_or(Error::Dh)?;
        let shared = Zeroizing::new(MontgomeryPoint(*public).mul_clamped(*self.private).to_bytes());
        out.get_mut(..32).ok_or(Error::Dh)?.copy_from_slice(shared.as_slice());
        Ok(())
    }
}

/// Gives snow this X25519, and nothing else.
pub(super) struct Resolver;

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        None
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        matches!(choice, DHChoice::Curve25519).then(|| Box::<X25519>::default() as Box<dyn Dh>)
    }

    fn resolve_hash(&self, _: &HashChoice) -> Option<Box<dyn Hash>> {
        None
    }

    fn resolve_cipher(&self, _: &CipherChoice) -> Option<Box<dyn Cipher>> {
        None
    }
}
