//! Calls that wait for an answer: matched by `correlation.id`, and by `requestInstanceId` where the
//! answer states one; bounded in time; sent again where an answer asks for it, at most three times
//! and never past the call's own deadline.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use coreflow_ipc::{
    now::Now,
    typedrequest::{Answer, Body, IdSource, Outcome, write_request},
};

use crate::constants::RETRIES;

struct Call<P> {
    method: String,
    body: Body,
    deadline: Duration,
    instance: String,
    resend: Option<Duration>,
    retries: u8,
    purpose: P,
}

impl<P> Call<P> {
    fn due(&self) -> Duration {
        self.resend.unwrap_or(self.deadline)
    }
}

/// A call that ended, and why it was made.
pub struct Ended<P> {
    /// The method that was called.
    pub method: String,
    /// The body that was sent.
    pub body: Body,
    /// What the caller left with it.
    pub purpose: P,
}

/// What a passed deadline means.
pub enum Due<P> {
    /// The wait that an answer asked for is over: the frame goes out again.
    Resend {
        /// A copy of what the caller left with the call.
        purpose: P,
        /// The frame, with a new `requestInstanceId`.
        frame: String,
    },
    /// No answer came in time.
    Expired(Ended<P>),
}

/// The open calls of one hop.
pub struct Pending<P> {
    ids: IdSource,
    calls: BTreeMap<u64, Call<P>>,
    due: BTreeSet<(Duration, u64)>,
    owner: Option<fn(&P) -> u64>,
    owned: BTreeSet<(u64, u64)>,
}

impl<P> Default for Pending<P> {
    fn default() -> Self {
        let (calls, due, owned) = (BTreeMap::new(), BTreeSet::new(), BTreeSet::new());
        Self { ids: IdSource::new(), calls, due, owner: None, owned }
    }
}

impl<P: Clone> Pending<P> {
    /// Calls that have owners, whose calls [`Pending::end_of`] finds among however many others.
    pub fn of_owners(owner: fn(&P) -> u64) -> Self {
        Self { owner: Some(owner), ..Self::default() }
    }

    /// Opens a call that is answered until `deadline`, and gives the frame to send.
    pub fn open(&mut self, method: String, body: Body, deadline: Duration, purpose: P) -> String {
        let number = self.ids.take();
        let instance_number = self.ids.take();
        let instance = self.ids.write(instance_number);
        let frame = write_request(&method, &body, &self.ids.write(number), &instance);
        let call = Call { method, body, deadline, instance, resend: None, retries: 0, purpose };
        self.due.insert((call.due(), number));
        if let Some(owner) = self.owner {
            self.owned.insert((owner(&call.purpose), number));
        }
        self.calls.insert(number, call);
        frame
    }

    /// Whether the answer is to one of these calls, or to one that was: its id is of this hop.
    pub fn made(&self, answer: &Answer) -> bool {
        self.ids.number(&answer.correlation).is_some()
    }

    /// Matches an answer that came from where `from` says the call went. `None` for an answer nobody
    /// waits for, and for one that asks to be asked again later.
    pub fn answered(
        &mut self,
        answer: Answer,
        now: Now,
        from: impl Fn(&P) -> bool,
    ) -> Option<(Ended<P>, Outcome)> {
        let number = self.ids.number(&answer.correlation)?;
        let call = self.calls.get_mut(&number).filter(|call| from(&call.purpose))?;
        let stated = answer.instance.as_deref();
        if call.resend.is_some() || stated.is_some_and(|instance| instance != call.instance) {
            return None;
        }
        if let Some(wait_ms) = answer.retry_after_ms
            && call.retries < RETRIES
            && let Some(at) = now.mono.checked_add(Duration::from_millis(wait_ms))
            && at < call.deadline
        {
            self.due.remove(&(call.due(), number));
            call.retries += 1;
            call.resend = Some(at);
            self.due.insert((at, number));
            return None;
        }
        Some((self.end(number), answer.outcome))
    }

    /// When [`Pending::due`] has something, on the monotonic clock.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.due.first().map(|(at, _)| *at)
    }

    /// The next call whose deadline has passed.
    pub fn due(&mut self, now: Now) -> Option<Due<P>> {
        let (at, number) = self.due.first().copied().filter(|(at, _)| *at <= now.mono)?;
        let call = self.calls.get_mut(&number).expect("each deadline is of an open call");
        if call.resend.is_none() || call.deadline <= now.mono {
            return Some(Due::Expired(self.end(number)));
        }
        let instance_number = self.ids.take();
        call.resend = None;
        call.instance = self.ids.write(instance_number);
        let frame = write_request(&call.method, &call.body, &self.ids.write(number), &call.instance);
        let purpose = call.purpose.clone();
        self.due.remove(&(at, number));
        self.due.insert((call.deadline, number));
        Some(Due::Resend { purpose, frame })
    }

    /// Ends every call that `which` chooses, in the order in which they were made.
    pub fn end_where(&mut self, which: impl Fn(&P) -> bool) -> Vec<Ended<P>> {
        let numbers: Vec<u64> =
            self.calls.iter().filter(|(_, call)| which(&call.purpose)).map(|(number, _)| *number).collect();
        numbers.into_iter().map(|number| self.end(number)).collect()
    }

    /// Ends every call of `owner`, in the order in which they were made.
    pub fn end_of(&mut self, owner: u64) -> Vec<Ended<P>> {
        let owned = self.owned.range((owner, 0)..=(owner, u64::MAX));
        let numbers: Vec<u64> = owned.map(|(_, number)| *number).collect();
        numbers.into_iter().map(|number| self.end(number)).collect()
    }

    /// How many calls are open.
    pub fn len(&self) -> usize {
        self.calls.len()
    }

    /// Whether no call is open.
    pub fn is_empty(&self) -> bool {
        self.calls.is_empty()
    }

    fn end(&mut self, number: u64) -> Ended<P> {
        let call = self.calls.remove(&number).expect("only open calls are ended");
        self.due.remove(&(call.due(), number));
        if let Some(owner) = self.owner {
            self.owned.remove(&(owner(&call.purpose), number));
        }
        debug_assert_eq!(self.due.len(), self.calls.len(), "each call has one deadline");
        Ended { method: call.method, body: call.body, purpose: call.purpose }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use coreflow_ipc::typedrequest::{Envelope, Request, read};

    use super::*;

    const S: Duration = Duration::from_secs(1);

    fn at(mono: Duration) -> Now {
        Now { wall: 0, mono }
    }

    fn sent(frame: &str) -> Request {
        match read(&Bytes::copy_from_slice(frame.as_bytes())) {
            Ok(Envelope::Request(request)) => request,
            Ok(Envelope::Answer(_)) | Err(_) => panic!("no request: {frame}"),
        }
    }

    fn answer(request: &Request, retry_after_ms: Option<u64>) -> Answer {
        Answer {
            correlation: request.ids.correlation.clone(),
            instance: request.ids.instance.clone(),
            outcome: Outcome::Response(Body::empty()),
            retry_after_ms,
        }
    }

    #[test]
    fn an_answer_is_matched_by_both_ids_and_only_once() {
        let mut pending = Pending::default();
        let request = sent(&pending.open("m".into(), Body::empty(), S, "purpose"));
        let stranger = Answer { instance: Some("other".into()), ..answer(&request, None) };
        assert!(pending.answered(stranger, at(Duration::ZERO), |_| true).is_none());
        assert!(pending.answered(answer(&request, None), at(Duration::ZERO), |_| false).is_none());
        let older = Answer { instance: None, ..answer(&request, None) };
        assert_eq!(pending.answered(older, at(Duration::ZERO), |_| true).unwrap().0.purpose, "purpose");
        assert!(pending.answered(answer(&request, None), at(Duration::ZERO), |_| true).is_none());
        assert!(pending.is_empty() && pending.next_deadline().is_none());
    }

    /// Contract section 1, `retry`: the same correlation id, a new instance id, three times at most.
    #[test]
    fn a_retry_is_sent_again_three_times_and_never_past_the_deadline() {
        let mut pending = Pending::default();
        let mut request = sent(&pending.open("m".into(), Body::empty(), 100 * S, ()));
        for attempt in 1..=3_u32 {
            assert!(pending.answered(answer(&request, Some(1000)), at(attempt * S), |()| true).is_none());
            assert!(pending.due(at(attempt * S)).is_none(), "not before its wait");
            let Some(Due::Resend { frame, .. }) = pending.due(at((attempt + 1) * S)) else { panic!() };
            let again = sent(&frame);
            assert_eq!(again.ids.correlation, request.ids.correlation);
            assert_ne!(again.ids.instance, request.ids.instance);
            request = again;
        }
        assert!(pending.answered(answer(&request, Some(1000)), at(5 * S), |()| true).is_some());

        let request = sent(&pending.open("m".into(), Body::empty(), 10 * S, ()));
        assert!(pending.answered(answer(&request, Some(60_000)), at(6 * S), |()| true).is_some());
    }

    #[test]
    fn the_calls_of_an_owner_end_together_and_no_other() {
        let mut pending = Pending::of_owners(|owner: &u64| *owner);
        for owner in [1, 2, 1, 3] {
            pending.open("m".into(), Body::empty(), 8 * S, owner);
        }
        let second = sent(&pending.open("m".into(), Body::empty(), 8 * S, 2));
        assert_eq!(pending.end_of(1).len(), 2);
        assert_eq!(pending.end_of(1).len(), 0);
        assert!(pending.answered(answer(&second, None), at(Duration::ZERO), |_| true).is_some());
        assert_eq!((pending.end_of(2).len(), pending.len(), pending.owned.len()), (1, 1, 1));
    }

    #[test]
    fn a_call_without_an_answer_expires() {
        let mut pending = Pending::default();
        pending.open("slow".into(), Body::empty(), 8 * S, ());
        pending.open("other".into(), Body::empty(), 9 * S, ());
        assert!(pending.due(at(8 * S - Duration::from_nanos(1))).is_none());
        let Some(Due::Expired(ended)) = pending.due(at(8 * S)) else { panic!("not expired") };
        assert_eq!((ended.method.as_str(), pending.len()), ("slow", 1));
    }
}
