//! What honest workers do, tried under the filter.
#![expect(unsafe_code, reason = "many datagrams per call are sent and received with raw system calls")]

use std::io::Write as _;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use coreflow_ipc::sys::{self, Errno};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::attempts::{Answered, Attempt, errno};
use super::child::Attacker;
use super::network::socket;

pub(crate) const ATTEMPTS: &[(&str, Attempt)] = &[
    ("threads", threads),
    ("panic", panic),
    ("memory", memory),
    ("random", random),
    ("runtime", runtime),
    ("record", record),
    ("serve", serve),
    ("answer datagrams", answer_datagrams),
    ("write to what it is handed", write_to_handed),
    ("receive more than its limit", receive_too_many),
];

fn works() -> Answered {
    Ok("works".to_owned())
}

fn threads(_: &mut Attacker) -> Answered {
    let started: Vec<_> = (0..8_u64).map(|n| std::thread::Builder::new().spawn(move || n * n)).collect();
    let mut sum = 0;
    for thread in started {
        sum += thread.map_err(|error| errno(&error))?.join().expect("the thread ends");
    }
    assert_eq!(sum, 140);
    works()
}

fn panic(_: &mut Attacker) -> Answered {
    let thread = std::thread::spawn(|| panic!("an honest panic"));
    assert!(thread.join().is_err());
    works()
}

/// Small, large and growing blocks, from several threads, so that the allocator maps, grows, trims and adds
/// arenas.
fn memory(_: &mut Attacker) -> Answered {
    let threads: Vec<_> = (1..4_usize)
        .map(|n| {
            std::thread::spawn(move || {
                let mut grown = Vec::new();
                for round in 0..200_usize {
                    grown.resize(round * 64 * 1024, n as u8);
                    let small: Vec<Vec<u8>> = (0..50).map(|size| vec![0; size * n]).collect();
                    assert_eq!(small.len(), 50);
                }
                grown.shrink_to_fit();
                grown.len()
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().expect("memory is there"), 199 * 64 * 1024);
    }
    works()
}

fn random(_: &mut Attacker) -> Answered {
    let (mut one, mut other) = ([0_u8; 32], [0_u8; 32]);
    getrandom::fill(&mut one).expect("random numbers");
    getrandom::fill(&mut other).expect("random numbers");
    assert_ne!(one, other);
    works()
}

/// A runtime of several threads with a timer, a blocking task and its link as an asynchronous stream.
fn runtime(attacker: &mut Attacker) -> Answered {
    let link = attacker.link.try_clone().map_err(|error| errno(&error))?;
    link.set_nonblocking(true).map_err(|error| errno(&error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(3).enable_all().build();
    runtime.map_err(|error| errno(&error))?.block_on(async {
        let link = tokio::net::UnixStream::from_std(link).expect("the link can be polled");
        link.writable().await.expect("the link is writable");
        let tasks: Vec<_> = (0..8_u32).map(|n| tokio::spawn(async move { n })).collect();
        for task in tasks {
            task.await.expect("the task ends");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(tokio::task::spawn_blocking(|| 7).await.expect("a blocking thread starts"), 7);
    });
    attacker.link.set_nonblocking(false).map_err(|error| errno(&error))?;
    works()
}

/// The clocks that a record and a deadline need, and a name for a thread.
fn record(_: &mut Attacker) -> Answered {
    sys::set_process_name(c"confined")?;
    assert!(std::time::SystemTime::now() > std::time::UNIX_EPOCH);
    let before = std::time::Instant::now();
    assert!(std::time::Instant::now() >= before);
    eprintln!("last words go to the pipe");
    works()
}

fn handed(attacker: &Attacker) -> OwnedFd {
    let (_, descriptors) =
        sys::receive_with_descriptors(attacker.link.as_fd(), &mut [0], 1).expect("a descriptor comes");
    descriptors.into_iter().next().expect("one descriptor")
}

/// One exchange over the listener that was handed over, on a runtime of several threads.
fn serve(attacker: &mut Attacker) -> Answered {
    let listener = TcpListener::from(handed(attacker));
    listener.set_nonblocking(true).map_err(|error| errno(&error))?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.map_err(|error| errno(&error))?.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("the listener can be polled");
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a node dials");
            stream.set_nodelay(true).expect("no delay");
            let mut asked = [0; 4];
            stream.read_exact(&mut asked).await.expect("four bytes");
            assert_eq!(&asked, b"ping");
            stream.write_all(b"pong").await.expect("four bytes");
            stream.shutdown().await.expect("an orderly end");
        });
        served.await.expect("served");
        let (mut ours, mut theirs) = tokio::net::UnixStream::pair().expect("a pair for pulld");
        ours.write_all(b"!").await.expect("one byte");
        assert_eq!(theirs.read_u8().await.expect("one byte"), b'!');
    });
    works()
}

fn write_to_handed(attacker: &mut Attacker) -> Answered {
    let mut stream = UnixStream::from(handed(attacker));
    stream.write_all(b"over here").map_err(|error| errno(&error))?;
    works()
}

/// A message that brings more descriptors than the table has room for, twice, and one that fits after each.
fn receive_too_many(attacker: &mut Attacker) -> Answered {
    for _ in 0..2 {
        let refused = sys::receive_with_descriptors(attacker.link.as_fd(), &mut [0], 253);
        assert_eq!(refused.map(|(count, _)| count), Err(sys::PassingError::Truncated));
        let taken = sys::receive_with_descriptors(attacker.link.as_fd(), &mut [0], 253);
        assert_eq!(taken.map(|(count, descriptors)| (count, descriptors.len())), Ok((1, 40)));
    }
    works()
}

/// Echoes one datagram by `recvfrom` and `sendto` and one by `recvmmsg` and `sendmmsg`, then tries to go
/// further.
fn answer_datagrams(attacker: &mut Attacker) -> Answered {
    let hub = UdpSocket::from(handed(attacker));
    let mut bytes = [0; 64];
    let (length, node) = hub.recv_from(&mut bytes).map_err(|error| errno(&error))?;
    hub.send_to(&bytes[..length], node).map_err(|error| errno(&error))?;
    echo_many(&hub)?;
    let answers = [
        hub.connect(node).map_err(|error| errno(&error)).err(),
        socket(libc::AF_INET, libc::SOCK_DGRAM, 0).err(),
        socket(libc::AF_INET, libc::SOCK_STREAM, 0).err(),
    ];
    let [connect, udp, tcp] = answers.map(|answer| answer.map_or("allowed".to_owned(), |e| format!("{e:?}")));
    Ok(format!("connect {connect}, udp {udp}, tcp {tcp}"))
}

fn echo_many(hub: &UdpSocket) -> Result<(), Errno> {
    let mut bytes = [0_u8; 64];
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: an address is plain numbers, for which all zeros are valid.
    let mut address: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
    // SAFETY: a message is plain numbers and pointers, for which all zeros are valid.
    let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
    message.msg_hdr.msg_name = (&raw mut address).cast();
    message.msg_hdr.msg_namelen = size_of_val(&address) as libc::socklen_t;
    message.msg_hdr.msg_iov = &raw mut part;
    message.msg_hdr.msg_iovlen = 1;
    // SAFETY: one message, whose buffers are live; a null timeout waits without a bound, which the test has.
    let received = unsafe { libc::recvmmsg(hub.as_raw_fd(), &raw mut message, 1, 0, std::ptr::null_mut()) };
    assert_eq!(Errno::result(received)?, 1);
    let mut reply = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: message.msg_len as usize };
    message.msg_hdr.msg_iov = &raw mut reply;
    // SAFETY: the same message, of which the received part is sent back.
    let sent = unsafe { libc::sendmmsg(hub.as_raw_fd(), &raw mut message, 1, 0) };
    assert_eq!(Errno::result(sent)?, 1);
    Ok(())
}
