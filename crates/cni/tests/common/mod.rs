//! Runs the program, and stands for the agent.

#![allow(dead_code, reason = "each test uses its part")]

use serde_json::{Value, json};
use sidestep_agent_api::{Admission, Answer, Question, Reply};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;

pub const PROGRAM: &str = env!("CARGO_BIN_EXE_sidestep-cni");

/// The answer to requests that have no other.
pub fn done() -> Answer {
    Answer::Done
}

/// A configuration of a chain's second plugin, with these fields besides.
pub fn prev_result(fields: Value) -> Value {
    with(
        json!({"cniVersion": "1.1.0", "name": "net", "type": "sidestep-cni", "prevResult": {"cniVersion": "1.1.0"}}),
        fields,
    )
}

fn with(mut config: Value, fields: Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        config[name] = value.clone();
    }
    config
}

/// One run of the program, with the variables of a runtime.
pub struct Run {
    variables: BTreeMap<String, String>,
    text: String,
}

/// What became of it.
#[derive(Debug)]
pub struct Out {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Run {
    pub fn new(command: &str) -> Run {
        let arguments = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_UID=u1";
        let variables = [
            ("CNI_COMMAND", command),
            ("CNI_CONTAINERID", "c1"),
            ("CNI_NETNS", "/run/netns/c1"),
            ("CNI_IFNAME", "eth0"),
            ("CNI_ARGS", arguments),
            ("CNI_PATH", "/opt/cni/bin"),
        ];
        let variables = variables.map(|(name, value)| (name.to_string(), value.to_string())).into();
        Run { variables, text: String::new() }
    }

    pub fn set(mut self, name: &str, value: &str) -> Run {
        self.variables.insert(name.into(), value.into());
        self
    }

    pub fn unset(mut self, name: &str) -> Run {
        self.variables.remove(name);
        self
    }

    /// What standard input has.
    pub fn text(mut self, text: &str) -> Run {
        self.text = text.into();
        self
    }

    pub fn go(self) -> Out {
        let mut command = Command::new(PROGRAM);
        command.env_clear().envs(self.variables).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let text = self.text;
        // Fails if the program does not read its input.
        let writer = std::thread::spawn(move || drop(stdin.write_all(text.as_bytes())));
        let out = child.wait_with_output().unwrap();
        writer.join().unwrap();
        let [stdout, stderr] = [out.stdout, out.stderr].map(|bytes| String::from_utf8(bytes).unwrap());
        Out { status: out.status, stdout, stderr }
    }
}

pub fn run(command: &str, config: &Value) -> Out {
    Run::new(command).text(&config.to_string()).go()
}

impl Out {
    pub fn is_success(&self) -> bool {
        self.status.success()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// Code and message of the error that was printed as the specification has it.
    pub fn error(&self) -> (u64, String) {
        assert!(!self.is_success() && self.status.code().is_some(), "{self:?}");
        let printed = self.json();
        let known = ["cniVersion", "code", "msg", "details"];
        assert!(printed.as_object().unwrap().keys().all(|key| known.contains(&key.as_str())), "{printed}");
        assert!(["0.3.1", "0.4.0", "1.0.0", "1.1.0"].contains(&printed["cniVersion"].as_str().unwrap()), "{printed}");
        (printed["code"].as_u64().unwrap(), printed["msg"].as_str().unwrap().to_string())
    }
}

/// A socket at which a thread answers, until the test ends.
pub struct Agent {
    directory: TempDir,
    asked: Arc<Mutex<Vec<Admission>>>,
}

impl Agent {
    fn listening(serve: impl Fn(UnixStream, Vec<u8>) + Send + 'static) -> TempDir {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("agent.sock")).unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map(Result::unwrap) {
                let mut question = Vec::new();
                // Fails if the program has been killed.
                let _ = stream.read_to_end(&mut question);
                serve(stream, question);
            }
        });
        directory
    }

    /// Answers each request.
    pub fn new(answer: impl Fn(&Admission) -> Reply + Send + 'static) -> Agent {
        let asked = Arc::<Mutex<Vec<Admission>>>::default();
        let noted = asked.clone();
        let directory = Agent::listening(move |mut stream, question| {
            let Question::Admission(request) = serde_json::from_slice(&question).unwrap() else {
                panic!("{question:?}")
            };
            let reply = serde_json::to_vec(&answer(&request)).unwrap();
            noted.lock().unwrap().push(request);
            stream.write_all(&reply).unwrap();
        });
        Agent { directory, asked }
    }

    /// Writes these bytes.
    pub fn raw(bytes: Vec<u8>) -> Agent {
        // Fails once the program has read enough.
        let directory = Agent::listening(move |mut stream, _| drop(stream.write_all(&bytes)));
        Agent { directory, asked: Arc::default() }
    }

    /// Reads, and never answers.
    pub fn silent() -> Agent {
        let kept = Mutex::new(Vec::new());
        let directory = Agent::listening(move |stream, _| kept.lock().unwrap().push(stream));
        Agent { directory, asked: Arc::default() }
    }

    pub fn asked(&self) -> Vec<Admission> {
        self.asked.lock().unwrap().clone()
    }

    /// A configuration that names this agent's socket, without a previous result unless one is given.
    pub fn config(&self, version: &str, fields: Value) -> Value {
        let socket = self.directory.path().join("agent.sock");
        let config = json!({"cniVersion": version, "name": "net", "type": "sidestep-cni", "agentSocket": socket,
                            "prevResult": "PREV"});
        with(config, fields)
    }

    pub fn run(&self, command: &str) -> Out {
        run(command, &self.config("1.1.0", json!({"prevResult": {}})))
    }
}
