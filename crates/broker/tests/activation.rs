//! The members' socket from a service manager, which the test plays as systemd does it: descriptor 3, LISTEN_FDS, LISTEN_PID.

use crate::common::{DEADLINE, FakeMember, receive, tcp_pair, wait_for};
use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd, OwnedFd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, sockopt};
use rustix::time::Timespec;
use sidestep_abi::msg::{Kind, Msg};
use sidestep_broker::client::Operator;
use sidestep_broker::listen::Address;
use sidestep_broker::wire;
use sidestep_testkit::{Namespace, rerun};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use tempfile::TempDir;

/// What the unit of the socket says.
#[derive(Clone, Copy)]
struct Unit {
    kind: SocketType,
    listens: bool,
    credentials: bool,
}

/// dist/systemd/sidestepd.socket.
const OURS: Unit = Unit { kind: SocketType::SEQPACKET, listens: true, credentials: true };

fn socket(path: &Path, unit: Unit) -> OwnedFd {
    let socket = rustix::net::socket(AddressFamily::UNIX, unit.kind, None).expect("socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).expect("a path")).expect("bind");
    sockopt::set_socket_passcred(&socket, unit.credentials).expect("an option");
    if unit.listens {
        rustix::net::listen(&socket, 8).expect("listen");
    }
    socket
}

/// A broker as the manager starts it, with the socket as descriptor 3. `$0` is the program, `$$` keeps its number over exec.
struct Started(Child);

impl Started {
    fn new(socket: &OwnedFd, variables: &str, more: &[&str]) -> Started {
        let script = format!("exec 3<&0 </dev/null; {variables} exec \"$0\" \"$@\"");
        let mut command = Command::new("sh");
        command.args(["-c", &script, env!("CARGO_BIN_EXE_sidestepd")]).args(more);
        command.env_remove(sidestep_abi::env::BROKER).stdin(socket.try_clone().expect("a copy"));
        Started(command.stderr(Stdio::piped()).spawn().expect("sh"))
    }

    /// What it says before it ends, and whether it ends well.
    fn ended(mut self) -> (bool, String) {
        let status = wait_for("it ends", || self.0.try_wait().expect("wait"));
        let mut said = String::new();
        self.0.stderr.take().expect("piped").read_to_string(&mut said).expect("text");
        (status.success(), said)
    }

    fn terminate(self) -> (bool, String) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("kill");
        self.ended()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const PASSED: &str = "LISTEN_FDS=1 LISTEN_PID=$$";

fn place() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("broker");
    (directory, path)
}

/// A member in a thread of its own, which stays until the returned sender is dropped. The receiver gets something once it has joined.
fn member(address: &Address) -> (Receiver<()>, Sender<()>) {
    let ((has_joined, joined), (stay, may_go)) = (channel(), channel());
    let address = address.clone();
    std::thread::spawn(move || {
        let _member = FakeMember::join(&address, 4096);
        // The test may have failed meanwhile.
        let _ = has_joined.send(());
        let _: Result<(), _> = may_go.recv();
    });
    (joined, stay)
}

/// Waits until somebody has connected, which is when the manager starts the broker.
fn wait_for_a_client(socket: &OwnedFd) {
    let mut readable = [PollFd::new(socket, PollFlags::IN)];
    let patience = Timespec { tv_sec: DEADLINE.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(rustix::event::poll(&mut readable, Some(&patience)), Ok(1), "nobody connects");
}

#[test]
fn a_member_that_came_first_is_served_and_the_path_stays_the_managers() {
    let (_directory, path) = place();
    let (socket, address) = (socket(&path, OURS), Address::Path(path.clone()));
    let (joined, stay) = member(&address);
    wait_for_a_client(&socket);
    let broker = Started::new(&socket, PASSED, &["--idle-exit", "0"]);
    joined.recv_timeout(DEADLINE).expect("it joins");
    let status = Operator::connect(&address).expect("an operator").status().expect("an answer");
    assert_eq!((status.address, status.processes.len()), (path.display().to_string(), 1));
    assert_eq!(broker.terminate(), (true, String::new()));
    drop(stay);
    assert!(path.exists(), "the manager's file");
    let again = Started::new(&socket, PASSED, &["--idle-exit", "0"]);
    FakeMember::join(&address, 4096);
    assert!(again.terminate().0);
}

const ENDED: &str = "TEST_ENDED";

/// A process that has ended was of some pod, or of none. In a pod's network namespace it must not make a domain for each of its users.
#[test]
fn a_process_that_has_ended_makes_no_domain_in_a_network_namespace_of_a_pod() {
    const TEST: &str =
        concat!(module_path!(), "::a_process_that_has_ended_makes_no_domain_in_a_network_namespace_of_a_pod");
    if let Some(path) = std::env::var_os(ENDED) {
        let address = SocketAddrUnix::new(Path::new(&path)).expect("a path");
        return rustix::net::connect(std::io::stdin(), &address).expect("connect");
    }
    let (directory, path) = place();
    let listening = socket(&path, OURS);
    let config = directory.path().join("config.toml");
    std::fs::write(&config, "same-pod = true\n").expect("write");
    // Connected by a process that ends before anybody accepts.
    let connected = || {
        let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::SEQPACKET, None).expect("socket");
        let mut command = Command::new(std::env::current_exe().expect("own path"));
        command.args(rerun::alone(TEST)).env(ENDED, &path).stdin(socket.try_clone().expect("a copy"));
        assert!(command.stdout(Stdio::null()).status().expect("this program").success());
        socket
    };
    let sockets = [connected(), Namespace::fresh().run(connected)];
    let words = ["--idle-exit", "0", "--config", config.to_str().expect("utf-8")];
    let _broker = Started::new(&listening, PASSED, &words);
    let answers = sockets.map(|socket| {
        // Fails if the broker has hung up already.
        let _ = wire::send(socket.as_fd(), &Msg { arg: 4096, ..Msg::new(Kind::Hello) }, None);
        receive(&socket).and_then(|(answer, _)| answer.kind())
    });
    assert_eq!(answers, [Some(Kind::Welcome), None]);
}

/// `sidestep status` may be what starts the broker: its own socket is then not there yet.
#[test]
fn an_operator_may_come_first() {
    let (_directory, path) = place();
    let (socket, address) = (socket(&path, OURS), Address::Path(path.clone()));
    let asked = std::thread::spawn(move || Operator::connect(&address).map(|operator| operator.status().is_ok()));
    wait_for_a_client(&socket);
    let _broker = Started::new(&socket, PASSED, &["--idle-exit", "0"]);
    assert!(asked.join().expect("no panic").expect("an operator"));
}

#[test]
fn it_ends_without_members_and_starts_again_with_the_next_one() {
    let (_directory, path) = place();
    let (socket, address) = (socket(&path, OURS), Address::Path(path.clone()));
    let broker = Started::new(&socket, PASSED, &["--idle-exit", "1"]);
    assert_eq!(broker.ended(), (true, String::new()));
    address.connect().expect("nobody is refused in between");
    let _again = Started::new(&socket, PASSED, &["--idle-exit", "0"]);
    FakeMember::join(&address, 4096);
}

#[test]
fn a_socket_of_no_use_is_refused_with_what_to_write_into_its_unit() {
    for (unit, variables, more, expected) in [
        (Unit { kind: SocketType::STREAM, ..OURS }, PASSED, &[][..], "ListenSequentialPacket="),
        (Unit { listens: false, ..OURS }, PASSED, &[], "ListenSequentialPacket="),
        (Unit { credentials: false, ..OURS }, PASSED, &[], "PassCredentials=yes"),
        (OURS, "LISTEN_FDS=2 LISTEN_PID=$$", &[], "2 sockets"),
        (OURS, PASSED, &["--address", "/elsewhere"], "--address says /elsewhere"),
    ] {
        let (_directory, path) = place();
        let socket = socket(&path, unit);
        let (well, said) = Started::new(&socket, variables, more).ended();
        assert!(!well && said.contains(expected), "{expected}: {said}");
    }
}

/// A child of a process that was started with a socket inherits the variables.
#[test]
fn variables_for_another_process_are_not_ours() {
    let (directory, path) = place();
    let socket = socket(&path, OURS);
    let own = Address::Path(directory.path().join("own"));
    let words = ["--address", &own.to_string(), "--idle-exit", "0"];
    let _broker = Started::new(&socket, "LISTEN_FDS=1 LISTEN_PID=1", &words);
    wait_for("it listens at its own address", || own.connect().ok());
}

/// Process 1 of a pid namespace stays in the cgroup namespace of the machine, and starts a broker in one of its own, as a container
/// is. Prints both namespaces and the broker's capabilities.
const CONTAINER: &str = r#"
unshare --cgroup "$0" "$@" & broker=$!
until [ -S "$SOCKET" ]; do kill -0 $broker || exit 1; sleep 0.01; done
readlink /proc/1/ns/cgroup /proc/$broker/ns/cgroup
sed -n 's/^CapEff:\t//p' /proc/$broker/status
kill $broker
"#;

/// Needs root.
#[test]
fn a_container_s_broker_enters_the_host_s_cgroups_and_lowers_the_capability() {
    const SYS_ADMIN: u64 = 1 << 21;
    let of_broker = |more: &[&str]| {
        let (_directory, path) = place();
        let mut command = Command::new("unshare");
        command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", CONTAINER]);
        command.args([env!("CARGO_BIN_EXE_sidestepd"), "--idle-exit", "0", "--address"]).arg(&path).args(more);
        let said = command.env("SOCKET", &path).output().expect("unshare (util-linux)");
        let text = String::from_utf8(said.stdout.clone()).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        let [host, broker, capabilities] = lines[..] else { panic!("this test needs root: {said:?}") };
        let capabilities = u64::from_str_radix(capabilities, 16).expect("hexadecimal");
        (host == broker, capabilities & SYS_ADMIN != 0)
    };
    assert_eq!(of_broker(&[]), (false, true));
    assert_eq!(of_broker(&["--host-cgroups"]), (true, false));
}

/// A broker with `--host-cgroups` and these capabilities only. What becomes of a connection of a pod?
fn proves_pods_with(capabilities: &str) -> Option<Kind> {
    let (_directory, path) = place();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]);
    command.args(["setpriv", "--bounding-set", &format!("-all,{capabilities}"), env!("CARGO_BIN_EXE_sidestepd")]);
    command.args(["--host-cgroups", "--idle-exit", "0", "--address"]).arg(&path);
    let broker = Started(command.spawn().expect("setpriv (util-linux)"));
    wait_for("the broker's socket", || path.exists().then_some(()));
    let pod = Namespace::fresh();
    let (client, server) = pod.run(|| tcp_pair("127.0.0.1"));
    let members = [(), ()].map(|()| FakeMember::join(&Address::Path(path.clone()), 4096));
    members[0].offer(1, &client);
    members[1].offer(2, &server);
    let answer = receive(&members[1].socket).expect("still a member").0.kind();
    drop(broker);
    answer
}

/// As the chart gives them. Needs root.
#[test]
fn a_container_s_broker_proves_connections_of_pods() {
    assert_eq!(proves_pods_with("+sys_ptrace,+sys_admin,+net_admin"), Some(Kind::Link));
    assert_eq!(proves_pods_with("+sys_ptrace,+sys_admin"), Some(Kind::Refused), "it may not ask whose the socket is");
}
