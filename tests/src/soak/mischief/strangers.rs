//! What those do who are no nodes. None of them is served, and none may cost anything once it is gone.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use super::nodes::GARBAGE;
use crate::dial::{Target, tls, websocket};
use crate::raw_socket::RawSocket;
use crate::soak::fault::StrangerFault;

/// How long a stranger waits for anything.
const PATIENCE: Duration = Duration::from_secs(3);

pub(super) async fn perform(target: &Target, fault: &StrangerFault) -> bool {
    match fault {
        StrangerFault::NeverUpgrade(count, time) => {
            let dials = (0..*count).map(|_| timeout(PATIENCE, tls(target)));
            let open = join_all(dials).await;
            sleep(*time).await;
            drop(open);
        }
        StrangerFault::NeverTls(count, time) => {
            let open = connect(target, *count).await;
            sleep(*time).await;
            drop(open);
        }
        StrangerFault::Flood(count) => flood(target, *count).await,
        StrangerFault::Garbage(count) => {
            let all = (0..*count).map(|number| speak_garbage(target, number));
            drop(timeout(PATIENCE, join_all(all)).await);
        }
        StrangerFault::TooLarge => drop(timeout(PATIENCE, say_too_much(target)).await),
    }
    true
}

/// Connects `count` times at once: some leave at once, some begin with TLS, some upgrade, and all go.
async fn flood(target: &Target, count: usize) {
    let visits = (0..count).map(|number| async move {
        match number % 3 {
            0 => drop(TcpStream::connect(target.address).await),
            1 => drop(tls(target).await),
            _ => drop(websocket(target, "/", &[]).await),
        }
    });
    drop(timeout(PATIENCE * 3, join_all(visits)).await);
}

async fn connect(target: &Target, count: usize) -> Vec<TcpStream> {
    let dials = (0..count).map(|_| timeout(PATIENCE, TcpStream::connect(target.address)));
    join_all(dials).await.into_iter().flatten().flatten().collect()
}

async fn speak_garbage(target: &Target, number: usize) -> Option<()> {
    match number % 4 {
        0 => {
            let mut stream = TcpStream::connect(target.address).await.ok()?;
            stream.write_all(&[0x16, 3, 1, 0xff, 0xff, 1, 2, 3]).await.ok()?;
        }
        1 => {
            let mut stream = tls(target).await.ok()?;
            stream.write_all(b"BREW /coffee HTCPCP/1.0\r\n\r\n").await.ok()?;
            stream.flush().await.ok()?;
        }
        2 => {
            let mut socket = RawSocket::connect(target).await.ok()?;
            for text in GARBAGE {
                socket.send_text(text).await;
            }
            socket.send_binary(vec![0; 1000]).await;
        }
        _ => {
            let mut socket = websocket(target, "/", &[]).await.ok()?;
            // A frame with reserved bits.
            socket.get_mut().write_all(&[0xf1, 0x80, 0, 0, 0, 0]).await.ok()?;
            socket.get_mut().flush().await.ok()?;
        }
    }
    Some(())
}

/// The header of a frame of 17 MiB, and a first piece of it.
async fn say_too_much(target: &Target) -> Option<()> {
    let mut socket = websocket(target, "/", &[]).await.ok()?;
    let mut frame = vec![0x81, 0x80 | 127];
    frame.extend_from_slice(&(17_u64 << 20).to_be_bytes());
    frame.extend_from_slice(&[0; 4]);
    frame.extend_from_slice(&[b'x'; 4096]);
    socket.get_mut().write_all(&frame).await.ok()?;
    socket.get_mut().flush().await.ok()
}
