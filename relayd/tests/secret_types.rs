//! A secret cannot get into a panic message, an error or a line, since its type cannot be written: no type
//! that holds one has a `Debug` or a `Display` (LOG-15).

use std::fmt::{Debug, Display};

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
use serde::Serialize;
use static_assertions::{assert_impl_all, assert_not_impl_any};

/// Does not compile where one of the types can be written.
macro_rules! assert_unwritable {
    ($($type:ty),+ $(,)?) => {
        $(assert_not_impl_any!($type: Debug, Display);)+
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
    assert_not_impl_any!(SecretText: Serialize);
    assert_not_impl_any!(Certificate: Serialize);
}

/// ING-03, ING-04, LOG-06: a route table and what carries one cannot be written, serialised, or copied.
#[test]
fn a_route_table_cannot_be_written() {
    assert_unwritable!(RouteTable, CarriedRouteTable<'_>, IngressRegistration);
    assert_unwritable!(ingress::Event, ingress::Action, ingress::Ingress);
    assert_not_impl_any!(RouteTable: Serialize, Clone);
    assert_not_impl_any!(CarriedRouteTable<'_>: Serialize);
    assert_not_impl_any!(ingress::Ingress: Clone);
    assert_impl_all!(InvalidTable: Debug);
}

/// What is public can be written.
#[test]
fn what_is_public_can_be_written() {
    assert_impl_all!(Binding: Debug, Serialize);
    assert_impl_all!(forwarder::Note: Debug);
    assert_impl_all!(ingress::Note: Debug);
}
