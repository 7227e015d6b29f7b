//! `sidestep run`: the program behaves as without it, and runs even if parts of Sidestep are missing.

use crate::common::{STAND_IN, Said, Sandbox};
use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};

#[test]
fn the_exit_code_is_the_programs() {
    let sandbox = Sandbox::new();
    for code in [0, 1, 7, 255] {
        let said = sandbox.run(&["run", "sh", "-c", &format!("exit {code}")]);
        assert_eq!((said.code, said.err.as_str()), (Some(code), ""));
    }
}

#[test]
fn signals_and_process_id_are_the_programs() {
    let sandbox = Sandbox::new();
    let status = sandbox.command(&["run", "sh", "-c", "kill -TERM $$"]).status().expect("spawn");
    assert_eq!(status.signal(), Some(15), "a shell calls that 143");
    let mut child =
        sandbox.command(&["run", "sh", "-c", "echo $$; exec sleep 60"]).stdout(Stdio::piped()).spawn().expect("spawn");
    let (mut text, mut byte) = (String::new(), [0]);
    let mut out = child.stdout.take().expect("piped");
    while out.read(&mut byte).expect("read") == 1 && byte != *b"\n" {
        text.push(byte[0].into());
    }
    assert_eq!(text, child.id().to_string());
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT)
        .expect("kill");
    assert_eq!(child.wait().expect("wait").signal(), Some(2));
}

/// Program and arguments.
fn words(command: &Command) -> impl Iterator<Item = &OsStr> {
    std::iter::once(command.get_program()).chain(command.get_args())
}

/// Gives `command` the variables of another one.
fn with_its_environment(command: &mut Command, other: &Command) {
    for (name, value) in other.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
}

/// Whether SIGPIPE is ignored, and whether SIGUSR1 is blocked, in a program that `sidestep run`, itself started by `env` with
/// these options, has executed.
fn pipe_is_ignored_and_usr1_blocked(sandbox: &Sandbox, options: &[&str], switch: &str) -> (bool, bool) {
    let mut run = sandbox.command(&["run", "grep", "^Sig", "/proc/self/status"]);
    run.env("SIDESTEP", switch);
    let mut by_env = Command::new("env");
    by_env.args(options).args(words(&run));
    with_its_environment(&mut by_env, &run);
    let said = Said::from(by_env.output().expect("env (coreutils)"));
    let has = |mask: &str, number: u32| {
        let digits = said.out.lines().find_map(|line| line.strip_prefix(mask)).expect("a line of this mask");
        u64::from_str_radix(digits.trim(), 16).expect("a mask") & (1 << (number - 1)) != 0
    };
    (has("SigIgn:", 13), has("SigBlk:", 10))
}

#[test]
fn ignored_and_blocked_signals_stay_so() {
    let sandbox = Sandbox::new();
    let cases: [(&[&str], (bool, bool)); 3] =
        [(&[], (false, false)), (&["--ignore-signal=PIPE"], (true, false)), (&["--block-signal=USR1"], (false, true))];
    for switch in ["on", "off"] {
        for (options, expected) in cases {
            let found = pipe_is_ignored_and_usr1_blocked(&sandbox, options, switch);
            assert_eq!(found, expected, "{options:?}, SIDESTEP={switch}");
        }
    }
}

#[test]
fn the_program_has_no_child_it_did_not_start() {
    let sandbox = Sandbox::new();
    let said = sandbox.run(&["run", "sh", "-c", "read children < /proc/$$/task/$$/children; echo \"[$children]\""]);
    assert_eq!(said.out, "[]\n");
    assert!(sandbox.client().is_some(), "and yet a broker was started");
}

#[test]
fn arguments_and_descriptors_arrive_untouched() {
    let sandbox = Sandbox::new();
    let said = sandbox.run(&["run", "--", "printf", "%s|", "--spin", "-x", "", "a b", "--"]);
    assert_eq!(said.out, "--spin|-x||a b|--|");
    let said = sandbox.run(&["run", "printf", "%s|", "--report", "--help"]);
    assert_eq!(said.out, "--report|--help|", "what follows the program is the program's, also without --");
    let said = sandbox.run(&["run", "sh", "-c", "ls -l /proc/self/fd | grep -c -- '->'"]);
    let plain =
        sandbox.command(&["run", "sh", "-c", "ls -l /proc/self/fd | grep -c -- '->'"]).env("SIDESTEP", "off").output();
    assert_eq!(said.out, Said::from(plain.expect("spawn")).out, "no descriptor is left open");
}

/// Also words that are options of `sidestep` or of `sidestep run`, in every position.
#[test]
fn what_follows_the_program_is_its_own() {
    let sandbox = Sandbox::new();
    let script = sandbox.script("words", "#!/bin/sh\nprintf '%s|' \"$@\"\n");
    let script = script.to_str().expect("utf-8");
    let cases: [&[&str]; 9] = [
        &["-h", "HOST"],
        &["--help"],
        &["--version"],
        &["-V"],
        &["--"],
        &["--", "-h"],
        &["--spin", "off", "--report=x"],
        &["-x", "--", "--help"],
        &["", "-", "--no-such-option"],
    ];
    for words in cases {
        let expected: String = words.iter().map(|word| format!("{word}|")).collect();
        for ours in [&["run"][..], &["run", "--spin", "off"], &["run", "--"], &["run", "--spin", "off", "--"]] {
            let said = sandbox.run(&[ours, &[script], words].concat());
            assert_eq!((said.code, said.out.as_str()), (Some(0), expected.as_str()), "{ours:?} {words:?}: {said:?}");
        }
    }
    // Before the program they are options of `sidestep run`.
    for ours in ["-h", "--help"] {
        let said = sandbox.run(&["run", ours, script]);
        assert!(said.code == Some(0) && said.out.contains("Usage: sidestep run [OPTIONS] [--] CMD"), "{said:?}");
    }
}

const SHOW: [&str; 3] = ["sh", "-c", "env | grep -E '^(SIDESTEP|LD_PRELOAD)' | sort"];

fn shown(sandbox: &Sandbox, options: &[&str], variables: &[(&str, &str)]) -> Said {
    let args: Vec<&str> = [&["run"], options, &SHOW].concat();
    let mut command = sandbox.command(&args);
    command.envs(variables.iter().copied());
    Said::from(command.output().expect("spawn"))
}

#[test]
fn options_become_variables() {
    let sandbox = Sandbox::new();
    let said = shown(
        &sandbox,
        &["--spin", "20", "--upgrade-after", "64K", "--ring-size", "1M", "--report", "r.jsonl"],
        &[("SIDESTEP_IO_URING", "refuse")],
    );
    let report = sandbox.path("r.jsonl");
    for expected in [
        format!("LD_PRELOAD={STAND_IN}"),
        format!("SIDESTEP_BROKER={}", sandbox.address),
        "SIDESTEP_SPIN=20".into(),
        "SIDESTEP_UPGRADE_AFTER=65536".into(),
        "SIDESTEP_RING_SIZE=1048576".into(),
        "SIDESTEP_IO_URING=refuse".into(),
        format!("SIDESTEP_REPORT={}", report.canonicalize().unwrap_or(report).display()),
    ] {
        let canonical =
            |line: &str| line == expected || (line.starts_with("LD_PRELOAD=/") && expected.starts_with("LD_PRELOAD"));
        assert!(said.out.lines().any(canonical), "{expected} is missing in:\n{}", said.out);
    }
}

#[test]
fn an_existing_preload_stays_behind_ours() {
    let sandbox = Sandbox::new();
    let other = "/lib/x86_64-linux-gnu/librt.so.1";
    let said = shown(&sandbox, &[], &[("LD_PRELOAD", other)]);
    let line = said.out.lines().find(|line| line.starts_with("LD_PRELOAD=")).expect("set");
    assert!(line.ends_with(&format!(":{other}")) && line.contains("libm"), "{line}");
}

#[test]
fn options_go_before_variables_before_the_file() {
    let sandbox = Sandbox::new();
    sandbox.write(".config/sidestep/config.toml", "spin = 1\nupgrade-after = '1ops'\nring-size = 4096\n");
    let said = shown(&sandbox, &["--spin", "3"], &[("SIDESTEP_SPIN", "2"), ("SIDESTEP_UPGRADE_AFTER", "2ops")]);
    for expected in ["SIDESTEP_SPIN=3", "SIDESTEP_UPGRADE_AFTER=2ops", "SIDESTEP_RING_SIZE=4096"] {
        assert!(said.out.lines().any(|line| line == expected), "{expected} is missing in:\n{}", said.out);
    }
    assert_eq!(said.err, "");
}

#[test]
fn off_is_off() {
    let sandbox = Sandbox::new();
    let said = shown(&sandbox, &["--spin", "3"], &[("SIDESTEP", "off")]);
    assert!(!said.out.contains("LD_PRELOAD") && !said.out.contains("SIDESTEP_SPIN"), "{}", said.out);
    assert!(sandbox.client().is_none(), "no broker is started");
}

#[test]
fn programs_that_cannot_run_are_told_apart() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("data", "not a program");
    let file = file.to_str().expect("utf-8");
    for (program, code, text) in
        [("no-such-program", 127, "not found"), (file, 126, "cannot be executed"), ("/", 126, "cannot be executed")]
    {
        let said = sandbox.run(&["run", program]);
        assert_eq!(said.code, Some(code), "{program}");
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert!(said.err.starts_with(&format!("sidestep: {program}: {text}")), "{}", said.err);
    }
}

#[test]
fn bad_options_are_usage_errors() {
    let sandbox = Sandbox::new();
    let cases: [&[&str]; 7] = [
        &["--io-uring", "off"],
        &["--spin", "fast"],
        &["--upgrade-after", "4 ops"],
        &["--ring-size", "5000"],
        &["--ring-size", "64M"],
        &["--no-such-option"],
        &["--config", "missing.toml"],
    ];
    for options in cases {
        let said = sandbox.run(&[&["run"], options, &["echo", "ran"]].concat());
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "{options:?}");
        assert!(said.err.contains(options.last().expect("one")), "{}", said.err);
    }
    assert_eq!(sandbox.run(&["run"]).code, Some(2), "no program");
}

#[test]
fn a_bad_file_that_was_asked_for_is_an_error_with_its_place() {
    let sandbox = Sandbox::new();
    sandbox.write("c.toml", "spin = 'auto'\n\nring_size = 4096\n");
    let said = sandbox.run(&["run", "--config", "c.toml", "echo", "ran"]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    assert!(said.err.starts_with("sidestep: c.toml:3: ring_size: unknown key"), "{}", said.err);
}

#[test]
fn a_bad_file_in_a_default_place_is_a_warning() {
    for by_variable in [false, true] {
        let sandbox = Sandbox::new();
        let file = sandbox.write(".config/sidestep/config.toml", "spin = 'fast'\n");
        let mut command = sandbox.command(&["run", "echo", "ran"]);
        if by_variable {
            command.env("SIDESTEP_CONFIG", &file).env("HOME", "/nonexistent");
        }
        let said = Said::from(command.output().expect("spawn"));
        assert_eq!((said.code, said.out.as_str()), (Some(0), "ran\n"));
        assert_eq!(said.err.lines().count(), 1, "{}", said.err);
        assert!(said.err.contains(&format!("{}:1: spin: expected auto", file.display())), "{}", said.err);
    }
}

#[test]
fn a_bad_variable_is_a_warning_and_not_passed_on() {
    let sandbox = Sandbox::new();
    let said = shown(&sandbox, &[], &[("SIDESTEP_RING_SIZE", "huge")]);
    assert!(!said.out.contains("SIDESTEP_RING_SIZE"), "{}", said.out);
    assert!(said.err.starts_with("sidestep: warning: SIDESTEP_RING_SIZE: expected a number of bytes"), "{}", said.err);
}

/// The command runs all the same, with one line that contains this.
fn runs_with_a_warning(command: &mut Command, why: &str) {
    let said = Said::from(command.output().expect("spawn"));
    assert_eq!((said.code, said.out.as_str()), (Some(5), "ran\n"), "{said:?}");
    assert_eq!(said.err.lines().count(), 1, "{}", said.err);
    assert!(said.err.contains(why) && said.err.contains("runs on kernel TCP"), "{}", said.err);
}

const RAN: [&str; 4] = ["run", "sh", "-c", "echo ran; exit 5"];

#[test]
fn without_library_or_broker_it_runs_on_kernel_tcp() {
    let alone = Sandbox::alone();
    runs_with_a_warning(alone.command(&RAN).env_remove("SIDESTEP_LIBRARY"), "libsidestep.so is neither in");
    runs_with_a_warning(&mut alone.command(&RAN), "sidestepd is neither in");
    let sandbox = Sandbox::new();
    runs_with_a_warning(
        sandbox.command(&RAN).env("SIDESTEP_LIBRARY", "/nonexistent.so"),
        "/nonexistent.so: no such file",
    );
    runs_with_a_warning(sandbox.command(&RAN).env("SIDESTEP_BROKER", "nonsense"), "'nonsense' is not an address");
    runs_with_a_warning(sandbox.command(&RAN).env("SIDESTEP_BROKER", "/nonexistent/broker"), "/nonexistent/broker");
}

#[test]
fn something_else_at_the_brokers_address_is_not_a_broker() {
    let sandbox = Sandbox::new();
    let kind = rustix::net::SocketType::SEQPACKET;
    let deaf = rustix::net::socket(rustix::net::AddressFamily::UNIX, kind, None).expect("socket");
    let name = rustix::net::SocketAddrUnix::new_abstract_name(sandbox.address.trim_start_matches('@').as_bytes())
        .expect("name");
    rustix::net::bind(&deaf, &name).expect("bind");
    rustix::net::listen(&deaf, 8).expect("listen");
    // Accepts connections and closes them at once; ends when the socket is shut down.
    let shut = deaf.try_clone().expect("dup");
    let taker = std::thread::spawn(move || while rustix::net::accept(&deaf).is_ok() {});
    runs_with_a_warning(&mut sandbox.command(&RAN), "closes connections without an answer");
    rustix::net::shutdown(&shut, rustix::net::Shutdown::Both).expect("shutdown");
    taker.join().expect("it ends");
}

/// At a terminal, and nowhere else.
#[test]
fn a_person_is_told_of_workers_of_another_user() {
    assert!(rustix::process::geteuid().is_root(), "this test needs root");
    let sandbox = Sandbox::new();
    let directory = tempfile::tempdir().expect("temporary directory");
    let server = directory.path().join("nginx");
    std::os::unix::fs::symlink("/bin/true", &server).expect("symlink");
    let server = server.to_str().expect("a path");
    assert_eq!(sandbox.run(&["run", server]).err, "");
    let run = sandbox.command(&["run", server]);
    let words: Vec<_> = words(&run).map(|it| it.to_string_lossy()).collect();
    let mut at_a_terminal = Command::new("script");
    at_a_terminal.args(["-qec", &words.join(" "), "/dev/null"]);
    with_its_environment(&mut at_a_terminal, &run);
    at_a_terminal.env("SUDO_UID", "1000");
    let said = Said::from(at_a_terminal.output().expect("script(1)"));
    assert!(said.out.contains("sidestep: hint: "), "{}", said.out);
    let line =
        "write the line `allow = [{services = [\"nginx.service\"], uids = [1000]}]` into /etc/sidestep/config.toml";
    assert!(said.out.contains(line), "{}", said.out);
    // What a shell starts is in no service.
    assert!(said.out.contains("`allow = [{uids = [\"www-data\", 1000]}]`"), "{}", said.out);
}

#[test]
fn many_at_once_share_one_broker() {
    let sandbox = Sandbox::new();
    let mut all: Vec<_> = (0..12)
        .map(|_| {
            sandbox
                .command(&["run", "echo", "ran"])
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("spawn")
        })
        .collect();
    for child in all.drain(..) {
        let said = Said::from(child.wait_with_output().expect("wait"));
        assert_eq!((said.code, said.out.as_str(), said.err.as_str()), (Some(0), "ran\n", ""));
    }
    assert!(sandbox.client().expect("a broker").status().is_ok());
}
