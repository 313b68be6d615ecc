//! A registry that does what a test says, byte by byte: it keeps the head of every request as it came and
//! answers with raw bytes, so that it can be slow, wrong, cut, or gone, as no sound registry is.
//!
//! It stands at the loopback Cloudly's origin ([`crate::cloudly::Cloudly::pulls_from`]). By itself it answers
//! 200 without a body. A test gives it a script, an async function of an [`Exchange`], or one raw answer for
//! all. It reads no bodies: whatever follows a head is the next head, as a backend would take it that can be
//! deceived. Over HTTP/2, where bytes are not the test's to write, it answers by [`Registry::over_h2`].

mod answer;
mod asked;
mod exchange;
mod h2;

use std::sync::{Arc, Mutex, MutexGuard};

use futures_util::future::BoxFuture;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::waiting::{BOUND, Change, Late};

pub use answer::{head, reply};
pub use asked::Asked;
pub use exchange::Exchange;
pub use h2::H2Answer;

/// A connection to the registry, decrypted.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

type Script = Arc<dyn Fn(Exchange) -> BoxFuture<'static, Option<Exchange>> + Send + Sync>;
type H2Script = Arc<dyn Fn(&Asked) -> H2Answer + Send + Sync>;

/// The double. Clones are the same registry.
#[derive(Clone)]
pub struct Registry {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    change: Change,
}

struct State {
    script: Script,
    h2: H2Script,
    asked: Vec<Asked>,
    connections: u64,
    open: usize,
}

impl Default for Registry {
    fn default() -> Self {
        let state = State {
            script: constant(reply("200 OK", &[], b"")),
            h2: Arc::new(|_| H2Answer::new(200)),
            asked: Vec::new(),
            connections: 0,
            open: 0,
        };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), change: Change::default() }) }
    }
}

impl Registry {
    /// From now on every request is answered by `script`. It gives the exchange back where the connection
    /// goes on; without it the connection is at its end.
    pub fn script<F>(&self, script: impl Fn(Exchange) -> F + Send + Sync + 'static)
    where
        F: Future<Output = Option<Exchange>> + Send + 'static,
    {
        self.state().script = Arc::new(move |exchange| Box::pin(script(exchange)));
    }

    /// From now on every request is answered with these bytes.
    pub fn answer(&self, raw: impl Into<Vec<u8>>) {
        self.state().script = constant(raw.into());
    }

    /// From now on every request is answered with these bytes, and the connection closed in order after it.
    pub fn answer_and_close(&self, raw: impl Into<Vec<u8>>) {
        let raw = Arc::new(raw.into());
        self.script(move |mut exchange| {
            let raw = raw.clone();
            async move {
                exchange.send(raw.as_slice()).await.ok()?;
                exchange.close().await
            }
        });
    }

    /// From now on every request over HTTP/2 is answered by `script`.
    pub fn over_h2(&self, script: impl Fn(&Asked) -> H2Answer + Send + Sync + 'static) {
        self.state().h2 = Arc::new(script);
    }

    /// Every request so far, in order of arrival.
    pub fn asked(&self) -> Vec<Asked> {
        self.state().asked.clone()
    }

    /// The last request.
    ///
    /// # Panics
    /// When there was none.
    pub fn last(&self) -> Asked {
        self.state().asked.last().cloned().expect("the registry was asked")
    }

    /// How many requests there were.
    pub fn count(&self) -> usize {
        self.state().asked.len()
    }

    /// How many connections were ever opened to it.
    pub fn connections(&self) -> u64 {
        self.state().connections
    }

    /// How many connections to it are open.
    pub fn open_connections(&self) -> usize {
        self.state().open
    }

    /// Waits for the `count`th request (from 1) and gives it.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_asked(&self, count: usize) -> Result<Asked, Late> {
        let look = || self.state().asked.get(count - 1).cloned();
        self.shared.change.until(BOUND, &format!("request {count} at the registry"), look).await
    }

    /// Waits until exactly `count` connections to it are open.
    ///
    /// # Errors
    /// [`Late`].
    pub async fn wait_open_connections(&self, count: usize) -> Result<(), Late> {
        let look = || (self.open_connections() == count).then_some(());
        self.shared.change.until(BOUND, &format!("{count} open connections at the registry"), look).await
    }

    /// Serves a connection until either side ends it.
    pub(crate) async fn serve(&self, stream: Box<dyn Duplex>) {
        let connection = {
            let mut state = self.state();
            state.connections += 1;
            state.open += 1;
            state.connections
        };
        let _open = Open(self);
        self.shared.change.announce();
        let mut exchange = Exchange::before(connection, stream);
        while let Some(asked) = exchange.next().await {
            if asked.is_h2_preface() {
                let (stream, seen) = exchange.into_parts();
                return h2::serve(self, connection, stream, seen).await;
            }
            let script = self.note(asked).script.clone();
            self.shared.change.announce();
            let Some(going_on) = script(exchange).await else { return };
            exchange = going_on;
        }
    }

    fn note(&self, asked: Asked) -> MutexGuard<'_, State> {
        let mut state = self.state();
        state.asked.push(asked);
        state
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// Counts a connection that is open, also one whose task is aborted.
struct Open<'a>(&'a Registry);

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.0.state().open -= 1;
        self.0.shared.change.announce();
    }
}

fn constant(raw: Vec<u8>) -> Script {
    let raw = Arc::new(raw);
    Arc::new(move |exchange: Exchange| {
        let raw = raw.clone();
        Box::pin(async move { exchange.answer(raw.as_slice()).await })
    })
}

#[cfg(test)]
mod tests;
