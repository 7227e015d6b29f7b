//! A runtime for the plugin: it listens where a runtime would, and calls the plugin as a runtime does.

use prost::Message as _;
use serde_json::Value;
use sidestep_nri::api::{
    ConfigureRequest, ConfigureResponse, Container, ContainerAdjustment, ContainerRequest, CreateContainerResponse,
    LinuxNamespace, LinuxPodSandbox, PLUGIN_SERVICE, PodSandbox, RUNTIME_SERVICE, RegisterPluginRequest,
};
use sidestep_nri::mux;
use sidestep_nri::ttrpc::{Kind, Message, Messages, Request, Response, Status};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// No wait takes longer.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A node: a directory with an installed library, a broker's directory, a runtime's socket, and the plugin.
pub struct Node {
    pub directory: TempDir,
    plugin: Child,
    lines: Receiver<Value>,
    listener: UnixListener,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.plugin.kill();
        let _ = self.plugin.wait();
    }
}

impl Node {
    /// A plugin with these options beside those that name the node's files.
    pub fn new(options: &[&str]) -> Node {
        let directory = tempfile::tempdir().expect("a directory");
        let path = |name: &str| directory.path().join(name);
        std::fs::create_dir(path("member")).expect("a directory");
        std::fs::create_dir(path("from")).expect("a directory");
        std::fs::write(path("from/libsidestep.so"), "a library").expect("a library");
        sidestep_nri::store::install(&path("from"), &path("lib")).expect("installed");
        let listener = UnixListener::bind(path("nri.sock")).expect("a socket");
        let mut plugin = Command::new(env!("CARGO_BIN_EXE_sidestep-nri"));
        plugin.arg("run").args(options).arg("--socket").arg(path("nri.sock")).arg("--library").arg(path("lib"));
        plugin.arg("--member").arg(path("member")).arg("--events").arg(path("events"));
        let mut plugin = plugin.stderr(Stdio::piped()).spawn().expect("the plugin starts");
        let stderr = plugin.stderr.take().expect("its stderr");
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let parsed = serde_json::from_str(&line).unwrap_or_else(|_| panic!("a line that is not JSON: {line}"));
                if sender.send(parsed).is_err() {
                    break;
                }
            }
        });
        Node { directory, plugin, lines, listener }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The next line of the plugin's log about this event.
    pub fn line(&self, event: &str) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).unwrap_or_else(|_| panic!("no line about {event}"));
            if line["event"] == event {
                return line;
            }
        }
    }

    /// The plugin's next connection.
    pub fn accept(&self) -> Runtime {
        self.listener.set_nonblocking(true).expect("a listener");
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => return Runtime::new(stream),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    assert!(Instant::now() < deadline, "the plugin does not connect");
                    std::thread::sleep(Duration::from_millis(5));
                }
                Err(error) => panic!("accept: {error}"),
            }
        }
    }

    /// A connection on which the plugin is registered and configured.
    pub fn ready(&self) -> Runtime {
        let mut runtime = self.accept();
        let request = runtime.registration();
        runtime.respond(&request, &Response::default());
        let response = runtime.call("Configure", &ConfigureRequest::default());
        ConfigureResponse::decode(&response.payload[..]).expect("an answer");
        runtime
    }

    /// Whether the process still runs.
    pub fn is_alive(&mut self) -> bool {
        self.plugin.try_wait().expect("its state").is_none()
    }

    /// The runtime has gone, and another one listens.
    pub fn restart(&mut self) {
        let path = self.path("nri.sock");
        std::fs::remove_file(&path).expect("removed");
        self.listener = UnixListener::bind(path).expect("a socket");
    }
}

/// A runtime's end of a connection.
pub struct Runtime {
    pub stream: UnixStream,
    calls: Messages,
    answers: Messages,
    next: u32,
}

impl Runtime {
    fn new(stream: UnixStream) -> Runtime {
        stream.set_nonblocking(false).and_then(|()| stream.set_read_timeout(Some(PATIENCE))).expect("a stream");
        Runtime { stream, calls: Messages::default(), answers: Messages::default(), next: 1 }
    }

    /// The next message on a connection.
    fn message(&mut self, connection: u32) -> Message {
        loop {
            let messages = if connection == mux::PLUGIN { &mut self.answers } else { &mut self.calls };
            if let Some(message) = messages.pop().expect("a message") {
                return message;
            }
            let frame = mux::receive(&mut self.stream).expect("a frame").expect("the plugin has hung up");
            assert_eq!(frame.connection, connection, "a frame on another connection");
            messages.push(&frame.bytes);
        }
    }

    /// The plugin's call by which it registers.
    pub fn registration(&mut self) -> Message {
        let message = self.message(mux::RUNTIME);
        assert_eq!(message.kind, Kind::Request);
        let request = Request::decode(&message.content[..]).expect("a request");
        assert_eq!((request.service.as_str(), request.method.as_str()), (RUNTIME_SERVICE, "RegisterPlugin"));
        let request = RegisterPluginRequest::decode(&request.payload[..]).expect("a registration");
        assert_eq!((request.plugin_name.as_str(), request.plugin_idx.as_str()), ("sidestep", "10"));
        message
    }

    /// Answers a call of the plugin.
    pub fn respond(&mut self, to: &Message, response: &Response) {
        let message = Message::response(to.stream, response);
        mux::send(&mut self.stream, mux::RUNTIME, &message.encode()).expect("sent");
    }

    /// Calls the plugin.
    pub fn call(&mut self, method: &str, request: &impl prost::Message) -> Response {
        self.call_with(PLUGIN_SERVICE, method, request.encode_to_vec())
    }

    /// Calls the plugin with any bytes. The call is sent in small frames.
    pub fn call_with(&mut self, service: &str, method: &str, payload: Vec<u8>) -> Response {
        let stream = self.next;
        self.next += 2;
        let request = Request { service: service.into(), method: method.into(), payload, timeout: 2_000_000_000 };
        for part in Message::request(stream, &request).encode().chunks(1000) {
            mux::send(&mut self.stream, mux::PLUGIN, part).expect("sent");
        }
        let message = self.message(mux::PLUGIN);
        assert_eq!((message.kind, message.stream), (Kind::Response, stream));
        Response::decode(&message.content[..]).expect("a response")
    }

    /// Has the plugin adjust a container; there must be no error, whatever it does.
    pub fn create(&mut self, request: &ContainerRequest) -> Option<ContainerAdjustment> {
        let response = self.call("CreateContainer", request);
        assert_eq!(code(&response), 0, "the container would not be created");
        CreateContainerResponse::decode(&response.payload[..]).expect("an answer").adjust
    }

    /// Sends bytes that are not necessarily frames.
    pub fn send_raw(&mut self, bytes: &[u8]) {
        // The plugin may have hung up.
        let _ = self.stream.write_all(bytes);
    }

    /// Waits until the plugin has hung up.
    pub fn closed(mut self) {
        while mux::receive(&mut self.stream).expect("the plugin hangs up between frames").is_some() {}
    }
}

/// The code of a response's status; 0: success.
pub fn code(response: &Response) -> i32 {
    response.status.as_ref().map_or(0, |status: &Status| status.code)
}

/// A request about a container of a pod that has a label, or has none.
pub fn request(label: Option<&str>, env: &[&str]) -> ContainerRequest {
    let network = LinuxNamespace { r#type: "network".into(), path: "/run/netns/a".into() };
    let pod = PodSandbox {
        name: "web-0".into(),
        namespace: "shop".into(),
        uid: "1f0b8a52".into(),
        labels: label.map(|value| ("sidestep.dev/rings".into(), value.into())).into_iter().collect(),
        linux: Some(LinuxPodSandbox { namespaces: vec![network] }),
        ..PodSandbox::default()
    };
    let env = env.iter().map(|entry| (*entry).into()).collect();
    let container = Container { name: "app".into(), args: vec!["/bin/app".into()], env, ..Container::default() };
    ContainerRequest { pod: Some(pod), container: Some(container) }
}
