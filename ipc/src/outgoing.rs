//! A bounded queue before a link's sending half, for an end on which many tasks have something to say:
//! what waits together goes together.

use std::os::fd::OwnedFd;

use tokio::sync::mpsc;

use crate::{
    link::{LinkError, LinkSender},
    messages::Message,
};

/// Messages that are sent at once at most.
const ROW: usize = 64;

/// The queue's open end; every holder may put something in.
pub struct Outgoing<Out>(mpsc::Sender<(Out, Option<OwnedFd>)>);

impl<Out> Clone for Outgoing<Out> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

/// The queue is full, or the link has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoRoom;

impl<Out: Message> Outgoing<Out> {
    /// Queues `message` with the descriptor that it announces.
    ///
    /// # Errors
    /// [`NoRoom`].
    pub fn offer(&self, message: Out, descriptor: Option<OwnedFd>) -> Result<(), NoRoom> {
        self.0.try_send((message, descriptor)).map_err(|_| NoRoom)
    }

    /// Queues `message` once there is room.
    ///
    /// # Errors
    /// [`NoRoom`] when the link has ended.
    pub async fn queue(&self, message: Out) -> Result<(), NoRoom> {
        self.0.send((message, None)).await.map_err(|_| NoRoom)
    }
}

/// A queue of `room` messages before `sender`, and the task that empties it: it ends with the link, or in
/// order when nobody can put anything in any more.
pub fn outgoing<Out: Message>(
    mut sender: LinkSender<Out>,
    room: usize,
) -> (Outgoing<Out>, impl Future<Output = Result<(), LinkError>>) {
    let (open, mut waiting) = mpsc::channel(room);
    let sending = async move {
        let mut row = Vec::with_capacity(ROW);
        while waiting.recv_many(&mut row, ROW).await > 0 {
            sender.send_row(&row).await?;
            row.clear();
        }
        Ok(())
    };
    (Outgoing(open), sending)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::{
        link::{self, Descriptors},
        messages::pulls::{PulldToRelayd, RelaydToPulld},
    };

    /// ARC-10: what waits together arrives in its order, and each descriptor beside its own message.
    #[tokio::test]
    async fn a_row_arrives_in_order_with_its_descriptors() {
        let (one, two) = UnixStream::pair().unwrap();
        let (sender, _) =
            link::open::<RelaydToPulld, PulldToRelayd>(one.into(), Descriptors::Refused).unwrap();
        let (_other, mut receiver) =
            link::open::<PulldToRelayd, RelaydToPulld>(two.into(), Descriptors::Accepted).unwrap();
        let (queue, sending) = outgoing(sender, 300);
        let (witness, passed) = UnixStream::pair().unwrap();
        for id in 0..300 {
            let (message, descriptor) = match id % 3 {
                0 => (RelaydToPulld::Stream { stream: id }, Some(passed.try_clone().unwrap().into())),
                _ => (RelaydToPulld::Cancel { id }, None),
            };
            assert_eq!(queue.offer(message, descriptor), Ok(()));
        }
        assert_eq!(queue.offer(RelaydToPulld::Cancel { id: 300 }, None), Err(NoRoom));
        drop((queue, passed));
        let received = async {
            for id in 0..300 {
                let received = receiver.receive().await.unwrap();
                match received.message {
                    RelaydToPulld::Stream { stream } => {
                        assert_eq!((stream, received.descriptors.len()), (id, 1))
                    }
                    RelaydToPulld::Cancel { id: cancelled } => {
                        assert_eq!((cancelled, received.descriptors.len()), (id, 0));
                    }
                    RelaydToPulld::Hello(_) | RelaydToPulld::Pull { .. } => panic!("nobody sent this"),
                }
            }
        };
        let (sent, ()) = tokio::join!(sending, received);
        assert_eq!(sent, Ok(()));
        // All copies of the passed end are closed: its peer reads the end.
        assert_eq!(std::io::Read::read(&mut &witness, &mut [0]).unwrap(), 0);
    }
}
