//! A link between two workers, greeted by both before it carries anything, so that builds that differ
//! are found at once (ARC-24).

use std::{io, os::fd::OwnedFd, time::Duration};

use tokio::time::timeout;

use crate::{
    hello::{Hello, HelloError, Role},
    link::{self, Descriptors, LinkError, LinkReceiver, LinkSender},
    messages::Message,
};

/// The other worker says hello within this time.
const HELLO_BOUND: Duration = Duration::from_secs(5);

/// A message type whose first message is a hello.
pub trait Greets: Message {
    /// Wraps a hello.
    fn of_hello(hello: Hello) -> Self;

    /// The hello, if the message is one.
    fn hello(&self) -> Option<&Hello>;
}

/// Why a link between workers is not used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GreetError {
    /// The socket cannot be used.
    Io(io::ErrorKind),
    /// The link ended.
    Link(LinkError),
    /// The peer is not the worker of this build that the link is for, or says nothing.
    Hello(HelloError),
}

impl std::fmt::Display for GreetError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(kind) => kind.fmt(f),
            Self::Link(error) => error.fmt(f),
            Self::Hello(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for GreetError {}

/// Opens `end` as the link of this worker, `own`, to `peer`, and exchanges hellos. `descriptors` says
/// whether this end takes any.
pub async fn greet<Out: Greets, In: Greets>(
    end: OwnedFd,
    descriptors: Descriptors,
    own: Role,
    peer: Role,
) -> Result<(LinkSender<Out>, LinkReceiver<In>), GreetError> {
    let (mut sender, mut receiver) =
        link::open::<Out, In>(end, descriptors).map_err(|error| GreetError::Io(error.kind()))?;
    sender.send(&Out::of_hello(Hello::of(own)), &[]).await.map_err(GreetError::Link)?;
    let first = timeout(HELLO_BOUND, receiver.receive()).await;
    let first = first.map_err(|_| GreetError::Hello(HelloError::Missing))?.map_err(GreetError::Link)?;
    let hello = first.message.hello().ok_or(GreetError::Hello(HelloError::Missing))?;
    hello.check(peer).map_err(GreetError::Hello)?;
    Ok((sender, receiver))
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::messages::pulls::{PulldToRelayd, RelaydToPulld};

    /// ARC-10, ARC-24: both ends greet, and an end that is somebody else is refused.
    #[tokio::test]
    async fn both_ends_greet_or_the_link_is_not_used() {
        let (one, two) = UnixStream::pair().unwrap();
        let (relayd, pulld) = tokio::join!(
            greet::<RelaydToPulld, PulldToRelayd>(
                one.into(),
                Descriptors::Refused,
                Role::Relayd,
                Role::Pulld
            ),
            greet::<PulldToRelayd, RelaydToPulld>(
                two.into(),
                Descriptors::Accepted,
                Role::Pulld,
                Role::Relayd
            ),
        );
        assert!(relayd.is_ok() && pulld.is_ok());

        let (one, two) = UnixStream::pair().unwrap();
        let (relayd, _) = tokio::join!(
            greet::<RelaydToPulld, PulldToRelayd>(
                one.into(),
                Descriptors::Refused,
                Role::Relayd,
                Role::Pulld
            ),
            greet::<PulldToRelayd, RelaydToPulld>(
                two.into(),
                Descriptors::Accepted,
                Role::Vpnd,
                Role::Relayd
            ),
        );
        let wrong = HelloError::Role { stated: Role::Vpnd, expected: Role::Pulld };
        assert_eq!(relayd.err(), Some(GreetError::Hello(wrong)));
    }
}
