//! Programs for which splicing is made: static Go programs, which make MPTCP listeners, and a proxy between them.

use super::world::{End, PORT, World, at_port};
use crate::scratch::Scratch;
use crate::sockets::until;
use sidestep_testkit::program::{Running, command};
use std::io::{ErrorKind, Read, Write};
use std::path::PathBuf;
use std::process::Command;

const PEER: &str = include_str!("peer.go");

/// The built program for both ends.
struct Go {
    program: PathBuf,
    scratch: Scratch,
}

impl Go {
    fn new() -> Go {
        let scratch = Scratch::new();
        let (source, program) = (scratch.file("peer.go", PEER), scratch.path().join("peer"));
        // The build cache is kept for the next run, and for tests/apps.
        let cache = concat!(env!("CARGO_TARGET_TMPDIR"), "/../go-cache");
        let mut build = command("go");
        build.env("GOCACHE", cache).env("CGO_ENABLED", "0").env("GOTOOLCHAIN", "local").env("GOFLAGS", "");
        let built = build.arg("build").arg("-o").arg(&program).arg(source).output().unwrap();
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        Go { program, scratch }
    }

    fn serve(&self, world: &World, port: u16) -> Running {
        let running = world.testbed.node.start(Command::new(&self.program).args(["serve", &at_port(port).to_string()]));
        answers(world, port);
        running
    }

    fn fetch(&self, world: &World, port: u16, clients: u32, rounds: u32) -> String {
        let url = format!("http://{}", at_port(port));
        let (clients, rounds) = (clients.to_string(), rounds.to_string());
        world.testbed.node.finish(Command::new(&self.program).args(["fetch", &url, &clients, &rounds]))
    }
}

fn answers(world: &World, port: u16) {
    until("it listens", || world.testbed.node.run(|| End::connect(at_port(port)).is_ok()));
}

fn haproxy(world: &World, scratch: &Scratch, options: &str) -> Running {
    let configuration = format!(
        "global\n  maxconn 400\n\
         defaults\n  mode tcp\n  timeout connect 5s\n  timeout client 3s\n  timeout server 3s\n  {options}\n\
         listen all\n  bind {}\n  server one {}\n",
        at_port(PORT + 1),
        at_port(PORT)
    );
    let file = scratch.file("haproxy.cfg", &configuration);
    let running = world.testbed.node.start(command("haproxy").args(["-db", "-q", "-f", file.to_str().unwrap()]));
    answers(world, PORT + 1);
    running
}

#[test]
fn go_and_go() {
    let (world, go) = (World::new(), Go::new());
    let _server = go.serve(&world, PORT);
    assert_eq!(go.fetch(&world, PORT, 16, 20).trim(), "all is well");
    let status = world.status();
    assert!(status.reason("spliced") >= 16 && status.redirected.bytes > 1_000_000, "{status:?}");
    assert_eq!((status.reason("missed"), status.reason("mptcp")), (0, 0));
}

#[test]
fn a_proxy_between_go_and_go() {
    let (world, go) = (World::new(), Go::new());
    let _server = go.serve(&world, PORT);
    let _proxy = haproxy(&world, &go.scratch, "no option splice-auto");
    assert_eq!(go.fetch(&world, PORT + 1, 8, 20).trim(), "all is well");
    let status = world.status();
    assert!(status.reason("spliced") >= 16 && status.redirected.bytes > 1_000_000, "{status:?}");
    assert_eq!(status.reason("missed"), 0);
}

/// Connections end or are reset; no call fails in a way that TCP never would.
#[test]
fn a_peer_that_is_killed() {
    let (world, go) = (World::new(), Go::new());
    for round in 0..5 {
        let server = go.serve(&world, PORT);
        let mut clients: Vec<End> =
            world.testbed.node.run(|| (0..8).map(|_| End::connect(at_port(PORT)).unwrap()).collect());
        for client in &mut clients {
            client.write_all(b"GET /bytes?n=3000000 HTTP/1.1\r\nHost: here\r\n\r\n").unwrap();
            client.hear(1000 * (round + 1));
        }
        drop(server);
        for client in &mut clients {
            let error = loop {
                if let Err(error) = client.write_all(b"GET /bytes?n=3 HTTP/1.1\r\n") {
                    break error;
                }
            };
            assert!([ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&error.kind()), "{error}");
            while client.read(&mut [0; 10_000]).is_ok_and(|got| got > 0) {}
        }
    }
    let status = world.status();
    assert!(status.reason("spliced") >= 40, "{status:?}");
    assert_eq!((status.reason("missed"), status.connections), (0, 0));
}

/// splice(2) does not see the bytes, and the reader waits until its timeout. With a port that is not opted in it works.
#[test]
fn a_proxy_that_reads_by_splice_is_to_be_left_out() {
    let (world, go) = (World::new(), Go::new());
    let _server = go.serve(&world, PORT);
    let proxy = haproxy(&world, &go.scratch, "option splice-request\n  option splice-response");
    let url = format!("http://{}", at_port(PORT + 1));
    let done = world.testbed.node.run(|| Command::new(&go.program).args(["fetch", &url, "1", "1"]).output().unwrap());
    assert!(!done.status.success(), "if this kernel can, docs/splice.md is to say so");
    drop(proxy);
    sidestep_ebpf::splice::pause(&world.options.pins, true).unwrap();
    let _proxy = haproxy(&world, &go.scratch, "option splice-request\n  option splice-response");
    assert_eq!(go.fetch(&world, PORT + 1, 4, 10).trim(), "all is well");
}
