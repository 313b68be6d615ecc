//! A secret cannot get into a panic message, an error or a line, since its type cannot be written: no type
//! that holds one has a `Debug` or a `Display` (LOG-15).

use coreflow_ipc::{
    messages::relayd::{FromRelayd, Identity, RelaydStart, ToRelayd},
    secret::SecretText,
    typedrequest::{Answer, Body, Envelope, Outcome, PeerError, Request},
};
use coreflow_relayd::{
    contract::{
        cluster::{Certificate, CertificateAnswer},
        identity::{Identified, RegisterSession},
        ingress::{CarriedRouteTable, IngressRegistration},
        route_table::{InvalidTable, RouteTable},
        runtime::{Binding, Offered},
    },
    core, forwarder, ingress,
    listener::FromListener,
    websocket::Outlet,
};

/// Whether a type has a trait. What a type has itself goes before what every type has by another trait.
macro_rules! has {
    ($type:ty, $trait:path) => {{
        #[allow(dead_code, reason = "of the two constants one is asked for")]
        trait Otherwise {
            const ANSWER: bool = false;
        }
        impl<T: ?Sized> Otherwise for T {}
        #[allow(dead_code, reason = "it is asked and never made")]
        struct Probe<T: ?Sized>(std::marker::PhantomData<T>);
        #[allow(dead_code, reason = "of the two constants one is asked for")]
        impl<T: ?Sized + $trait> Probe<T> {
            const ANSWER: bool = true;
        }
        <Probe<$type>>::ANSWER
    }};
}

macro_rules! assert_unwritable {
    ($($type:ty),+ $(,)?) => {
        $(
            assert!(!has!($type, std::fmt::Debug), "{} has a Debug", stringify!($type));
            assert!(!has!($type, std::fmt::Display), "{} has a Display", stringify!($type));
        )+
    };
}

/// LOG-15: bodies, identities, keys, and whatever carries one of them in relayd and over its link.
#[test]
fn no_type_that_holds_a_secret_can_be_written() {
    assert_unwritable!(SecretText, Identity, RelaydStart, ToRelayd, FromRelayd);
    assert_unwritable!(Body, Request, Answer, Outcome, Envelope, PeerError);
    assert_unwritable!(Certificate, CertificateAnswer, RegisterSession<'_>, Identified<'_>, Offered<'_>);
    assert_unwritable!(forwarder::Event, forwarder::Action, core::Event, core::Effect);
    assert_unwritable!(FromListener, Outlet);
    assert!(!has!(SecretText, serde::Serialize) && !has!(Certificate, serde::Serialize));
}

/// ING-03, ING-04, LOG-06: a route table and what carries one cannot be written, serialised, or copied.
#[test]
fn a_route_table_cannot_be_written() {
    assert_unwritable!(RouteTable, CarriedRouteTable<'_>, IngressRegistration);
    assert_unwritable!(ingress::Event, ingress::Action, ingress::Ingress);
    assert!(!has!(RouteTable, serde::Serialize) && !has!(CarriedRouteTable<'_>, serde::Serialize));
    assert!(!has!(RouteTable, Clone) && !has!(ingress::Ingress, Clone));
    assert!(has!(InvalidTable, std::fmt::Debug) && has!(ingress::Note, std::fmt::Debug));
}

/// The same question finds what can be written.
#[test]
fn what_is_public_can_be_written() {
    assert!(has!(Binding, std::fmt::Debug) && has!(forwarder::Note, std::fmt::Debug));
    assert!(has!(String, std::fmt::Display) && has!(Binding, serde::Serialize));
}
