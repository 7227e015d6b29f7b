//! Versions of the library: how they come, and when they go.

use sidestep_nri::store::{Collected, InstallError, LIBRARY, collect, collect_all, current, install};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

struct Store {
    directory: TempDir,
}

impl Store {
    fn new() -> Store {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("from")).expect("a directory");
        Store { directory }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("lib")
    }

    fn install(&self, content: &[u8]) -> PathBuf {
        let from = self.directory.path().join("from");
        fs::write(from.join(LIBRARY), content).expect("written");
        install(&from, &self.path()).expect("installed")
    }

    /// What is below the store, without the link and the lock.
    fn versions(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path()).expect("a directory").map(|entry| entry.expect("an entry").file_name());
        let names = entries.map(|name| name.into_string().expect("text"));
        let mut names: Vec<_> = names.filter(|name| !["current", ".lock"].contains(&name.as_str())).collect();
        names.sort();
        names
    }

    fn collect(&self) -> Collected {
        collect(&self.path(), Duration::ZERO, &self.proc()).expect("collected")
    }

    /// The processes that this test may look at: where tests run in a container, some are not among them.
    fn proc(&self) -> PathBuf {
        let directory = self.directory.path().join("proc");
        let _ = fs::remove_dir_all(&directory);
        fs::create_dir(&directory).expect("a directory");
        for entry in fs::read_dir("/proc").expect("/proc") {
            let process = entry.expect("an entry").path();
            if File::open(process.join("maps")).is_ok_and(|mut maps| maps.read(&mut [0]).is_ok()) {
                symlink(&process, directory.join(process.file_name().expect("a name"))).expect("a link");
            }
        }
        directory
    }
}

fn name(path: &Path) -> String {
    path.file_name().expect("a name").to_string_lossy().into_owned()
}

#[test]
fn a_version_appears_as_a_whole_and_is_never_written_again() {
    let store = Store::new();
    let first = store.install(b"one");
    assert_eq!(fs::read(first.join(LIBRARY)).expect("the library"), b"one");
    assert_eq!(current(&store.path()), Some(first.clone()));
    let mode = |path: &Path| path.metadata().expect("a file").permissions().mode() & 0o777;
    assert_eq!((mode(&first), mode(&first.join(LIBRARY))), (0o755, 0o755), "every user can load it");
    let inode = first.join(LIBRARY).metadata().expect("a file").ino();

    assert_eq!(store.install(b"one"), first);
    assert_eq!(first.join(LIBRARY).metadata().expect("a file").ino(), inode, "it is the same file");

    let second = store.install(b"two");
    assert_ne!(first, second);
    assert_eq!(current(&store.path()), Some(second.clone()));
    assert_eq!(fs::read(first.join(LIBRARY)).expect("the library"), b"one");
    assert_eq!(store.install(b"one"), first, "and back");
    assert_eq!(current(&store.path()), Some(first));
    assert_eq!(store.versions().len(), 2, "nothing else is left: {:?}", store.versions());
}

#[test]
fn a_version_that_was_changed_is_refused() {
    let store = Store::new();
    let first = store.install(b"one");
    let second = store.install(b"two");
    fs::write(first.join(LIBRARY), "changed").expect("written");
    fs::write(store.directory.path().join("from").join(LIBRARY), "one").expect("written");
    let refused = install(&store.directory.path().join("from"), &store.path());
    assert!(matches!(refused, Err(InstallError::Changed { .. })), "{refused:?}");
    assert_eq!(current(&store.path()), Some(second), "what was there stays");
}

/// As a collection leaves it that is killed between the removal of the library and that of its directory.
#[test]
fn a_version_without_its_library_is_installed_again() {
    let store = Store::new();
    let version = store.install(b"one");
    fs::remove_file(version.join(LIBRARY)).expect("removed");
    assert_eq!(store.install(b"one"), version);
    assert_eq!(fs::read(version.join(LIBRARY)).expect("the library"), b"one");
    assert_eq!(current(&store.path()), Some(version));
    assert_eq!(store.versions().len(), 1, "nothing else is left: {:?}", store.versions());
}

#[test]
fn an_empty_directory_in_the_link_s_place_gives_way() {
    let store = Store::new();
    fs::create_dir_all(store.path().join("current")).expect("a directory");
    let version = store.install(b"one");
    assert_eq!(current(&store.path()), Some(version));
}

#[test]
fn an_empty_directory_in_the_link_s_place_is_removed_with_all() {
    let store = Store::new();
    let version = store.install(b"one");
    fs::remove_file(store.path().join("current")).expect("removed");
    fs::create_dir(store.path().join("current")).expect("a directory");
    assert_eq!(collect_all(&store.path(), &store.proc()).expect("collected").removed, [name(&version)]);
    assert!(!store.path().exists(), "nothing is left");
}

#[test]
fn a_link_that_leads_elsewhere_names_no_version() {
    let store = Store::new();
    let version = store.install(b"one");
    for target in ["../from", "/etc", "..", ".", "missing", version.to_str().expect("text")] {
        fs::remove_file(store.path().join("current")).expect("removed");
        symlink(target, store.path().join("current")).expect("a link");
        assert_eq!(current(&store.path()), None, "{target}");
    }
}

/// A process that has a library in its memory.
struct User(Child);

impl User {
    fn of(library: &Path) -> User {
        let mut command = Command::new("sleep");
        let child = command.arg("60").env("LD_PRELOAD", library).stderr(Stdio::null()).spawn().expect("sleep");
        let maps = format!("/proc/{}/maps", child.id());
        let deadline = Instant::now() + Duration::from_secs(20);
        while !fs::read_to_string(&maps).is_ok_and(|maps| maps.contains(library.to_str().expect("text"))) {
            assert!(Instant::now() < deadline, "{} is not loaded", library.display());
            std::thread::sleep(Duration::from_millis(5));
        }
        User(child)
    }
}

impl Drop for User {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Some shared library that programs can load, made different by what follows it.
fn loadable(more: &str) -> Vec<u8> {
    let maps = fs::read_to_string("/proc/self/maps").expect("this process");
    let libc =
        maps.split_whitespace().find(|word| word.contains("/libc.so") || word.contains("/libm.so")).expect("a libc");
    let libm = Path::new(libc).with_file_name("libm.so.6");
    [fs::read(libm).expect("libm"), more.as_bytes().to_vec()].concat()
}

#[test]
fn versions_go_when_nobody_has_them() {
    let store = Store::new();
    let old = store.install(&loadable("1"));
    let used = store.install(&loadable("2"));
    let newest = store.install(&loadable("3"));
    let user = User::of(&used.join(LIBRARY));

    let collected = store.collect();
    assert_eq!((collected.removed, collected.used), (vec![name(&old)], vec![name(&used)]));
    assert_eq!(store.versions().len(), 2);
    drop(user);
    let collected = store.collect();
    assert_eq!((collected.removed, collected.used), (vec![name(&used)], vec![]));
    assert_eq!(store.versions(), [name(&newest)]);
    assert_eq!(current(&store.path()), Some(newest));
}

/// A container has its version mounted, whether or not a process of it has mapped the library.
#[test]
fn a_version_that_is_mounted_stays() {
    let store = Store::new();
    let mounted = store.install(b"one");
    store.install(b"two");
    let place = store.directory.path().join("place");
    fs::create_dir(&place).expect("a directory");
    let script = format!("mount --bind {} {} && echo ready && exec sleep 60", mounted.display(), place.display());
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", &script]).stdout(Stdio::piped());
    let mut child = command.spawn().expect("unshare (needs root)");
    let mut first = [0; 6];
    child.stdout.as_mut().expect("its output").read_exact(&mut first).expect("mounted (needs root)");
    let holder = User(child);

    assert_eq!(store.collect().used, [name(&mounted)]);
    drop(holder);
    assert_eq!(store.collect().removed, [name(&mounted)]);
}

#[test]
fn a_version_that_was_current_a_moment_ago_stays() {
    let store = Store::new();
    let old = store.install(b"one");
    store.install(b"two");
    let collected = collect(&store.path(), Duration::from_secs(3600), &store.proc()).expect("collected");
    assert_eq!(collected.recent, [name(&old)]);
    assert_eq!(store.versions().len(), 2);
}

#[test]
fn nothing_else_is_removed() {
    let store = Store::new();
    store.install(b"one");
    for foreign in ["notes", "0.1.0-xyz", ".hidden-0123456789ab", "0.1.0-0123456789AB"] {
        fs::create_dir(store.path().join(foreign)).expect("a directory");
    }
    fs::create_dir(store.path().join(".new-killed")).expect("a directory");
    assert_eq!(store.collect().removed, [".new-killed"]);
    assert_eq!(store.versions().len(), 5);
}

/// As when Sidestep is removed from a node.
#[test]
fn all_versions_go_but_those_that_somebody_has() {
    let store = Store::new();
    let used = store.install(&loadable("1"));
    let newest = store.install(&loadable("2"));
    let user = User::of(&used.join(LIBRARY));
    let collected = collect_all(&store.path(), &store.proc()).expect("collected");
    assert_eq!((collected.removed, collected.used), (vec![name(&newest)], vec![name(&used)]));
    assert_eq!(current(&store.path()), None);
    let place = store.path().join("current").symlink_metadata().expect("a pod that has it as a volume can start again");
    assert!(place.is_dir());
    drop(user);
    assert_eq!(collect_all(&store.path(), &store.proc()).expect("collected").removed, [name(&used)]);
    assert!(!store.path().exists(), "nothing is left");
}

/// Every user can open the directory, and keep it locked.
#[test]
fn a_lock_on_the_directory_keeps_nobody_waiting() {
    let store = Store::new();
    let old = store.install(b"one");
    let lock = fs::metadata(store.path().join(".lock")).expect("what is locked instead");
    assert_eq!(lock.permissions().mode() & 0o777, 0o600, "no other user can open it");
    let directory = File::open(store.path()).expect("a directory");
    directory.lock().expect("locked");
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let new = store.install(b"two");
        let collected = store.collect().removed;
        let all = collect_all(&store.path(), &store.proc()).expect("collected").removed;
        done.send((name(&new), collected, all, store.path().exists())).expect("the test waits");
    });
    let (new, collected, all, is_left) = is_done.recv_timeout(Duration::from_secs(30)).expect("nobody waits");
    assert_eq!((collected, all, is_left), (vec![name(&old)], vec![new], false));
}

/// An installation waits for another one, and for a collection that removes the lock with all.
#[test]
fn installations_and_collections_wait_for_each_other() {
    let store = Store::new();
    store.install(b"one");
    let path = store.path().join(".lock");
    let lock = File::options().write(true).open(&path).expect("the lock");
    lock.lock().expect("nobody has it");
    let (done, is_done) = mpsc::channel();
    std::thread::spawn(move || {
        let new = store.install(b"two");
        done.send((store, new)).expect("the test waits");
    });
    assert!(is_done.recv_timeout(Duration::from_millis(300)).is_err(), "it waits");
    fs::remove_file(&path).expect("removed");
    drop(lock);
    let (store, new) = is_done.recv_timeout(Duration::from_secs(30)).expect("it goes on");
    assert_eq!((current(&store.path()), path.exists()), (Some(new), true));
}

/// As in a container, where the directory cannot be removed. Needs root.
#[test]
fn a_store_that_is_a_mount_point_is_emptied() {
    for root in ["rw", "ro"] {
        let store = Store::new();
        store.install(b"one");
        let script = "mount --bind \"$3\" \"$3\" && mount --bind \"$1\" \"$1\" && mount -o remount,bind,$4 \"$3\" && \
            exec \"$0\" collect --all --library \"$1\" --proc \"$2\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, env!("CARGO_BIN_EXE_sidestep-nri")]);
        command.args([store.path(), store.proc(), store.directory.path().to_owned()]).arg(root);
        let said = command.output().expect("unshare (util-linux)");
        assert!(said.status.success(), "{root}: {said:?}");
        assert_eq!(fs::read_dir(store.path()).expect("the mount point stays").count(), 0);
    }
}

/// Whoever cannot see all processes removes nothing.
#[test]
fn processes_that_cannot_be_seen_may_use_everything() {
    let store = Store::new();
    store.install(b"one");
    store.install(b"two");
    let proc = store.directory.path().join("proc");
    fs::create_dir_all(proc.join("1/maps")).expect("a directory that cannot be read as a file");
    let error = collect(&store.path(), Duration::ZERO, &proc).expect_err("an error");
    assert!(error.to_string().contains("1/maps"), "{error}");
    assert_eq!(store.versions().len(), 2);
    let missing = collect(&store.path(), Duration::ZERO, &store.directory.path().join("nowhere"));
    assert!(missing.is_err(), "no proc at all");
    assert_eq!(store.versions().len(), 2);
}

/// As in the init container, which no process may keep waiting, nor fail.
#[test]
fn a_collection_that_is_not_possible_keeps_everything_and_may_succeed() {
    let store = Store::new();
    store.install(b"one");
    store.install(b"two");
    let proc = store.directory.path().join("proc");
    let maps = proc.join("1/maps");
    fs::create_dir_all(proc.join("1")).expect("a directory");
    // Root without capabilities, from whom a file's mode can keep the file.
    let collect = |more: &[&str]| {
        let mut command = Command::new("timeout");
        command.args(["60", "setpriv", "--bounding-set", "-all", env!("CARGO_BIN_EXE_sidestep-nri"), "collect"]);
        command.args(["--keep", "0", "--library"]).arg(store.path()).arg("--proc").arg(&proc).args(more);
        let said = command.output().expect("timeout (coreutils)");
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        assert!(text.contains("/proc/1/maps: "), "{said:?}");
        assert_eq!(store.versions().len(), 2);
        said.status.code()
    };
    fs::write(&maps, "").expect("written");
    fs::set_permissions(&maps, fs::Permissions::from_mode(0o000)).expect("changed");
    assert_eq!((collect(&[]), collect(&["--if-possible"])), (Some(1), Some(0)));

    fs::remove_file(&maps).expect("removed");
    assert!(Command::new("mkfifo").arg(&maps).status().expect("mkfifo (coreutils)").success());
    assert_eq!(collect(&["--if-possible"]), Some(0), "nothing is ever written into it");
}
