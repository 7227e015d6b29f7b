//! Policies stay in force at every moment, however agents end.

use super::world::{ONLY_WEB, World, call, is_refused};
use crate::yaml;
use sidestep_testkit::Pod;
use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Continuous calls, and those with a wrong outcome.
struct Hammer {
    over: Arc<AtomicBool>,
    calls: Arc<AtomicU64>,
    caller: JoinHandle<Vec<String>>,
}

impl Hammer {
    fn new(from: &Pod, to: &Pod, expected: Option<ErrorKind>) -> Hammer {
        let (over, calls) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (path, to) = (from.namespace.path(), SocketAddr::new(to.v4, 8080));
        let (stop, count) = (over.clone(), calls.clone());
        let caller = std::thread::spawn(move || {
            sidestep_testkit::enter(&path);
            let mut wrong = Vec::new();
            while !stop.load(Ordering::Relaxed) {
                let found = crate::agent::dial(to);
                if found.as_ref().err().map(|error| error.kind()) != expected {
                    wrong.push(format!("{found:?}"));
                }
                count.fetch_add(1, Ordering::Relaxed);
            }
            wrong
        });
        Hammer { over, calls, caller }
    }

    fn wait_for(&self, more: u64) {
        let goal = self.calls.load(Ordering::Relaxed) + more;
        while self.calls.load(Ordering::Relaxed) < goal {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn stop(self) -> (Vec<String>, u64) {
        self.over.store(true, Ordering::Relaxed);
        let wrong = self.caller.join().unwrap();
        (wrong, self.calls.load(Ordering::Relaxed))
    }
}

#[test]
fn agents_are_killed_and_exchanged_and_no_moment_is_open_or_closed() {
    let mut world = World::new();
    world.policy("db", ONLY_WEB, "db");
    let allowed = Hammer::new(&world.web, &world.db, None);
    let denied = Hammer::new(&world.stranger, &world.db, Some(ErrorKind::ConnectionRefused));
    let both = |more| [&allowed, &denied].iter().for_each(|hammer| hammer.wait_for(more));
    both(100);
    for round in 0..6 {
        if round % 2 == 0 {
            world.node.kill()
        } else {
            assert!(world.node.stop().success())
        }
        both(50);
        world.node.start();
        both(50);
        assert!(world.node.check().is_well(), "{:?}", world.node.check());
    }
    // Killed in the middle of the start.
    for pause in [0, 20, 40, 80, 160] {
        world.node.kill();
        let services = world.node.services();
        world.node.spawn(&["--config", services.to_str().unwrap()]);
        std::thread::sleep(Duration::from_millis(pause));
    }
    world.node.kill();
    both(100);
    world.node.start();
    // Labels change meanwhile; no call sees a mixture.
    for round in 0..10 {
        let labels = format!("{{app: stranger, round: '{round}'}}");
        world.node.file("pod-stranger.yaml", &yaml::labelled("stranger", &world.stranger, &labels));
        both(20);
    }
    let ((wrong, calls), (open, denials)) = (allowed.stop(), denied.stop());
    println!("{calls} calls that are allowed, {denials} that are not");
    assert!(open.is_empty(), "{} of {denials} were let in: {:?}", open.len(), open.first());
    assert!(wrong.is_empty(), "{} of {calls} failed: {:?}", wrong.len(), wrong.first());
}

#[test]
fn a_policy_stays_in_force_when_nobody_runs_and_when_its_file_cannot_be_read() {
    let mut world = World::new();
    world.policy("db", ONLY_WEB, "db");
    world.node.kill();
    assert!(call(&world.web, &world.db).is_ok() && is_refused(&world.stranger, &world.db));
    world.node.file("policy-db.yaml", &yaml::policy("db", "selekt: {}"));
    world.node.start();
    assert!(call(&world.web, &world.db).is_ok() && is_refused(&world.stranger, &world.db));
    let stays = "Capture default/db: policies are as an earlier agent left them";
    world.node.wait(|node| node.check().problems.iter().any(|problem| problem.contains(stays)));
    assert!(call(&world.web, &world.db).is_ok() && is_refused(&world.stranger, &world.db));
    world.node.file("policy-db.yaml", &yaml::policy("db", ONLY_WEB));
    world.node.wait(|node| node.check().is_well());
    assert!(call(&world.web, &world.db).is_ok() && is_refused(&world.stranger, &world.db));
    // A policy that was removed while no agent ran is removed once a new agent has read everything.
    world.node.kill();
    std::fs::remove_file(world.node.services().join("policy-db.yaml")).unwrap();
    assert!(is_refused(&world.stranger, &world.db));
    world.node.start();
    world.node.wait(|node| node.check().is_well() && node.policies().pods.is_empty());
    let World { stranger, db, .. } = &world;
    let until = std::time::Instant::now() + Duration::from_secs(30);
    while is_refused(stranger, db) {
        assert!(std::time::Instant::now() < until, "{}", world.node.log());
    }
    // Everything is removed.
    world.policy("db", ONLY_WEB, "db");
    assert!(is_refused(&world.stranger, &world.db));
    assert!(world.node.command().arg("--detach").output().unwrap().status.success());
    assert!(world.node.wait_for_end().success());
    assert!(call(&world.stranger, &world.db).is_ok());
}

/// The sockets that receive dropped packets belong to the agent.
#[test]
fn what_is_dropped_meets_silence_while_an_agent_runs_and_is_refused_else() {
    let mut world = World::new();
    world.policy("db", &format!("onDeny: drop, {ONLY_WEB}"), "db");
    let to = SocketAddr::new(world.db.v4, 8080);
    let met = |world: &World| {
        let dialled = || TcpStream::connect_timeout(&to, Duration::from_millis(300)).unwrap_err().kind();
        world.stranger.namespace.run(dialled)
    };
    assert_eq!(met(&world), ErrorKind::TimedOut);
    world.node.kill();
    assert_eq!(met(&world), ErrorKind::ConnectionRefused);
    world.node.start();
    world.node.wait(|node| node.policies().pods.iter().any(|pod| pod.enforced));
    assert_eq!(met(&world), ErrorKind::TimedOut);
    assert!(call(&world.web, &world.db).is_ok());
}
