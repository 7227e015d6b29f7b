//! `status`, `detach`, `attach`, `reasons`, and the help.

use crate::common;

use crate::common::{Said, Sandbox};
use std::fs::File;
use std::process::{Command, Stdio};

#[test]
fn without_a_broker_they_say_so() {
    let sandbox = Sandbox::new();
    for args in [&["status"][..], &["status", "--json"], &["detach", "--all"], &["attach", "--pid", "1"]] {
        let said = sandbox.run(args);
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{args:?}");
        assert!(said.err.contains(&format!("no broker runs at {}", sandbox.address)), "{}", said.err);
    }
}

/// As in `sidestep reasons | head`, and on a full disk.
#[test]
fn output_that_cannot_be_written_crashes_nothing() {
    let sandbox = Sandbox::new();
    let full = || File::options().write(true).open("/dev/full").expect("open");
    for args in [&["reasons"][..], &["reasons", "--json"], &["completions", "bash"]] {
        let (reader, writer) = std::io::pipe().expect("pipe");
        drop(reader);
        let unread = Said::from(sandbox.command(args).stdout(writer).output().expect("spawn"));
        assert_eq!((unread.code, unread.err.as_str()), (Some(0), ""), "{args:?}");
        let lost = Said::from(sandbox.command(args).stdout(full()).output().expect("spawn"));
        assert_eq!(lost.code, Some(1), "{args:?}: {lost:?}");
        assert!(lost.err.starts_with("sidestep: cannot write to standard output: "), "{lost:?}");
    }
    let mut silent = sandbox.command(&["run", "no-such-program"]);
    silent.env("SIDESTEP", "off").stdout(Stdio::null()).stderr(full());
    assert_eq!(silent.status().expect("spawn").code(), Some(127));
}

#[test]
fn the_status_has_a_table_and_json() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["run", "true"]).code, Some(0));
    let said = sandbox.run(&["status"]);
    assert!(said.out.starts_with(&format!("Broker {}", sandbox.address)), "{}", said.out);
    for section in ["Processes: none", "Links: none", "Connections: none"] {
        assert!(said.out.contains(section), "{section}: {}", said.out);
    }
    let json = sandbox.run(&["status", "--json"]).json();
    assert_eq!(json["address"], sandbox.address.as_str());
    assert_eq!(json["version"], sidestep_abi::VERSION);
    for list in ["processes", "links", "connections"] {
        assert_eq!(json[list], serde_json::json!([]), "{list}");
    }
    // The option takes precedence over the variable.
    let said = sandbox.run(&["status", "--address", "@sidestep-test-nobody"]);
    assert!(said.err.contains("@sidestep-test-nobody"), "{}", said.err);
}

#[test]
fn metrics_are_served_to_many_and_to_those_who_come_after_silent_ones() {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["run", "true"]).code, Some(0));
    let port = TcpListener::bind("127.0.0.1:0").and_then(|one| one.local_addr()).expect("a free port");
    let mut server = sandbox.command(&["status", "--metrics", "--serve", &port.to_string()]);
    let mut server = server.spawn().expect("spawn");
    let connect = || {
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        loop {
            match TcpStream::connect(port) {
                Ok(stream) => return stream,
                Err(e) => assert!(std::time::Instant::now() < deadline, "{e}"),
            }
        }
    };
    // As many as are served at a time, and silent: the next one is turned away until their time is over.
    let silent: Vec<_> = (0..16).map(|_| connect()).collect();
    let ask = || {
        let mut stream = connect();
        // A connection that is turned away may be reset.
        let _ = stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
        let mut bytes = Vec::new();
        let _ = stream.read_to_end(&mut bytes);
        String::from_utf8(bytes).expect("text")
    };
    let began = std::time::Instant::now();
    let answer = std::iter::repeat_with(ask).find(|text| !text.is_empty() || began.elapsed().as_secs() > 20);
    server.kill().and_then(|()| server.wait()).expect("it ran");
    drop(silent);
    assert!(answer.expect("an answer").contains("sidestep_processes 0"));
}

#[test]
fn everything_is_detached_until_attached() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["run", "true"]).code, Some(0));
    assert_eq!(sandbox.run(&["detach", "--all"]).out, "0 connections on the way back to the kernel\n");
    assert_eq!(sandbox.run(&["status", "--json"]).json()["hold"], true);
    assert!(sandbox.run(&["status"]).out.contains("Everything is detached"));
    assert_eq!(sandbox.run(&["attach", "--all"]).out, "0 connections may be upgraded again\n");
    assert_eq!(sandbox.run(&["status", "--json"]).json()["hold"], false);
}

/// An abstract address is known in the whole network namespace, also to a container that shares it. An operator is recognized by a
/// directory of the host. Needs root.
#[test]
fn uid_0_of_a_container_is_no_operator() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["run", "true"]).code, Some(0));
    for what in [&["detach", "--all"][..], &["status"]] {
        let said = Said::from(in_container(&sandbox.command(what)).output().expect("unshare (util-linux)"));
        assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{said:?}");
        assert!(said.err.contains("its operator's socket is not here (/run/sidestep-operator"), "{}", said.err);
    }
    let status = sandbox.client().expect("an operator outside").status().expect("answered");
    assert!(!status.hold);
}

/// The command, run by uid 0 without capabilities, which shares only the network and the program's file with this process.
fn in_container(command: &Command) -> Command {
    const OWN_FILES: &str = "mount -t tmpfs none /run && mount -t tmpfs none /tmp && exec \"$@\"";
    let mut inside = Command::new("unshare");
    inside.args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c", OWN_FILES, "sh"]);
    inside.args(["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]);
    inside.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => inside.env(name, value),
            None => inside.env_remove(name),
        };
    }
    inside
}

#[test]
fn what_is_not_there_cannot_be_detached() {
    let sandbox = Sandbox::new();
    assert_eq!(sandbox.run(&["run", "true"]).code, Some(0));
    for (what, text) in
        [(vec!["--pid", "1"], "process 1 is not under Sidestep"), (vec!["7.3"], "there is no connection 7.3")]
    {
        let said = sandbox.run(&[&["detach"], &what[..]].concat());
        assert_eq!(said.code, Some(1));
        assert!(said.err.contains(text), "{}", said.err);
    }
    let wrong: [&[&str]; 5] = [&[], &["--all", "--pid", "1"], &["--all", "1.2"], &["seven"], &["--pid", "x"]];
    for what in wrong {
        assert_eq!(sandbox.run(&[&["detach"], what].concat()).code, Some(2), "{what:?}");
    }
}

#[test]
fn without_a_destination_the_broker_explains() {
    let sandbox = Sandbox::new();
    let said = sandbox.run(&["explain", "1"]);
    assert_eq!(said.code, Some(1));
    assert!(said.err.contains("no broker runs"), "{}", said.err);
    assert_eq!(sandbox.run(&["run", "true"]).code, Some(0));
    for what in ["1", "7.3"] {
        let said = sandbox.run(&["explain", what]);
        assert_eq!(said.code, Some(1), "{what}");
        assert!(said.err.contains("no process or connection of that name"), "{}", said.err);
    }
    for wrong in [&["nginx"][..], &["--inbound", "web"]] {
        assert_eq!(sandbox.run(&[&["explain"], wrong].concat()).code, Some(2), "{wrong:?}");
    }
}

#[test]
fn every_reason_is_explained() {
    let sandbox = Sandbox::new();
    let json = sandbox.run(&["reasons", "--json"]).json();
    let list = json.as_array().expect("a list");
    assert_eq!(list.len(), sidestep_abi::Reason::ALL.len());
    let table = sandbox.run(&["reasons"]).out;
    for (entry, reason) in list.iter().zip(sidestep_abi::Reason::ALL) {
        assert_eq!((&entry["code"], &entry["name"]), (&(*reason as u8).into(), &reason.name().into()));
        assert!(entry["meaning"].as_str().is_some_and(|m| m.ends_with(['.', ')'])), "{entry}");
        assert!(table.contains(reason.name()), "{}", reason.name());
    }
}

/// Answers one question with this answer.
fn agent_that_says(sandbox: &Sandbox, answer: &sidestep_agent_api::Answer) -> std::thread::JoinHandle<()> {
    let listener = std::os::unix::net::UnixListener::bind(sandbox.path("agent.sock")).expect("bind");
    let reply = serde_json::to_vec(&Ok::<_, String>(answer)).expect("JSON");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("accept");
        std::io::copy(&mut stream, &mut std::io::sink()).expect("a question");
        std::io::Write::write_all(&mut stream, &reply).expect("write");
    })
}

#[test]
fn long_names_do_not_break_tables_and_are_whole_in_json() {
    use sidestep_agent_api::{Answer, Counters, Frontend, Port, Protocol, Service};
    let sandbox = Sandbox::new();
    let long = format!("first{}last", "x".repeat(244));
    let frontends = vec![Frontend { address: "[fd00:10:96::1234]:8080".into(), backends: 1 }; 3];
    let port = Port {
        name: "http".into(),
        protocol: Protocol::Tcp,
        family: 6,
        policy: "Cluster".into(),
        frontends,
        selection: "random".into(),
        affinity_seconds: 0,
        backend_count: 1,
        counters: Counters { picks: 1234567, affinity_hits: 0, refused: 0 },
        backends: vec![],
        unused: vec![],
    };
    let service = |name: &str| Service {
        namespace: "shop".into(),
        name: name.into(),
        ports: vec![port.clone()],
        bypass: None,
        problems: vec![],
        left: vec![],
    };
    let answer = Answer::Services(vec![service("cart"), service(&long)]);
    let ask = |by: fn(&Sandbox) -> std::process::Command| {
        let agent = agent_that_says(&sandbox, &answer);
        let said = common::Said::from(by(&sandbox).output().expect("spawn"));
        agent.join().expect("it was asked");
        std::fs::remove_file(sandbox.path("agent.sock")).expect("remove");
        assert_eq!(said.code, Some(0), "{said:?}");
        said
    };
    let in_a_terminal = ask(|sandbox| {
        let inner = sandbox.command(&[]);
        let list = format!("stty cols 100; exec {} service list --socket agent.sock", inner.get_program().display());
        let mut command = std::process::Command::new("script");
        command.args(["-qec", &list, "/dev/null"]).current_dir(sandbox.dir.path());
        command
    });
    let longest = in_a_terminal.out.lines().map(|line| line.trim_end().chars().count()).max();
    assert!(longest.is_some_and(|longest| (90..=100).contains(&longest)), "{longest:?}:\n{}", in_a_terminal.out);
    assert!(in_a_terminal.out.contains("firstx") && in_a_terminal.out.contains("1234567"), "{}", in_a_terminal.out);
    let in_a_pipe = ask(|sandbox| sandbox.command(&["service", "list", "--socket", "agent.sock"]));
    assert!(in_a_pipe.out.contains(&long) && in_a_pipe.out.lines().nth(1).expect("cart").len() < 200);
    let json = ask(|sandbox| sandbox.command(&["service", "list", "--json", "--socket", "agent.sock"])).json();
    assert_eq!(json[1]["name"], long.as_str());
}

#[test]
fn help_teaches_with_examples() {
    let sandbox = Sandbox::new();
    for command in [&[][..], &["run"], &["status"], &["detach"], &["attach"], &["doctor"]] {
        let said = sandbox.run(&[command, &["--help"]].concat());
        assert_eq!(said.code, Some(0));
        assert!(said.out.contains("Examples:\n  sidestep "), "{command:?}:\n{}", said.out);
        assert!(!said.out.contains("talk-to-yourself"), "hidden");
    }
    assert_eq!(sandbox.run(&[]).code, Some(2), "no command: the help, as an error");
}
