//! A server with long connections behind a Service.

use crate::node::Node;
use crate::scratch::Scratch;
use crate::sockets::{at, until};
use sidestep_mesh::address::Protocol::Tcp;
use sidestep_testkit::Pod;
use sidestep_testkit::program::{Running, command};
use std::net::TcpStream;
use std::process::Stdio;

const VIP: &str = "10.96.0.63";

fn redis(pod: &Pod, scratch: &Scratch, more: &[&str]) -> Running {
    let mut redis = command("redis-server");
    redis.args(["--port", "6379", "--bind", "*", "--protected-mode", "no", "--save", ""]);
    redis.args(["--loglevel", "warning", "--dir"]).arg(scratch.path()).args(more);
    let mut running = pod.namespace.start(redis.stdout(Stdio::null()));
    until("redis-server listens", || {
        assert_eq!(running.ended(), None, "redis-server has ended");
        pod.namespace.run(|| TcpStream::connect(at("127.0.0.1", 6379)).is_ok())
    });
    running
}

fn cli(client: &Pod, host: &str, words: &[&str]) -> String {
    client.namespace.finish(command("redis-cli").args(["-h", host]).args(words)).trim().to_string()
}

/// Clients, and a replica that follows its master by the Service's address.
#[test]
fn redis_serves_and_replicates_by_a_service() {
    let mut node = Node::new();
    let (client, master, replica) = (node.testbed.pod(), node.testbed.pod(), node.testbed.pod());
    let scratches = [Scratch::new(), Scratch::new()];
    let _master = redis(&master, &scratches[0], &["--repl-diskless-sync-delay", "0"]);
    node.service("redis", Tcp, VIP, 63, [(master.v4, 6379)]);
    assert_eq!(cli(&client, VIP, &["-p", "63", "set", "word", "sidestep"]), "OK");
    assert_eq!(cli(&client, VIP, &["-p", "63", "-r", "100", "incr", "count"]).lines().last(), Some("100"));
    let _replica = redis(&replica, &scratches[1], &["--replicaof", VIP, "63"]);
    until("the replica has what the master has", || cli(&replica, "127.0.0.1", &["get", "count"]) == "100");
    assert!(
        cli(&replica, "127.0.0.1", &["info", "replication"]).contains(&format!("master_host:{VIP}\r\nmaster_port:63"))
    );
    assert_eq!(node.open(master.v4, 6379), 1, "the replica's connection");
}
