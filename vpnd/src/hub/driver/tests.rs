use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io::{self, IoSliceMut},
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    task::{Context, Poll},
};

use quinn::{
    AsyncUdpSocket, UdpPoller,
    udp::{RecvMeta, Transmit},
};

use super::*;
use crate::hub::sample;

/// A socket that fails once it has received something.
#[derive(Debug)]
struct Failing(Arc<dyn AsyncUdpSocket>, AtomicBool);

impl AsyncUdpSocket for Failing {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        Arc::clone(&self.0).create_io_poller()
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.0.try_send(transmit)
    }

    fn poll_recv(
        &self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let received = self.0.poll_recv(context, buffers, meta);
        if received.is_ready() && !self.1.swap(true, Relaxed) {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        }
        received
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.local_addr()
    }
}

type Driving = (mpsc::Sender<Command>, watch::Receiver<HubReport>, tokio::task::JoinHandle<()>);

fn drive_it(shared: &Arc<Shared>, endpoint: Endpoint) -> Driving {
    let (tell, told) = mpsc::channel(4);
    let (show, shown) = watch::channel(HubReport::default());
    (tell, shown, tokio::spawn(drive(Arc::clone(shared), endpoint, told, show)))
}

/// A hub whose socket is no use any more ends, so that whoever holds it can tell.
#[tokio::test]
async fn a_hub_does_not_outlive_its_endpoint() {
    let (shared, endpoint) = sample::hub(|socket| Arc::new(Failing(socket, AtomicBool::new(false))));
    let (_tell, mut shown, driving) = drive_it(&shared, endpoint);
    shown.changed().await.unwrap();
    assert!(!driving.is_finished());
    UdpSocket::bind("127.0.0.1:0").unwrap().send_to(b"anything", shared.bound).unwrap();
    timeout(Duration::from_secs(20), driving).await.expect("the hub ends").unwrap();
    assert!(shown.changed().await.is_err());
}

/// What is shown is news.
#[tokio::test(start_paused = true)]
async fn a_hub_that_did_not_change_shows_nothing() {
    let (shared, endpoint) = sample::hub(|socket| socket);
    let (_tell, mut shown, driving) = drive_it(&shared, endpoint);
    shown.changed().await.unwrap();
    assert_eq!(shown.borrow_and_update().bound, Some(shared.bound));
    sleep(10 * REPORT_PACE).await;
    assert!(!shown.has_changed().unwrap());
    shared.counters.admitted.add(1);
    sleep(2 * REPORT_PACE).await;
    assert!(shown.has_changed().unwrap());
    assert!(!driving.is_finished());
}

/// A flood is taken in rows, between which everything else has its turn; one at a time it would overtake the
/// hub.
#[tokio::test]
async fn what_arrives_is_taken_in_rows() {
    let (turns, taken) = (Cell::new(0), Cell::new(0));
    let queue = RefCell::new((0..100).collect::<VecDeque<u32>>());
    let others = async {
        while taken.get() < 100 {
            turns.set(turns.get() + 1);
            tokio::task::yield_now().await;
        }
    };
    let rows = in_rows(|| std::future::ready(queue.borrow_mut().pop_front()), |_| taken.set(taken.get() + 1));
    tokio::join!(rows, others);
    let rows = 100 / MOST_ARRIVALS_IN_A_ROW;
    assert!(taken.get() == 100 && (rows..=rows + 1).contains(&turns.get()), "{} turns", turns.get());
}
