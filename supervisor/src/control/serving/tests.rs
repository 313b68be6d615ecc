//! The control socket over a real socket file, with a loop that answers as the supervisor's does.

use std::{ops::ControlFlow, path::PathBuf, sync::Arc};

use coreflow_ipc::messages::ToWorker;
use tokio::{net::UnixStream, task::JoinHandle};

use super::*;
use crate::{
    constants::{CONTROL_ANSWER_BYTES, CONTROL_ASK_BOUND, TRACE_KEPT},
    control::{
        ControlSocket, FILE, SocketFile,
        asking::{AskError, ask, follow},
        trace_lines::Read,
    },
    trace::{Direction, Tap},
};

/// What the loop of these tests answers.
const ANSWER: &str = "test: the loop was asked";

struct Served {
    _directory: tempfile::TempDir,
    _file: SocketFile,
    path: PathBuf,
    loop_: JoinHandle<()>,
}

/// A served socket whose loop answers each command with `answer`.
fn served(answer: String) -> Served {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    let ControlSocket { listener, file } = ControlSocket::bind(&path).unwrap();
    let (asks, mut asked) = mpsc::channel::<Asked>(CONTROL_CONNECTIONS);
    serve(listener, asks, Clock::start()).unwrap();
    let loop_ = tokio::spawn(async move {
        while let Some(asked) = asked.recv().await {
            assert_eq!(asked.command, Command::Status);
            // A client that is gone takes none.
            let _ = asked.answer.send(Reply::Answer(Answer::Error(answer.clone())));
        }
    });
    Served { _directory: directory, _file: file, path, loop_ }
}

impl Served {
    /// Sends `request` and reads to the end.
    async fn say(&self, request: &[u8]) -> String {
        let mut stream = UnixStream::connect(&self.path).await.unwrap();
        // A server that has read enough closes, and what is left is not taken.
        let _ = stream.write_all(request).await;
        let mut answer = Vec::new();
        // What was not taken makes the end of the stream a reset one, behind the answer.
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap()
    }

    async fn ask(&self) -> Result<Answer, AskError> {
        ask(&self.path, Command::Status, CONTROL_ASK_BOUND).await
    }
}

/// One request, one line in return, and then the connection ends.
#[tokio::test]
async fn a_request_is_answered_once() {
    let served = served(ANSWER.to_owned());
    assert_eq!(served.ask().await, Err(AskError::Refused(ANSWER.to_owned())));
    let answer = format!("{{\"error\":\"{ANSWER}\"}}\n");
    for request in ["{\"command\":\"status\"}\n", "{\"command\":\"status\"}\n{\"command\":\"status\"}\n"] {
        assert_eq!(served.say(request.as_bytes()).await, answer);
    }
    let mut halves = UnixStream::connect(&served.path).await.unwrap();
    for half in ["{\"command\":", "\"status\"}"] {
        halves.write_all(half.as_bytes()).await.unwrap();
        tokio::task::yield_now().await;
    }
    halves.shutdown().await.unwrap();
    let mut read = String::new();
    halves.read_to_string(&mut read).await.unwrap();
    assert_eq!(read, answer, "the end of the stream ends the line");
}

/// What is no request is refused by name, however long it is, and the socket goes on.
#[tokio::test]
async fn garbage_is_refused_by_name() {
    let served = served(ANSWER.to_owned());
    let longest = format!("{{\"command\":\"status\"}}{}", " ".repeat(CONTROL_REQUEST_BYTES - 20));
    assert_eq!(longest.len(), CONTROL_REQUEST_BYTES);
    for (request, name) in [
        (b"\n".to_vec(), "control-request-malformed"),
        (b"\xff\xfe\0\n".to_vec(), "control-request-malformed"),
        (b"{\"command\":\"stop\"}\n".to_vec(), "control-command-unknown"),
        (format!("{longest} \n").into_bytes(), "control-request-too-long"),
        (vec![b'x'; 1 << 20], "control-request-too-long"),
    ] {
        let answer = served.say(&request).await;
        assert!(
            answer.starts_with(&format!("{{\"error\":\"{name}: ")) && answer.ends_with("\"}\n"),
            "{answer}"
        );
    }
    assert!(served.say(format!("{longest}\n").as_bytes()).await.contains(ANSWER));
}

/// Eight connections are served at once; a ninth is told so, and finds a place when one has ended.
#[tokio::test]
async fn the_ninth_connection_is_told_to_come_again() {
    let served = served(ANSWER.to_owned());
    let mut silent = Vec::new();
    for _ in 0..CONTROL_CONNECTIONS {
        silent.push(UnixStream::connect(&served.path).await.unwrap());
    }
    let AskError::Refused(busy) = served.ask().await.unwrap_err() else { panic!("an answer") };
    assert!(busy.starts_with("control-busy: 8 connections"), "{busy}");
    drop(silent.pop());
    let came = async {
        while served.ask().await != Err(AskError::Refused(ANSWER.to_owned())) {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(5), came).await.expect("a place is free");
}

/// A client that says nothing is told why it gets nothing, once the exchange has taken its time.
#[tokio::test(start_paused = true)]
async fn a_silent_client_costs_one_place_for_a_bounded_time() {
    let served = served(ANSWER.to_owned());
    let began = Instant::now();
    let mut silent = UnixStream::connect(&served.path).await.unwrap();
    let mut answer = String::new();
    silent.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("{\"error\":\"control-request-late: "), "{answer}");
    assert!(began.elapsed() >= CONTROL_EXCHANGE_BOUND && began.elapsed() < 2 * CONTROL_EXCHANGE_BOUND);
}

/// A client that reads nothing is given up, and the loop was never held back by it.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_given_up() {
    let served = served("x".repeat(CONTROL_ANSWER_BYTES - 100));
    let mut stuck = Vec::new();
    for _ in 0..CONTROL_CONNECTIONS {
        let mut stream = UnixStream::connect(&served.path).await.unwrap();
        // Less room than the answer needs.
        let socket = nix::sys::socket::sockopt::SndBuf;
        nix::sys::socket::setsockopt(&stream, socket, &4096).unwrap();
        stream.write_all(Command::Status.line().as_bytes()).await.unwrap();
        stuck.push(stream);
    }
    sleep(CONTROL_EXCHANGE_BOUND + Duration::from_secs(1)).await;
    assert!(served.ask().await.unwrap_err().to_string().starts_with("xxx"));
}

/// A served socket whose loop answers each command with a trace, and the tap of that.
fn traced() -> (Served, Tap) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    let ControlSocket { listener, file } = ControlSocket::bind(&path).unwrap();
    let (asks, mut asked) = mpsc::channel::<Asked>(CONTROL_CONNECTIONS);
    serve(listener, asks, Clock::start()).unwrap();
    let tap = Tap::new(Clock::start());
    let watched = tap.clone();
    let loop_ = tokio::spawn(async move {
        while let Some(asked) = asked.recv().await {
            assert_eq!(asked.command, TRACE);
            assert_eq!(asked.peer.pid, Some(i32::try_from(std::process::id()).unwrap()));
            let _ = asked.answer.send(Reply::Trace(Role::Vpnd, watched.watch()));
        }
    });
    (Served { _directory: directory, _file: file, path, loop_ }, tap)
}

const TRACE: Command = Command::Trace { worker: Role::Vpnd };

/// Waits until so many look at the tap.
async fn watchers(tap: &Tap, count: usize) {
    let changed = async {
        while tap.watchers() != count {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(5), changed).await.expect("a change of who looks");
}

/// A trace goes on for as long as the client stays, by one line for each message, and its place is free after it.
#[tokio::test]
async fn a_trace_goes_on_until_the_client_leaves() {
    let (served, tap) = traced();
    let mut read = Vec::new();
    let passing = tap.clone();
    let each = |line: Read| {
        if matches!(line, Read::Tracing(_)) {
            for number in [7, 8] {
                passing.passed(9, Direction::ToWorker, &ToWorker::Ping(number), 12, 0);
            }
        }
        read.push(line);
        if read.len() == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    follow(&served.path, TRACE, CONTROL_ASK_BOUND, each).await.unwrap();
    assert_eq!(read[0], Read::Tracing("vpnd".to_owned()));
    let [Read::Trace(first), Read::Trace(second)] = &read[1..] else { panic!("{read:?}") };
    assert_eq!((first.kind.as_str(), first.id, second.id, first.bytes), ("Ping", Some(7), Some(8), 12));
    watchers(&tap, 0).await;
}

/// A client that reads nothing of its trace loses the oldest messages, is told how many, and is given up in time.
#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_its_trace_is_given_up() {
    let (served, tap) = traced();
    let mut stream = UnixStream::connect(&served.path).await.unwrap();
    stream.write_all(TRACE.line().as_bytes()).await.unwrap();
    watchers(&tap, 1).await;
    let mut line = vec![0; b"{\"tracing\":\"vpnd\"}\n".len()];
    stream.read_exact(&mut line).await.unwrap();
    assert_eq!(line, b"{\"tracing\":\"vpnd\"}\n");
    for number in 0..u64::try_from(TRACE_KEPT).unwrap() + 3 {
        tap.passed(9, Direction::ToWorker, &ToWorker::Ping(number), 12, 0);
    }
    let mut left_out = vec![0; b"{\"leftOut\":3}\n".len()];
    stream.read_exact(&mut left_out).await.unwrap();
    assert_eq!(left_out, b"{\"leftOut\":3}\n");
    for number in 0..100_000 {
        tap.passed(9, Direction::ToWorker, &ToWorker::Ping(number), 12, 0);
        if number % 256 == 0 {
            tokio::task::yield_now().await;
        }
    }
    sleep(CONTROL_EXCHANGE_BOUND + Duration::from_secs(1)).await;
    watchers(&tap, 0).await;
}

/// When the loop has ended there is nobody to ask.
#[tokio::test]
async fn a_relay_that_ends_says_so() {
    let served = served(ANSWER.to_owned());
    served.loop_.abort();
    let mut served = served;
    let _ = (&mut served.loop_).await;
    let AskError::Refused(ended) = served.ask().await.unwrap_err() else { panic!("an answer") };
    assert_eq!(ended, "control-ended: the relay ends");
}

/// Root and the relay's own user may ask; nobody else, and nobody of whom nothing is known.
#[test]
fn only_root_and_the_relays_own_user_may_ask() {
    assert!(admits(Some(0), 1000) && admits(Some(1000), 1000) && admits(Some(0), 0));
    assert!(!admits(Some(1001), 1000) && !admits(Some(60_801), 0) && !admits(None, 0));
}

/// Refused peers are told at once, and then counted until it is time for the next line.
#[test]
fn refused_peers_are_counted_between_lines() {
    let mut foreigners = Foreigners::default();
    let at = Duration::from_secs;
    assert_eq!(foreigners.refuse(at(5)), Some(1));
    assert_eq!((foreigners.refuse(at(6)), foreigners.refuse(at(64))), (None, None));
    assert_eq!(foreigners.refuse(at(65)), Some(3));
    assert_eq!(foreigners.refuse(at(66)), None);
}

/// The asking end names each way in which there is no answer.
#[tokio::test]
async fn the_asking_end_names_what_goes_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(FILE);
    let bound = Duration::from_secs(5);
    let error = ask(&path, Command::Status, bound).await.unwrap_err();
    assert_eq!(error, AskError::Unreachable(path.clone(), io::ErrorKind::NotFound));
    let listener = Arc::new(tokio::net::UnixListener::bind(&path).unwrap());
    let answer_with = |bytes: Vec<u8>| {
        let listener = Arc::clone(&listener);
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = vec![0; Command::Status.line().len()];
            stream.read_exact(&mut request).await.unwrap();
            // One that has heard enough does not take the rest.
            let _ = stream.write_all(&bytes).await;
        })
    };
    for (bytes, expected) in [
        (b"".to_vec(), "control-closed: "),
        (b"{\"status\":".to_vec(), "control-closed: "),
        (b"{\"metrics\":{}}\n".to_vec(), "control-answer-unreadable: "),
        (b"hello\n".to_vec(), "control-answer-unreadable: "),
        (b"{\"error\":\"a: b\"}\n".to_vec(), "a: b"),
        (vec![b'x'; 3 * CONTROL_ANSWER_BYTES], "control-answer-too-long: "),
    ] {
        let answering = answer_with(bytes);
        let error = ask(&path, Command::Status, bound).await.unwrap_err().to_string();
        assert!(error.starts_with(expected), "{expected}: {error}");
        answering.await.unwrap();
    }
    let error = ask(&path, Command::Status, Duration::from_millis(50)).await.unwrap_err();
    assert_eq!(error, AskError::Late(Duration::from_millis(50)));
    drop(listener);
    let error = ask(&path, Command::Status, bound).await.unwrap_err();
    assert_eq!(error, AskError::Unreachable(path, io::ErrorKind::ConnectionRefused));
}
