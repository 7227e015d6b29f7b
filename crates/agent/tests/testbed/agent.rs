//! A testbed with an agent in its node, and helpers for tests.

use crate::yaml;
use rustix::process::{Pid, Signal, WaitOptions};
use sidestep_agent_api::{Answer, Capture, Captures, Check, Explanation, Policies, Question, Service, Status, ask};
use sidestep_error::chain;
use sidestep_testkit::{Pod, Testbed};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub const VIP: &str = "10.96.0.10";
/// An agent with few Services is ready in a tenth of a second; a machine under load takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long something takes in the middle of several attempts: one that was quick by luck says nothing.
pub fn median(times: &[Duration]) -> Duration {
    let mut times = times.to_vec();
    times.sort();
    times[times.len() / 2]
}

pub struct Node {
    pub testbed: Testbed,
    pub directory: TempDir,
    agent: Option<Child>,
}

impl Node {
    /// No agent runs yet.
    pub fn new() -> Node {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("services")).unwrap();
        Node { testbed: Testbed::new(), directory, agent: None }
    }

    /// Starts an agent that reads [`Node::file`]s, and waits until programs are attached.
    pub fn with_agent() -> Node {
        let mut node = Node::new();
        node.start();
        node
    }

    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("agent.sock")
    }

    pub fn pins(&self) -> PathBuf {
        self.testbed.bpffs().join("sidestep")
    }

    pub fn services(&self) -> PathBuf {
        self.directory.path().join("services")
    }

    /// The agent's program with the options that place it in the testbed.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep-agent"));
        command.arg("--socket").arg(self.socket()).arg("--pins").arg(self.pins());
        command
    }

    pub fn start(&mut self) {
        let services = self.services();
        self.start_with(&["--config", services.to_str().unwrap()]);
    }

    /// Returns when connections are balanced.
    pub fn start_with(&mut self, options: &[&str]) {
        self.spawn(options);
        self.wait_until_attached();
    }

    pub fn wait_until_attached(&mut self) {
        // An earlier agent's programs may be attached already, so the source must be listed as well.
        self.wait(|node| node.status().is_ok_and(|status| status.attached && status.source.listed));
    }

    /// Starts an agent in the node's namespace.
    pub fn spawn(&mut self, options: &[&str]) {
        let command = self.command();
        self.spawn_as(command, options);
    }

    /// `command`: [`Node::command`], or one that executes it.
    pub fn spawn_as(&mut self, mut command: Command, options: &[&str]) {
        command
            .args(["--node-name", "node", "--metrics", "127.0.0.1:9464"])
            .arg("--cgroup")
            .arg(self.testbed.cgroup.path());
        command.args(options).stderr(File::options().create(true).append(true).open(self.log_file()).unwrap());
        self.agent = Some(self.testbed.node.run(|| command.spawn().unwrap()));
    }

    /// The agent's resident memory.
    pub fn resident_kib(&self) -> u64 {
        let agent = self.agent.as_ref().expect("an agent runs");
        let status = fs::read_to_string(format!("/proc/{}/status", agent.id())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    fn log_file(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    /// The log of all agents so far.
    pub fn log(&self) -> String {
        fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Waits until the condition holds; fails with the agent's log if that takes too long.
    pub fn wait(&mut self, mut is_so: impl FnMut(&Node) -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !is_so(self) {
            let ended = self.agent.as_mut().and_then(|agent| agent.try_wait().unwrap());
            let log = self.log();
            assert!(ended.is_none(), "the agent ended: {ended:?}\n{log}");
            assert!(Instant::now() < deadline, "it did not come about in {PATIENCE:?}\n{log}");
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Sends SIGTERM, and waits for the end.
    pub fn stop(&mut self) -> ExitStatus {
        self.send(Signal::TERM);
        self.wait_for_end()
    }

    /// Sends SIGHUP.
    pub fn hang_up(&self) {
        self.send(Signal::HUP);
    }

    /// Stops the agent for a moment. Some system calls that wait then fail with EINTR, although no signal is handled.
    pub fn interrupt(&self) {
        let pid = self.send(Signal::STOP);
        rustix::process::waitpid(Some(pid), WaitOptions::UNTRACED).unwrap();
        self.send(Signal::CONT);
    }

    fn send(&self, signal: Signal) -> Pid {
        let pid = Pid::from_child(self.agent.as_ref().expect("an agent runs"));
        rustix::process::kill_process(pid, signal).unwrap();
        pid
    }

    /// Whether the agent has installed its handler of SIGHUP: before, the signal would kill it.
    pub fn catches_hang_ups(&self) -> bool {
        let status = fs::read_to_string(format!("/proc/{}/status", self.agent.as_ref().unwrap().id())).unwrap();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(caught.trim(), 16).unwrap() & 1 != 0
    }

    /// Sends SIGKILL, and waits for the end.
    pub fn kill(&mut self) {
        let mut agent = self.agent.take().expect("an agent runs");
        agent.kill().unwrap();
        agent.wait().unwrap();
    }

    /// Waits until the agent ends by itself.
    pub fn wait_for_end(&mut self) -> ExitStatus {
        self.agent.take().expect("an agent runs").wait().unwrap()
    }

    pub fn ask(&self, question: Question) -> Result<Answer, String> {
        ask(&self.socket(), &question).map_err(|error| chain(&error).to_string())
    }

    pub fn status(&self) -> Result<Status, String> {
        match self.ask(Question::Status)? {
            Answer::Status(status) => Ok(status),
            other => panic!("{other:?}"),
        }
    }

    pub fn check(&self) -> Check {
        match self.ask(Question::Check).unwrap() {
            Answer::Check(check) => check,
            other => panic!("{other:?}"),
        }
    }

    pub fn show(&self, name: &str) -> Result<Service, String> {
        match self.ask(Question::Show { namespace: "default".into(), name: name.into() })? {
            Answer::Services(mut services) => Ok(services.remove(0)),
            other => panic!("{other:?}"),
        }
    }

    pub fn captures(&self) -> Captures {
        match self.ask(Question::Captures { pins: None }).unwrap() {
            Answer::Captures(captures) => captures,
            other => panic!("{other:?}"),
        }
    }

    /// None: the agent knows of no such document.
    pub fn capture(&self, name: &str) -> Option<Capture> {
        self.captures().captures.into_iter().find(|capture| capture.name == name)
    }

    pub fn is_captured(&self, name: &str) -> bool {
        self.capture(name).is_some_and(|capture| capture.captured)
    }

    pub fn explain(&self, question: Question) -> Explanation {
        match self.ask(question).unwrap() {
            Answer::Explanation(explanation) => explanation,
            other => panic!("{other:?}"),
        }
    }

    pub fn policies(&self) -> Policies {
        match self.ask(Question::Policies).unwrap() {
            Answer::Policies(policies) => policies,
            other => panic!("{other:?}"),
        }
    }

    /// The count of a reason.
    pub fn counted(&self, reason: &str) -> u64 {
        let reasons = self.status().unwrap().reasons;
        reasons.iter().find(|count| count.reason == reason).expect("such a reason").count
    }

    /// The metrics in Prometheus' format.
    pub fn metrics(&self) -> String {
        self.get("/metrics")
    }

    /// The answer to an HTTP request to the metrics' port, with its head.
    pub fn get(&self, path: &str) -> String {
        self.get_at("127.0.0.1", 9464, path).expect("the agent listens")
    }

    /// None: nobody listens, or not any more.
    pub fn get_at(&self, ip: &str, port: u16, path: &str) -> Option<String> {
        self.testbed.node.run(|| {
            let mut stream = TcpStream::connect((ip, port)).ok()?;
            let mut text = String::new();
            // A listener that closes resets what it has not accepted.
            write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
            stream.read_to_string(&mut text).ok()?;
            Some(text).filter(|text| !text.is_empty())
        })
    }

    /// A file for `--kubeconfig` that names the API server at this port of the node's loopback.
    pub fn kubeconfig(&self, port: u16) -> PathBuf {
        let path = self.directory.path().join("kubeconfig");
        let text = format!(
            "apiVersion: v1\nkind: Config\nclusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\ncurrent-context: c\nusers: [{{name: u, user: {{}}}}]\n"
        );
        fs::write(&path, text).unwrap();
        path
    }

    /// Writes a file by renaming, so that no reader sees a part of it.
    pub fn file(&self, name: &str, text: &str) {
        let aside = self.directory.path().join("aside");
        fs::write(&aside, text).unwrap();
        fs::rename(aside, self.services().join(name)).unwrap();
    }

    /// Writes a Capture document for the pod; `name` is the name of both file and document.
    pub fn captured(&self, name: &str, pod: &Pod) {
        self.file(&format!("{name}.yaml"), &yaml::capture(name, pod.namespace.name(), ""));
    }

    /// A pod with a default route.
    pub fn routed(&mut self) -> Pod {
        let pod = self.testbed.pod();
        pod.namespace.ip("route add default via 10.244.0.1");
        pod.namespace.ip("-6 route add default via fd00:244::1");
        pod
    }

    /// A TCP Service `web` at [`VIP`] port 80 with these endpoints, port 8080.
    pub fn web<'a>(&self, pods: impl IntoIterator<Item = &'a Pod>) {
        let endpoints: Vec<IpAddr> = pods.into_iter().map(|pod| pod.v4).collect();
        self.file("web.yaml", &(yaml::service("web", VIP, 80, "") + &yaml::slice("web", &endpoints, 8080)));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut agent) = self.agent.take() {
            let _ = agent.kill();
            let _ = agent.wait();
        }
        let _ = sidestep_ebpf::services::remove(&self.pins());
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

// --- servers and clients ------------------------------------------------------------------------------------------

/// A server in the pod that tells each client the pod's address. Ends when dropped.
pub struct Server {
    listener: Arc<TcpListener>,
    thread: Option<JoinHandle<()>>,
}

pub fn server(pod: &Pod) -> Server {
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), 8080);
    let listener = Arc::new(pod.namespace.run(|| TcpListener::bind(any).unwrap()));
    let (accepting, own) = (listener.clone(), pod.v4);
    let thread = std::thread::spawn(move || {
        while let Ok((mut stream, _)) = accepting.accept() {
            // The client may have gone.
            let _ = write!(stream, "{own}");
        }
    });
    Server { listener, thread: Some(thread) }
}

impl Drop for Server {
    fn drop(&mut self) {
        rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both).unwrap();
        self.thread.take().unwrap().join().unwrap();
    }
}

pub fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// The server that answers at this address. The connection ends by a reset, so that the client's port does not stay in TIME_WAIT.
pub fn dial(to: SocketAddr) -> std::io::Result<IpAddr> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?;
    let mut said = String::new();
    stream.read_to_string(&mut said)?;
    Ok(said.trim().parse().unwrap())
}

/// Clients that dial [`VIP`] without pause, each in a namespace of its own, until stopped.
pub struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    clients: Vec<JoinHandle<Vec<String>>>,
}

impl Load {
    pub fn start(pods: &[Pod]) -> Load {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let client = |pod: &Pod| {
            let (path, stop, done) = (pod.namespace.path(), stop.clone(), done.clone());
            std::thread::spawn(move || {
                sidestep_testkit::enter(&path);
                let mut failures = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    match dial(at(VIP, 80)) {
                        Ok(_) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => failures.push(error.to_string()),
                    }
                }
                failures
            })
        };
        let clients = pods.iter().map(client).collect();
        Load { stop, done, clients }
    }

    /// How many connections have succeeded so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Returns after so many further connections.
    pub fn wait_for(&self, more: u64) {
        let (goal, deadline) = (self.done() + more, Instant::now() + PATIENCE);
        while self.done() < goal {
            assert!(Instant::now() < deadline, "{} of {goal} connections in {PATIENCE:?}", self.done());
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Returns all failures, and the number of connections that succeeded.
    pub fn stop(self) -> (Vec<String>, u64) {
        self.stop.store(true, Ordering::Relaxed);
        let failures = self.clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        (failures, self.done.load(Ordering::Relaxed))
    }
}
