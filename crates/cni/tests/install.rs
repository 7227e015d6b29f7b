//! `sidestep-cni install` and `uninstall` on a runtime's directories.

use crate::common::PROGRAM;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LIST: &str = "{\n  \"cniVersion\": \"1.0.0\",\n  \"name\": \"net\",\n  \"plugins\": [\n    {\n      \"type\": \"ptp\"\n    },\n    { \"type\": \"portmap\" }\n  ]\n}\n";
const SINGLE: &str = "{ \"cniVersion\": \"0.4.0\", \"name\": \"net\", \"type\": \"bridge\" }\n";
const PATIENCE: Duration = Duration::from_secs(30);

/// A runtime's directories.
struct Host(TempDir);

impl Host {
    fn with(files: &[(&str, &str)]) -> Host {
        let host = Host(tempfile::tempdir().unwrap());
        fs::create_dir_all(host.conf("")).unwrap();
        for (name, text) in files {
            fs::write(host.conf(name), text).unwrap();
        }
        host
    }

    fn conf(&self, name: &str) -> PathBuf {
        self.0.path().join("net.d").join(name)
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("opt/bin/sidestep-cni")
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(PROGRAM);
        command.args(words).arg("--bin-dir").arg(self.program().parent().unwrap()).arg("--conf-dir").arg(self.conf(""));
        command.env_remove("CNI_COMMAND");
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    fn install(&self) {
        let out = self.run(&["install"]);
        assert!(out.status.success(), "{out:?}");
    }

    fn uninstall(&self) {
        let out = self.run(&["uninstall"]);
        assert!(out.status.success(), "{out:?}");
    }

    /// All files and their texts.
    fn files(&self) -> BTreeMap<String, String> {
        let entries = fs::read_dir(self.conf("")).unwrap().map(|entry| entry.unwrap().path());
        let read = |path: PathBuf| {
            (path.file_name().unwrap().to_str().unwrap().to_string(), fs::read_to_string(&path).unwrap())
        };
        entries.filter(|path| path.is_file()).map(read).collect()
    }

    /// The types of the plugins that a runtime finds: those of the first file by name.
    fn chain(&self) -> Vec<String> {
        let files = self.files();
        let is_read = |name: &&String| [".conf", ".conflist", ".json"].iter().any(|ending| name.ends_with(ending));
        let first = files.keys().find(is_read).unwrap();
        types(&files[first])
    }

    fn wait(&self, what: &str, is_so: impl Fn(&Host) -> bool) {
        let begun = Instant::now();
        while !is_so(self) {
            assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", self.files());
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn types(text: &str) -> Vec<String> {
    let read: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let plugins = read["plugins"].as_array().cloned().unwrap_or_else(|| vec![read.clone()]);
    plugins.iter().map(|plugin| plugin["type"].as_str().unwrap().to_string()).collect()
}

#[test]
fn a_list_gets_the_plugin_and_loses_it_again() {
    let host = Host::with(&[("10-net.conflist", LIST), ("20-other.conflist", LIST), ("notes.txt", "ours")]);
    fs::set_permissions(host.conf("10-net.conflist"), Permissions::from_mode(0o640)).unwrap();
    let before = host.files();
    host.install();
    assert_eq!(host.chain(), ["ptp", "portmap", "sidestep-cni"]);
    let own: Value = serde_json::from_str::<Value>(&host.files()["10-net.conflist"]).unwrap()["plugins"][2].clone();
    assert_eq!((&own["agentSocket"], &own["timeoutSeconds"]), (&"/run/sidestep/agent.sock".into(), &15.into()));
    assert_eq!(types(&host.files()["20-other.conflist"]), ["ptp", "portmap"], "a runtime uses the first only");
    let found = fs::metadata(host.conf("10-net.conflist")).unwrap();
    assert_eq!(found.mode() & 0o7777, 0o640);
    assert_eq!(fs::metadata(host.program()).unwrap().mode() & 0o7777, 0o755);
    assert_eq!(fs::read(host.program()).unwrap(), fs::read(PROGRAM).unwrap());
    // The installed program is the same plugin.
    let version = Command::new(host.program()).env("CNI_COMMAND", "VERSION").stdin(Stdio::null()).output().unwrap();
    assert!(String::from_utf8_lossy(&version.stdout).contains("supportedVersions"), "{version:?}");
    let once = host.files();
    host.install();
    assert_eq!(host.files(), once, "once is enough");
    host.uninstall();
    assert_eq!(host.files(), before);
    assert!(!host.program().exists());
    host.uninstall();
    assert_eq!(host.files(), before);
}

#[test]
fn options_are_those_of_the_last_installation() {
    let host = Host::with(&[("10-net.conflist", LIST)]);
    host.install();
    let out = host.run(&["install", "--socket", "/run/other.sock", "--timeout", "30"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(host.chain(), ["ptp", "portmap", "sidestep-cni"]);
    let text = &host.files()["10-net.conflist"];
    assert!(text.contains("/run/other.sock") && text.contains("\"timeoutSeconds\":30"), "{text}");
    assert_eq!(host.run(&["install", "--timeout", "1"]).status.code(), Some(2));
}

/// A file of one plugin is in the way of a list of that name: it would come first.
#[test]
fn a_single_plugin_becomes_a_list_and_comes_back() {
    for (name, after) in [("10-net.conf", "10-net.conflist"), ("10-net.json", "11-net.conflist")] {
        let host = Host::with(&[(name, SINGLE), (after, LIST)]);
        let before = host.files();
        host.install();
        assert_eq!(host.chain(), ["bridge", "sidestep-cni"], "{name}");
        let once = host.files();
        host.install();
        assert_eq!(host.files(), once);
        host.uninstall();
        assert_eq!(host.files(), before);
    }
}

#[test]
fn a_single_plugin_that_was_written_anew_meanwhile_stays() {
    let host = Host::with(&[("10-net.conf", SINGLE)]);
    host.install();
    let new = SINGLE.replace("bridge", "macvlan");
    fs::write(host.conf("10-net.conf"), &new).unwrap();
    host.uninstall();
    assert_eq!(host.files(), BTreeMap::from([("10-net.conf".to_string(), new)]));
}

#[test]
fn what_other_programs_have_changed_meanwhile_stays() {
    let host = Host::with(&[("10-net.conflist", LIST)]);
    host.install();
    let changed = host.files()["10-net.conflist"].replace("\"net\"", "\"other\"").replace("portmap", "bandwidth");
    fs::write(host.conf("10-net.conflist"), changed).unwrap();
    host.uninstall();
    assert_eq!(host.files()["10-net.conflist"], LIST.replace("\"net\"", "\"other\"").replace("portmap", "bandwidth"));
}

#[test]
fn broken_files_are_passed_over_and_said() {
    let host = Host::with(&[("00-broken.conflist", "{"), ("01-empty.conf", ""), ("10-net.conflist", LIST)]);
    fs::create_dir(host.conf("02-directory.conf")).unwrap();
    let out = host.run(&["install"]);
    assert!(out.status.success(), "{out:?}");
    let said = String::from_utf8_lossy(&out.stderr);
    assert!(said.contains("00-broken.conflist: passed over") && said.contains("01-empty.conf: passed over"), "{said}");
    let files = host.files();
    assert_eq!((types(&files["10-net.conflist"]).len(), files["00-broken.conflist"].as_str()), (3, "{"));
    host.uninstall();
    assert_eq!(host.files()["10-net.conflist"], LIST);
}

#[test]
fn without_a_configuration_it_says_what_to_do() {
    for host in [Host::with(&[]), Host::with(&[("10-net.conflist", "{\"plugins\":[]}")])] {
        let out = host.run(&["install"]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains("install the cluster's network first"), "{said}");
    }
    let host = Host::with(&[]);
    fs::remove_dir(host.conf("")).unwrap();
    assert!(!host.run(&["install"]).status.success());
    host.uninstall();
}

/// A network plugin may need the agent, which does not start before this command has ended, to write its configuration.
#[test]
fn a_configuration_that_comes_later_is_left_to_the_watcher() {
    let early = ["install", "--allow-missing"];
    for host in [Host::with(&[]), Host::with(&[("10-net.conflist", "{\"plugins\":[")])] {
        let out = host.run(&early);
        let said = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && said.contains("no network configuration is there yet"), "{out:?}");
        assert!(host.program().exists());
        let _watcher = Watcher::start(&host);
        fs::write(host.conf("05-net.conf"), SINGLE).unwrap();
        host.wait("the last step", |host| host.conf("05-net.conf.before-sidestep-cni").exists());
        assert_eq!(host.chain(), ["bridge", "sidestep-cni"]);
    }
    // What the watcher could not mend either is an error at once.
    let other = LIST.replace("1.0.0", "0.2.0");
    assert!(!Host::with(&[("10-net.conflist", other.as_str())]).run(&early).status.success());
    let host = Host::with(&[("10-net.conflist", LIST)]);
    assert!(host.run(&early).status.success());
    assert_eq!(host.chain(), ["ptp", "portmap", "sidestep-cni"]);
    assert_eq!(host.run(&[&early[..], &["--watch"]].concat()).status.code(), Some(2));
}

/// As kubespray has it: the runtime's directories, and what is in them, are another user's. Root has the rights of the chart's container.
#[test]
fn directories_of_another_user_need_two_capabilities() {
    const OWNER: u32 = 997;
    let host = Host::with(&[("10-net.conflist", LIST), ("20-net.conf", SINGLE)]);
    fs::create_dir_all(host.program().parent().unwrap()).unwrap();
    for path in [host.conf(""), host.program().parent().unwrap().into(), host.conf("10-net.conflist")] {
        std::os::unix::fs::chown(path, Some(OWNER), Some(OWNER)).unwrap();
    }
    let before = host.files();
    let confined = |command: &str| {
        let own = host.command(&[command]);
        let mut confined = Command::new("setpriv");
        confined.args(["--bounding-set=-all,+chown,+dac_override", "--inh-caps=-all", "--"]);
        confined.arg(own.get_program()).args(own.get_args()).env_remove("CNI_COMMAND");
        let out = confined.output().unwrap();
        assert!(out.status.success(), "{out:?}");
    };
    confined("install");
    assert_eq!(host.chain(), ["ptp", "portmap", "sidestep-cni"]);
    let found = fs::metadata(host.conf("10-net.conflist")).unwrap();
    assert_eq!((found.uid(), found.gid()), (OWNER, OWNER));
    confined("uninstall");
    assert_eq!(host.files(), before);
    assert!(!host.program().exists());
}

/// With the plugin in it, a runtime could start no pod.
#[test]
fn a_configuration_of_another_version_stays_as_it_is_and_is_named() {
    let unversioned = LIST.replace("  \"cniVersion\": \"1.0.0\",\n", "");
    let (list, single) = (LIST.replace("1.0.0", "0.2.0"), SINGLE.replace("0.4.0", "0.2.0"));
    for (name, text, version) in [
        ("10-net.conflist", &list, "\"0.2.0\""),
        ("10-net.conf", &single, "\"0.2.0\""),
        ("10-net.conflist", &unversioned, "\"\""),
    ] {
        let host = Host::with(&[(name, text.as_str()), ("20-other.conflist", LIST)]);
        let before = host.files();
        let out = host.run(&["install"]);
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(!out.status.success() && said.contains(name) && said.contains(version), "{name}: {said}");
        assert_eq!(host.files(), before, "{name}");
    }
    let flannel = LIST.replace("1.0.0", "0.3.1");
    let host = Host::with(&[("10-flannel.conflist", flannel.as_str())]);
    host.install();
    assert_eq!(host.chain(), ["ptp", "portmap", "sidestep-cni"]);
}

/// A process that is ended with the test.
struct Watcher(Child);

impl Watcher {
    fn start(host: &Host) -> Watcher {
        let mut command = host.command(&["install", "--watch"]);
        Watcher(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Sends SIGTERM, and returns what it has said.
    fn end(mut self) -> String {
        use std::io::Read;
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
        let mut said = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_watcher_waits_for_the_network_and_puts_the_plugin_back() {
    let host = Host::with(&[]);
    let watcher = Watcher::start(&host);
    host.wait("the program", |host| host.program().exists());
    let write = |name: &str, text: &str| {
        fs::write(host.conf(".aside"), text).unwrap();
        fs::rename(host.conf(".aside"), host.conf(name)).unwrap();
    };
    write("10-net.conflist", LIST);
    host.wait("the first list", |host| host.chain().len() == 3);
    write("10-net.conflist", &LIST.replace("portmap", "tuning"));
    host.wait("a list that was written anew", |host| host.chain() == ["ptp", "tuning", "sidestep-cni"]);
    write("05-first.conf", SINGLE);
    host.wait("a configuration before it", |host| host.chain() == ["bridge", "sidestep-cni"]);
    fs::remove_file(host.program()).unwrap();
    host.wait("the program again", |host| host.program().exists());
    let said = watcher.end();
    assert_eq!(said.matches("install the cluster's network first").count(), 1, "once, not every second: {said}");
    assert_eq!(host.chain(), ["bridge", "sidestep-cni"], "the plugin stays installed");
    host.uninstall();
    let left = host.files();
    assert_eq!(left.keys().collect::<Vec<_>>(), ["05-first.conf", "10-net.conflist"]);
    assert_eq!(left["10-net.conflist"], LIST.replace("portmap", "tuning"));
}

/// Otherwise the file that a link leads to would no longer be what the runtime reads.
#[test]
fn a_link_stays_a_link() {
    let host = Host::with(&[]);
    let target = host.0.path().join("list");
    fs::write(&target, LIST).unwrap();
    std::os::unix::fs::symlink(&target, host.conf("10-net.conflist")).unwrap();
    host.install();
    assert!(is_link(&host.conf("10-net.conflist")));
    assert_eq!(types(&fs::read_to_string(&target).unwrap()).len(), 3);
    host.uninstall();
    assert!(is_link(&host.conf("10-net.conflist")));
    assert_eq!(fs::read_to_string(&target).unwrap(), LIST);
}

/// As an absolute link of the host in a container that sees the directory elsewhere.
#[test]
fn a_link_that_leads_nowhere_here_is_not_passed_over() {
    let host = Host::with(&[("20-other.conflist", LIST)]);
    std::os::unix::fs::symlink("/nowhere/net.conflist", host.conf("10-net.conflist")).unwrap();
    let out = host.run(&["install"]);
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{out:?}");
    assert!(said.contains("10-net.conflist: cannot read it: ") && said.contains("/nowhere/net.conflist"), "{said}");
    assert_eq!(host.files()["20-other.conflist"], LIST, "the runtime uses the other one");
    host.uninstall();
}

fn is_link(path: &Path) -> bool {
    path.symlink_metadata().unwrap().is_symlink()
}
