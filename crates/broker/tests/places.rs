//! Processes of different users share memory if the operator trusts where they run: in one pod of Kubernetes, or in a service of
//! systemd. Needs root, for users and cgroups.

use crate::common::users::{CAROL, MALLORY, as_user};
use crate::common::{TestBroker, receive, tcp_pair};
use sidestep_abi::Reason;
use sidestep_abi::msg::Kind;
use sidestep_broker::trust::{Rule, Rules, Trust};
use sidestep_testkit::{Namespace, Nested};
use std::net::TcpStream;

const UID: &str = "1f0b8a52-0001-4e5f-9a8b-0123456789c3";
const OTHER_UID: &str = "1f0b8a52-0001-4e5f-9a8b-0123456789c4";

fn broker(rules: Rules) -> TestBroker {
    TestBroker::with(None, |settings| settings.trust = Trust::new(0, None, rules))
}

/// What becomes of a connection between two users. `meanwhile`: after both have joined.
fn outcome(broker: &TestBroker, streams: &(TcpStream, TcpStream), meanwhile: impl FnOnce()) -> Result<(), u64> {
    let [a, b] = [MALLORY, CAROL].map(|user| as_user(user, || broker.join()));
    meanwhile();
    as_user(MALLORY, || a.offer(1, &streams.0));
    as_user(CAROL, || b.offer(2, &streams.1));
    match receive(&a.socket).expect("still a member").0 {
        msg if msg.kind() == Some(Kind::Refused) => Err(msg.arg),
        msg => {
            assert_eq!(msg.kind(), Some(Kind::Link));
            a.expect_slot(1);
            Ok(())
        }
    }
}

const NO: Result<(), u64> = Err(Reason::UserPair as u64);

#[test]
fn a_pod_is_a_domain_as_long_as_its_processes_are_in_it() {
    let inside = Nested::new(&format!("kubepods/burstable/pod{UID}/container"));
    let outside = Nested::new(&format!("kubepods/burstable/pod{OTHER_UID}/container"));
    let namespace = Namespace::fresh();
    let connected = || namespace.run(|| tcp_pair("127.0.0.1"));
    let same_pod = || broker(Rules { same_pod: true, ..Rules::default() });
    assert_eq!(outcome(&same_pod(), &connected(), || ()), NO, "in no pod");
    inside.enter();
    assert_eq!(outcome(&same_pod(), &connected(), || ()), Ok(()));
    assert_eq!(outcome(&broker(Rules::default()), &connected(), || ()), NO, "the operator has not said so");
    assert_eq!(outcome(&same_pod(), &tcp_pair("127.0.0.1"), || ()), NO, "in the host's network");
    assert_eq!(outcome(&same_pod(), &connected(), || outside.enter()), NO, "moved meanwhile");
    assert_eq!(outcome(&same_pod(), &connected(), || ()), Ok(()), "both in the other pod");
}

#[test]
fn a_service_is_named_by_its_unit() {
    let name = format!("sidestep-test-{}.service", std::process::id());
    let service = Nested::new(&format!("system.slice/{name}"));
    let rule = |name: &str| Rule { services: vec![name.to_owned()], ..Rule::default() };
    let named = || broker(Rules { allow: vec![rule(&name)], same_pod: false });
    let streams = || tcp_pair("127.0.0.1");
    assert_eq!(outcome(&named(), &streams(), || ()), NO, "not in the service");
    service.enter();
    assert_eq!(outcome(&named(), &streams(), || ()), Ok(()));
    assert_eq!(outcome(&broker(Rules { allow: vec![rule("other.service")], same_pod: false }), &streams(), || ()), NO);
}
