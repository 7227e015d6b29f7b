//! `sidestep doctor`, for programs of every kind, which are generated here, and for the machine.

use crate::common;

use crate::common::Sandbox;
use serde_json::Value;
use sidestep_testkit::rerun;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
const X86_64: u16 = 62;
const AARCH64: u16 = 183;

/// A 64-bit ELF file with nothing but what the doctor reads.
fn elf(machine: u16, loader: Option<&str>, section: Option<&str>) -> Vec<u8> {
    const HEADER: usize = 64;
    const PROGRAM_HEADER: usize = 56;
    let interp = loader.map(|l| [l.as_bytes(), b"\0"].concat()).unwrap_or_default();
    // String table: "", ".shstrtab", the section's name.
    let strings = [&b"\0.shstrtab\0"[..], section.unwrap_or("").as_bytes(), b"\0"].concat();
    let interp_at = HEADER + PROGRAM_HEADER;
    let strings_at = interp_at + interp.len();
    let sections_at = (strings_at + strings.len()).next_multiple_of(8);
    let sections = 2 + u16::from(section.is_some());

    let mut out = b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    let words = |out: &mut Vec<u8>, list: &[u64]| list.iter().for_each(|w| out.extend(w.to_le_bytes()));
    let halves = |out: &mut Vec<u8>, list: &[u16]| list.iter().for_each(|w| out.extend(w.to_le_bytes()));
    let ints = |out: &mut Vec<u8>, list: &[u32]| list.iter().for_each(|w| out.extend(w.to_le_bytes()));
    halves(&mut out, &[3, machine]);
    ints(&mut out, &[1]);
    words(&mut out, &[0, HEADER as u64, sections_at as u64]);
    ints(&mut out, &[0]);
    halves(&mut out, &[HEADER as u16, PROGRAM_HEADER as u16, u16::from(loader.is_some()), 64, sections, 1]);
    let (interp_at, interp_len) = (interp_at as u64, interp.len() as u64);
    ints(&mut out, &[3, 4]); // PT_INTERP, readable
    words(&mut out, &[interp_at, interp_at, interp_at, interp_len, interp_len, 1]);
    out.extend(&interp);
    out.extend(&strings);
    out.resize(sections_at, 0);
    out.resize(sections_at + 64, 0); // the empty section
    let mut add = |name: u32, kind: u32, at: u64, len: u64| {
        ints(&mut out, &[name, kind]);
        words(&mut out, &[0, 0, at, len]);
        ints(&mut out, &[0, 0]);
        words(&mut out, &[1, 0]);
    };
    add(1, 3, strings_at as u64, strings.len() as u64);
    if section.is_some() {
        add(11, 1, strings_at as u64, 1);
    }
    out
}

fn program(sandbox: &Sandbox, name: &str, content: &[u8], mode: u32) -> PathBuf {
    let path = sandbox.path(name);
    std::fs::write(&path, content).expect("write");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).expect("chmod");
    path
}

/// The checks of a program: name, verdict and what was found.
fn examine(sandbox: &Sandbox, name: &str) -> Vec<(String, String, String)> {
    let said = sandbox.run(&["doctor", "--json", name]);
    let json = said.json();
    let checks = json["program"].as_array().expect("checks of the program").clone();
    for check in &checks {
        assert_eq!(check["advice"].is_string(), check["verdict"] != "ok", "advice where it is needed: {check}");
    }
    assert_eq!(json["ok"], said.code == Some(0));
    let text = |v: &Value| v.as_str().expect("a string").to_string();
    checks.iter().map(|c| (text(&c["name"]), text(&c["verdict"]), text(&c["found"]))).collect()
}

/// Asserts that this is the only complaint about the file.
fn complains(content: &[u8], mode: u32, check: &str, verdict: &str, found: &str) {
    let sandbox = Sandbox::new();
    let path = program(&sandbox, "program", content, mode);
    let bad: Vec<_> = examine(&sandbox, path.to_str().expect("utf-8")).into_iter().filter(|c| c.1 != "ok").collect();
    assert_eq!(bad.len(), 1, "{bad:?}");
    assert_eq!((bad[0].0.as_str(), bad[0].1.as_str()), (check, verdict), "{bad:?}");
    assert!(bad[0].2.contains(found), "{found} is missing in {bad:?}");
}

#[test]
fn ordinary_programs_are_fine() {
    let sandbox = Sandbox::new();
    let made = program(&sandbox, "made", &elf(X86_64, Some(LOADER), Some(".text")), 0o755);
    // The library supports musl, too: only the loader's existence counts.
    let loader = program(&sandbox, "ld-musl-x86_64.so.1", b"", 0o755);
    let musl = program(&sandbox, "musl", &elf(X86_64, loader.to_str(), None), 0o755);
    for name in ["sh", "/usr/bin/env", made.to_str().expect("utf-8"), musl.to_str().expect("utf-8")] {
        let checks = examine(&sandbox, name);
        assert!(checks.len() == 6 && checks.iter().all(|c| c.1 == "ok"), "{name}: {checks:?}");
    }
}

#[test]
fn programs_that_cannot_be_preloaded() {
    let normal = elf(X86_64, Some(LOADER), None);
    let fails = |content: &[u8], mode, check, found| complains(content, mode, check, "will-not-work", found);
    fails(&elf(X86_64, None, None), 0o755, "linking", "static");
    fails(&elf(X86_64, Some("/no/such/ld.so"), None), 0o755, "linking", "/no/such/ld.so does not exist");
    fails(&elf(X86_64, Some(LOADER), Some(".go.buildinfo")), 0o755, "language", "Go");
    fails(&elf(AARCH64, Some(LOADER), None), 0o755, "format", "Aarch64");
    fails(&normal, 0o4755, "rights", "setuid");
    fails(&normal, 0o2755, "rights", "setgid");
    fails(&normal, 0o644, "file", "not executable");
    fails(b"just text", 0o755, "format", "neither an ELF program nor a script");
    fails(&normal[..80], 0o755, "format", "damaged");
    fails(b"#!/no/such/interpreter -x\n", 0o755, "script", "/no/such/interpreter -x");
    fails(b"#!/usr/bin/env no-such-interpreter\n", 0o755, "script", "no-such-interpreter");
    let mut narrow = normal.clone();
    narrow[4] = 1; // ELFCLASS32
    fails(&narrow, 0o755, "format", "32-bit");
}

#[test]
fn static_go_programs_have_two_reasons() {
    let sandbox = Sandbox::new();
    let path = program(&sandbox, "go", &elf(X86_64, None, Some(".go.buildinfo")), 0o755);
    let bad: Vec<_> =
        examine(&sandbox, path.to_str().expect("utf-8")).into_iter().filter(|c| c.1 != "ok").map(|c| c.0).collect();
    assert_eq!(bad, ["linking", "language"]);
}

/// For Debian's nginx: root starts it, and its workers become www-data.
#[test]
fn for_workers_that_change_their_user_the_line_is_named() {
    let sandbox = Sandbox::new();
    let mut by_sudo = sandbox.command(&["doctor", "--json", "/usr/sbin/nginx"]);
    let json = common::Said::from(by_sudo.env("SUDO_UID", "1000").output().expect("spawn")).json();
    let checks = json["program"].as_array().expect("checks of the program");
    let users = checks.iter().find(|check| check["name"] == "users").expect("looked at");
    let found = users["found"].as_str().expect("a string");
    assert!(found.contains("become www-data (/etc/nginx/nginx.conf:"), "{users}");
    // Only root's word about who has called sudo counts.
    let uid = rustix::process::geteuid();
    let (written, client) = if uid.is_root() { ("write", 1000) } else { ("root must write", uid.as_raw()) };
    let expected = format!(
        "{written} the line `allow = [{{services = [\"nginx.service\"], uids = [{client}]}}]` into /etc/sidestep/config.toml \
         and run `systemctl try-reload-or-restart sidestepd`, so that it shares memory with clients of user {client}. \
         A file has the key `allow` once: if it is there, put the rule into its list \
         (docs/CONFIG.md: who may share memory). \
         If not the unit but root's shell starts it, the line is `allow = [{{uids = [\"www-data\", {client}]}}]`"
    );
    assert_eq!((users["verdict"].as_str(), users["advice"].as_str()), (Some("limited"), Some(expected.as_str())));
}

/// As Debian's rabbitmq-server: what its unit starts is a script.
#[test]
fn a_script_is_known_by_its_own_name() {
    let sandbox = Sandbox::new();
    let path = program(&sandbox, "nginx", b"#!/bin/sh\n", 0o755);
    let checks = examine(&sandbox, path.to_str().expect("utf-8"));
    let users: Vec<_> = checks.iter().filter(|check| check.0 == "users").collect();
    assert!(users.len() == 1 && users[0].2.contains("become www-data ("), "{checks:?}");
}

#[test]
fn file_capabilities_are_noticed() {
    // Only root may set capabilities; any user is root of a user namespace of their own.
    if !rustix::process::geteuid().is_root() {
        let status = rerun::in_user_namespace(concat!(module_path!(), "::file_capabilities_are_noticed")).status();
        return assert!(status.expect("unshare (util-linux) is there").success());
    }
    let sandbox = Sandbox::new();
    let path = program(&sandbox, "program", &elf(X86_64, Some(LOADER), None), 0o755);
    // VFS_CAP_REVISION_2, effective; CAP_NET_BIND_SERVICE permitted.
    let value: Vec<u8> = [0x0200_0001u32, 1 << 10, 0, 0, 0].iter().flat_map(|w| w.to_le_bytes()).collect();
    rustix::fs::setxattr(&path, c"security.capability", &value, rustix::fs::XattrFlags::empty()).expect("setxattr");
    let checks = examine(&sandbox, path.to_str().expect("utf-8"));
    let rights = checks.iter().find(|c| c.0 == "rights").expect("looked at");
    assert!(rights.1 == "will-not-work" && rights.2.contains("capabilities"), "{rights:?}");
}

#[test]
fn scripts_are_followed_to_their_interpreter() {
    let sandbox = Sandbox::new();
    let inner = program(&sandbox, "static", &elf(X86_64, None, None), 0o755);
    let outer = program(&sandbox, "outer", format!("#! {} -x\n", inner.display()).as_bytes(), 0o4755);
    let checks = examine(&sandbox, outer.to_str().expect("utf-8"));
    let verdicts: Vec<_> = checks.iter().map(|c| (c.0.as_str(), c.1.as_str())).collect();
    let expected = [
        ("file", "ok"),
        ("script", "ok"),
        ("file", "ok"),
        ("rights", "ok"),
        ("format", "ok"),
        ("linking", "will-not-work"),
        ("language", "ok"),
        ("users", "ok"),
    ];
    assert_eq!(verdicts, expected, "the script's own setuid bit means nothing");
    let by_env = program(&sandbox, "by_env", b"#!/usr/bin/env -S FOO=1 sh -e\n", 0o755);
    let checks = examine(&sandbox, by_env.to_str().expect("utf-8"));
    assert!(checks.iter().all(|c| c.1 == "ok") && checks[1].2.ends_with("/sh"), "{checks:?}");
    let round = sandbox.path("round");
    std::fs::write(&round, format!("#!{}\n", round.display())).expect("write");
    std::fs::set_permissions(&round, std::fs::Permissions::from_mode(0o755)).expect("chmod");
    assert!(examine(&sandbox, round.to_str().expect("utf-8")).iter().any(|c| c.2.contains("all the way down")));
}

#[test]
fn what_is_not_a_program_is_said() {
    let sandbox = Sandbox::new();
    for (name, found) in
        [("no-such-program", "not found"), ("./no-such-file", "not found"), ("/", "is not a file"), ("", "not found")]
    {
        let checks = examine(&sandbox, name);
        assert_eq!((checks.len(), checks[0].1.as_str()), (1, "will-not-work"), "{name}");
        assert!(checks[0].2.contains(found), "{checks:?}");
    }
}

fn machine(json: &Value, name: &str) -> (String, String) {
    let checks = json["machine"].as_array().expect("checks");
    let check = checks.iter().find(|c| c["name"] == name).unwrap_or_else(|| panic!("{name} is missing in {json}"));
    (check["verdict"].as_str().expect("string").into(), check["found"].as_str().expect("string").into())
}

#[test]
fn the_machine_is_looked_at() {
    let sandbox = Sandbox::new();
    let said = sandbox.run(&["doctor", "--json"]);
    let json = said.json();
    for name in [
        "switch",
        "processor",
        "memfd",
        "control sockets",
        "eventfd",
        "socket identity",
        "locked memory",
        "library",
        "broker",
    ] {
        assert_eq!(machine(&json, name).0, "ok", "{name}: {json}");
    }
    assert!(json.get("program").is_none());
    // The stand-in is a library, but does nothing, which only the trial detects.
    let (verdict, found) = machine(&json, "trial");
    assert_eq!((verdict.as_str(), said.code), ("will-not-work", Some(1)));
    assert!(found.contains("the library wrote no report"), "{found}");
    assert!(!sandbox.run(&["doctor"]).out.is_empty());
}

/// A file of a name that others can guess may be a pipe, which nobody ever writes to.
#[test]
fn the_trial_s_report_has_a_place_that_nobody_can_take_before() {
    let sandbox = Sandbox::new();
    let inner = sandbox.command(&["doctor", "--json"]);
    let mut shell = Command::new("sh");
    // The doctor has the shell's number.
    let script = "mkfifo \"$TMPDIR/sidestep-doctor-$$.json\" && exec \"$0\" doctor --json";
    shell.args(["-c", script]).arg(inner.get_program());
    shell.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?)))).env("TMPDIR", sandbox.dir.path());
    let mut child = shell.stdout(Stdio::piped()).spawn().expect("sh");
    let deadline = Instant::now() + Duration::from_secs(60);
    while child.try_wait().expect("wait").is_none() {
        if Instant::now() > deadline {
            child.kill().expect("kill");
            panic!("the doctor waits for a stranger's pipe");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let json = common::Said::from(child.wait_with_output().expect("its output")).json();
    assert!(machine(&json, "trial").1.contains("the library wrote no report"), "{json}");
}

#[test]
fn what_is_wrong_with_the_machine_is_named() {
    let sandbox = Sandbox::alone();
    let verdict = |command: &mut Command, name: &str| {
        let json = common::Said::from(command.output().expect("spawn")).json();
        assert_eq!(json["ok"], false);
        machine(&json, name)
    };
    let doctor = || sandbox.command(&["doctor", "--json"]);
    assert_eq!(verdict(doctor().env("SIDESTEP", "off"), "switch").0, "will-not-work");
    let (library, found) = verdict(doctor().env_remove("SIDESTEP_LIBRARY"), "library");
    assert!(library == "will-not-work" && found.contains(&sandbox.dir.path().display().to_string()), "{found}");
    let (broker, found) = verdict(&mut doctor(), "broker");
    assert!(broker == "will-not-work" && found.contains("sidestepd"), "{found}");
    let limited = |limit: &str| {
        let mut shell = Command::new("sh");
        let inner = doctor();
        shell.args(["-c", &format!("ulimit {limit} && exec \"$0\" doctor --json")]).arg(inner.get_program());
        shell.envs(inner.get_envs().filter_map(|(k, v)| Some((k, v?))));
        shell
    };
    assert_eq!(verdict(&mut limited("-v 900000"), "address space").0, "will-not-work");
    assert_eq!(verdict(&mut limited("-v 8000000"), "address space").0, "limited");
    assert_eq!(verdict(&mut limited("-n 64"), "open files").0, "limited");
}

#[test]
fn the_table_says_what_to_do() {
    let sandbox = Sandbox::new();
    let path = program(&sandbox, "program", &elf(X86_64, None, None), 0o755);
    let said = sandbox.run(&["doctor", path.to_str().expect("utf-8")]);
    assert_eq!(said.code, Some(1));
    for needed in
        ["This machine", &format!("Program {}", path.display()), "will not work", "\nlinking: its connections stay"]
    {
        assert!(said.out.contains(needed), "{needed} is missing in:\n{}", said.out);
    }
    assert!(Path::new(&path).exists());
}
