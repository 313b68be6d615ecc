//! The bytes of both payloads, and what is none.

use proptest::prelude::*;

use super::*;

fn grant() -> Grant {
    Grant {
        address: Ipv4Addr::new(10, 99, 0, 7),
        control_prefix: Prefix { address: Ipv4Addr::new(10, 99, 0, 0), length: 24 },
        mtu: 1380,
        keepalive: Duration::from_secs(5),
        generation: 3,
        revision: 0x0102,
    }
}

#[test]
fn the_payloads_are_these_bytes() {
    assert_eq!(Wish::of_mtu(1380).encode(), [0, 1, 0x05, 0x64]);
    let expected = [
        10, 99, 0, 7, 10, 99, 0, 0, 24, 0x05, 0x64, 0, 0, 0x13, 0x88, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0, 0,
        0, 1, 2,
    ];
    assert_eq!(grant().encode(), expected);
    assert_eq!(Grant::decode(&expected), Ok(grant()));
    assert_eq!(grant().hub_address(), Ipv4Addr::new(10, 99, 0, 1));
}

#[test]
fn another_version_is_told_from_a_payload_that_is_none() {
    assert_eq!(Wish::decode(&[0, 1, 5, 100]), Ok(Wish { version: 1, mtu: 1380 }));
    for other in [&[0, 2][..], &[0, 2, 1, 2, 3, 4, 5], &[0, 0, 5, 100]] {
        assert!(matches!(Wish::decode(other), Err(ControlError::Version(0 | 2))), "{other:?}");
    }
    for none in [&[][..], &[0], &[0, 1], &[0, 1, 5], &[0, 1, 5, 100, 0]] {
        assert_eq!(Wish::decode(none), Err(ControlError::Payload("length")), "{none:?}");
    }
}

#[test]
fn the_mtu_is_as_wished_within_bounds() {
    for (wished, granted) in [(0, 1280), (1279, 1280), (1300, 1300), (1380, 1380), (9000, 1380)] {
        assert_eq!(Wish::of_mtu(wished).granted_mtu(), granted);
    }
}

#[test]
fn a_grant_that_cannot_be_is_refused() {
    let network = Ipv4Addr::new(10, 99, 0, 0);
    for (change, member) in [
        (Box::new(|grant: &mut Grant| grant.mtu = 1279) as Box<dyn Fn(&mut Grant)>, "MTU"),
        (Box::new(|grant| grant.keepalive = Duration::ZERO), "keepalive"),
        (Box::new(|grant| grant.control_prefix.length = 33), "prefix"),
        (Box::new(|grant| grant.control_prefix.length = 0), "prefix"),
        (Box::new(|grant| grant.control_prefix.length = 31), "prefix"),
        (Box::new(|grant| grant.control_prefix.length = 14), "prefix"),
        (Box::new(move |grant| grant.address = network), "address"),
        (Box::new(|grant| grant.address = Ipv4Addr::new(10, 99, 0, 1)), "address"),
        (Box::new(|grant| grant.address = Ipv4Addr::new(10, 99, 0, 255)), "address"),
        (Box::new(|grant| grant.address = Ipv4Addr::new(10, 99, 1, 2)), "address"),
        (Box::new(|grant| grant.address = Ipv4Addr::new(10, 98, 255, 255)), "address"),
    ] {
        let mut grant = grant();
        change(&mut grant);
        assert_eq!(Grant::decode(&grant.encode()), Err(ControlError::Payload(member)));
    }
    for length in [0, 30, 32] {
        assert_eq!(Grant::decode(&vec![0; length]), Err(ControlError::Payload("length")));
    }
}

#[test]
fn a_message_is_framed_by_its_length() {
    assert_eq!(framed(b"ab"), Ok(vec![0, 2, b'a', b'b']));
    assert_eq!(framed(&[7; 1024]).unwrap()[..3], [4, 0, 7]);
    for length in [0, 1025] {
        assert_eq!(framed(&vec![0; length]), Err(ControlError::Length(length)));
    }
}

proptest! {
    #[test]
    fn any_payload_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..40)) {
        if let Ok(wish) = Wish::decode(&bytes) {
            prop_assert_eq!(&wish.encode(), &bytes);
        }
        if let Ok(grant) = Grant::decode(&bytes) {
            prop_assert_eq!(grant.encode(), bytes);
        }
    }

    #[test]
    fn a_grant_comes_back(
        network: u32, length in 1_u8..=30, host in 2_u32.., mtu in 1280_u16.., keepalive in 1_u32..,
        generation: u64, revision: u64,
    ) {
        let hosts = u32::MAX >> length;
        let network = network & !hosts;
        let grant = Grant {
            address: (network + 2 + host % (hosts - 2)).into(),
            control_prefix: Prefix { address: network.into(), length },
            mtu,
            keepalive: Duration::from_millis(keepalive.into()),
            generation,
            revision,
        };
        prop_assert_eq!(Grant::decode(&grant.encode()), Ok(grant));
    }
}
