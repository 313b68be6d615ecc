//! A restart against a relay whose answers are scripted: what passes is asked again, and each end has its name.

use std::{cell::Cell, io};

use coreflow_ipc::messages::{
    hub_report::HubReport, readiness::Hop, readiness::Refusal, standing::PulldStanding,
};

use super::*;
use crate::{
    control::protocol::Restart,
    status::{Readiness, VpnHub, Worker, tests::ready},
};

/// The worker's process before and after.
const FORMER: u32 = 10;
const NEXT: u32 = 20;

/// What an ask for the status is answered.
type Look = Result<Status, AskError>;

/// How a run ended, and what it said.
#[derive(Debug, PartialEq, Eq)]
enum End {
    So(String),
    NotSo(String),
    Failed(String),
}

fn busy() -> AskError {
    AskError::Refused("control-busy: 8 connections are being served; ask again".to_owned())
}

fn late() -> AskError {
    AskError::Late(Duration::from_secs(8))
}

/// A relay whose `role` has this process in this state.
fn with(role: Role, state: WorkerState, pid: Option<u32>) -> Status {
    let workers = Role::WORKERS.map(|other| match other == role {
        true => Worker { pid, ..Worker::in_state(role.name(), state) },
        false => Worker { pid: Some(7), ..Worker::in_state(other.name(), WorkerState::Running) },
    });
    Status { workers: workers.into(), ..ready() }
}

fn runs(role: Role, pid: u32) -> Status {
    with(role, WorkerState::Running, Some(pid))
}

fn hub(mut status: Status, report: Option<HubReport>) -> Status {
    let configured = ([192, 0, 2, 15], 51_820).into();
    status.vpn_hub = Some(VpnHub { configured, refused: None, report });
    status
}

fn bound() -> HubReport {
    HubReport { bound: Some(([192, 0, 2, 15], 51_820).into()), ..HubReport::default() }
}

fn taken() -> Result<Answer, AskError> {
    Ok(Answer::Restart(Restart { worker: "it".to_owned(), former_pid: Some(FORMER) }))
}

/// Restarts `role`: the looks and the answers to the command are given one after the other, the last one for ever. Each
/// pause takes a second. How it ended, after how many seconds, and how often the command was given.
fn run(role: Role, looks: Vec<Look>, commands: Vec<Result<Answer, AskError>>) -> (End, u64, usize) {
    let (seconds, asked) = (Cell::new(0), Cell::new(0));
    let (mut looks, mut commands) = (looks.into_iter().peekable(), commands.into_iter().peekable());
    let (mut last_look, mut last_command) = (None, None);
    let ask = |command| match command {
        Command::Status => {
            last_look = looks.next().or_else(|| last_look.take());
            last_look.clone().unwrap().map(|status| Answer::Status(Box::new(status)))
        }
        Command::Restart { worker } => {
            assert_eq!(worker, role);
            asked.set(asked.get() + 1);
            last_command = commands.next().or_else(|| last_command.take());
            last_command.clone().unwrap()
        }
        other => panic!("{other:?}"),
    };
    let ended =
        carry_out(role, ask, || Duration::from_secs(seconds.get()), || seconds.set(seconds.get() + 1));
    let ended = match ended {
        Ok(Outcome { text, so: true }) => End::So(text),
        Ok(Outcome { text, so: false }) => End::NotSo(text),
        Err(error) => End::Failed(error.to_string()),
    };
    (ended, seconds.get(), asked.get())
}

fn back(role: Role, what: &str) -> End {
    End::So(format!("{role} runs again, pid {NEXT}, which was {FORMER}: {what}\n"))
}

/// OPS-02: a relay that has no place or no time for an answer is asked again, before the command and behind it.
#[test]
fn what_passes_is_asked_again() {
    let looks = vec![
        Err(busy()),
        Err(late()),
        Ok(runs(Role::Relayd, FORMER)),
        Err(busy()),
        Err(late()),
        Err(AskError::Closed),
        Ok(runs(Role::Relayd, NEXT)),
    ];
    let (end, _, asked) = run(Role::Relayd, looks, vec![Err(busy()), taken()]);
    assert_eq!((end, asked), (back(Role::Relayd, "it is open for Cloudly dispatch"), 2));
}

/// OPS-02: a command whose answer is lost is given once: it is seen whether it was carried out.
#[test]
fn a_command_whose_answer_is_lost_is_not_given_twice() {
    for lost in [late(), AskError::Closed] {
        let looks = vec![Ok(runs(Role::Relayd, FORMER)), Ok(runs(Role::Relayd, NEXT))];
        let (end, _, asked) = run(Role::Relayd, looks, vec![Err(lost.clone())]);
        assert_eq!((end, asked), (back(Role::Relayd, "it is open for Cloudly dispatch"), 1));

        let (end, seconds, asked) = run(Role::Relayd, vec![Ok(runs(Role::Relayd, FORMER))], vec![Err(lost)]);
        let End::Failed(error) = end else { panic!("{end:?}") };
        assert!(error.starts_with("restart-not-made: relayd is not restarted: "), "{error}");
        assert_eq!((seconds, asked), (60, 1));
    }
}

/// OPS-02: a restart that is not made is named apart from one that is made and brings nobody back in time.
#[test]
fn each_end_without_a_worker_has_its_name() {
    let (end, seconds, _) = run(Role::Pulld, vec![Ok(runs(Role::Pulld, FORMER))], vec![Err(busy())]);
    let not_made =
        "restart-not-made: pulld is not restarted: control-busy: 8 connections are being served; ask again";
    assert_eq!((end, seconds), (End::Failed(not_made.to_owned()), 60));

    let refused = AskError::Refused("control-worker-absent: vpnd does not run".to_owned());
    let (end, seconds, _) = run(Role::Vpnd, vec![Ok(runs(Role::Vpnd, FORMER))], vec![Err(refused.clone())]);
    assert_eq!((end, seconds), (End::Failed(refused.to_string()), 0));

    let looks = vec![Ok(runs(Role::Pulld, FORMER)), Ok(with(Role::Pulld, WorkerState::Waiting, None))];
    let (end, seconds, _) = run(Role::Pulld, looks, vec![taken()]);
    let not_back =
        "restart-not-back: pulld was restarted (pid 10 before) and is not back within 60 s: it is waiting\n";
    assert_eq!((end, seconds), (End::NotSo(not_back.to_owned()), 60));

    let gone = AskError::Unreachable("/run/control.sock".into(), io::ErrorKind::ConnectionRefused);
    let looks = vec![Ok(runs(Role::Pulld, FORMER)), Err(gone)];
    let (end, seconds, _) = run(Role::Pulld, looks, vec![taken()]);
    let End::NotSo(text) = end else { panic!("{end:?}") };
    assert!(text.contains(" and then the relay was lost: control-unreachable: "), "{text}");
    assert_eq!(seconds, 0);
}

/// OPS-02: relayd is back when the relay is open for Cloudly, not when it has greeted; what is in the way is told.
#[test]
fn relayd_is_waited_for_until_it_is_open() {
    let waiting = Status {
        state: State::Restarting,
        waiting_for: Some("Cloudly to answer".to_owned()),
        ..runs(Role::Relayd, NEXT)
    };
    let looks = vec![Ok(runs(Role::Relayd, FORMER)), Ok(waiting.clone()), Ok(runs(Role::Relayd, NEXT))];
    let (end, seconds, _) = run(Role::Relayd, looks, vec![taken()]);
    assert_eq!((end, seconds), (back(Role::Relayd, "it is open for Cloudly dispatch"), 1));

    let refusal = Refusal { hop: Hop::CloudlyClient, refusal: None, line: "parked".to_owned() };
    let blocked = Readiness { ready: false, refusals: vec![refusal] };
    for (status, why) in [
        (waiting.clone(), "waiting for Cloudly to answer"),
        (Status { readiness: blocked, ..waiting }, "cloudlyClient: parked"),
    ] {
        let (end, ..) = run(Role::Relayd, vec![Ok(runs(Role::Relayd, FORMER)), Ok(status)], vec![taken()]);
        let End::NotSo(text) = end else { panic!("{end:?}") };
        assert!(text.ends_with(&format!(" and is not back within 60 s: {why}\n")), "{text}");
    }
}

/// OPS-02: pulld is back when it answers, and vpnd when its hub stands as it did before.
#[test]
fn pulld_and_vpnd_are_waited_for_until_they_are_as_before() {
    let answers = Status { pulld: Some(PulldStanding::default()), ..runs(Role::Pulld, NEXT) };
    let looks = vec![Ok(runs(Role::Pulld, FORMER)), Ok(runs(Role::Pulld, NEXT)), Ok(answers)];
    assert_eq!(run(Role::Pulld, looks, vec![taken()]), (back(Role::Pulld, "it answers"), 1, 1));

    let (before, after) = (runs(Role::Vpnd, FORMER), runs(Role::Vpnd, NEXT));
    let reported = Some(HubReport::default());
    let looks = vec![
        Ok(hub(before.clone(), Some(bound()))),
        Ok(hub(after.clone(), None)),
        Ok(hub(after.clone(), reported.clone())),
        Ok(hub(after.clone(), Some(bound()))),
    ];
    assert_eq!(run(Role::Vpnd, looks, vec![taken()]), (back(Role::Vpnd, "its hub is bound"), 2, 1));
    let looks =
        vec![Ok(hub(before, reported.clone())), Ok(hub(after.clone(), None)), Ok(hub(after, reported))];
    assert_eq!(
        run(Role::Vpnd, looks, vec![taken()]),
        (back(Role::Vpnd, "no network is held, as before"), 1, 1)
    );
}

/// OPS-02, VPN-36: a vpnd that became off, and any worker of a relay that stops, is not waited for.
#[test]
fn what_does_not_come_back_is_not_waited_for() {
    let off = with(Role::Vpnd, WorkerState::Off, None);
    let mut refused = hub(off.clone(), None);
    refused.vpn_hub.as_mut().unwrap().refused = Some("vpn-hub-executable-missing: /a/vpnd".to_owned());
    let stops = Status { state: State::Stopping, ..with(Role::Vpnd, WorkerState::Ending, Some(FORMER)) };
    for (status, why) in [
        (off, "it is off: this relay needs none"),
        (refused, "it is off: vpn-hub-executable-missing: /a/vpnd"),
        (stops, "the relay stops"),
    ] {
        let (end, seconds, _) =
            run(Role::Vpnd, vec![Ok(runs(Role::Vpnd, FORMER)), Ok(status)], vec![taken()]);
        let told = "restart-not-back: vpnd was restarted (pid 10 before) and does not come back: ";
        assert_eq!((end, seconds), (End::NotSo(format!("{told}{why}\n")), 0));
    }
}
