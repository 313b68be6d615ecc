use std::time::Duration;

use tokio::{
    io::AsyncReadExt,
    time::{Instant, sleep},
};

use super::*;
use crate::constants::{BODY_IDLE, NODE_IDLE};

/// PULL-18, PULL-30: a node that reads 5 kB each second is not taken for one that stands still, though the pair has
/// room for more only now and then; one that does stand still is.
#[tokio::test(start_paused = true)]
async fn a_slow_and_steady_reader_is_not_given_up() {
    let (near, mut far) = UnixStream::pair().unwrap();
    let (idle, bytes, began) = (Idle::default(), vec![b'x'; 1 << 20], Instant::now());
    let reading = async {
        let (mut part, mut read) = ([0; 4096], 0);
        while read < bytes.len() {
            read += far.read(&mut part).await.unwrap();
            sleep(Duration::from_millis(820)).await;
        }
    };
    tokio::select! {
        () = async { let (written, ()) = tokio::join!(write(&near, &bytes, &idle), reading); assert!(written.is_ok()) } => {}
        () = idle.over() => panic!("given up after {:?}", began.elapsed()),
    }
    assert!(began.elapsed() > 5 * BODY_IDLE);

    let began = Instant::now();
    tokio::select! {
        _ = write(&near, &bytes, &idle) => panic!("nobody reads"),
        () = idle.over() => {}
    }
    assert!(began.elapsed() >= NODE_IDLE && began.elapsed() < NODE_IDLE + Duration::from_millis(10));
}
