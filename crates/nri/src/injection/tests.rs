use super::*;
use std::fs::{create_dir_all, write};
use std::os::unix::fs::symlink;
use tempfile::TempDir;

/// A node with an installed version and a broker's directory.
struct Node {
    _directory: TempDir,
    injection: Injection,
    version: String,
}

fn node() -> Node {
    let directory = tempfile::tempdir().expect("a directory");
    let (library, member) = (directory.path().join("lib"), directory.path().join("member"));
    let version = library.join("0.1.0-aa");
    create_dir_all(&version).and_then(|()| create_dir_all(&member)).expect("directories");
    write(version.join(LIBRARY), "").and_then(|()| symlink("0.1.0-aa", library.join("current"))).expect("installed");
    let injection = Injection { library, member, socket: "broker".into() };
    Node { _directory: directory, injection, version: version.display().to_string() }
}

fn with_env(env: &[&str]) -> Container {
    Container { env: env.iter().map(|entry| (*entry).into()).collect(), ..Container::default() }
}

fn mount(destination: &str, r#type: &str, source: &str, options: &[&str]) -> Mount {
    let options = options.iter().map(|option| (*option).into()).collect();
    Mount { destination: destination.into(), r#type: r#type.into(), source: source.into(), options }
}

fn added(node: &Node, env: &[&str]) -> Result<Vec<(String, String)>, Reason> {
    let adjustment = node.injection.adjustment(&with_env(env))?;
    Ok(adjustment.env.into_iter().map(|variable| (variable.key, variable.value)).collect())
}

#[test]
fn a_container_gets_two_mounts_and_two_variables() {
    let node = node();
    let adjustment = node.injection.adjustment(&with_env(&["PATH=/bin"])).expect("injected");
    let member = node.injection.member.display().to_string();
    let ours =
        |path: &str, options: &[&str]| mount(path, "bind", path, &[&["rbind", "rprivate", "ro"], options].concat());
    assert_eq!(
        adjustment.mounts,
        [ours(&node.version, &["nosuid", "nodev"]), ours(&member, &["nosuid", "nodev", "noexec"]),]
    );
    let library = format!("{}/libsidestep.so", node.version);
    assert_eq!(
        adjustment.env,
        [variable("LD_PRELOAD", library), variable("SIDESTEP_BROKER", format!("{member}/broker")),]
    );
}

#[test]
fn an_ld_preload_that_is_there_is_extended() {
    let node = node();
    let library = format!("{}/libsidestep.so", node.version);
    for (present, expected) in [
        ("LD_PRELOAD=/lib/a.so", format!("/lib/a.so:{library}")),
        ("LD_PRELOAD=/lib/a.so /lib/b.so", format!("/lib/a.so /lib/b.so:{library}")),
    ] {
        let env = added(&node, &[present]).expect("injected");
        // Taken from whoever has set it, and set.
        assert_eq!(env[0], ("-LD_PRELOAD".into(), String::new()));
        assert_eq!(env[1], ("LD_PRELOAD".into(), expected));
    }
    assert_eq!(added(&node, &["LD_PRELOAD="]).expect("injected")[0], ("LD_PRELOAD".into(), library));
}

#[test]
fn own_settings_stay() {
    let node = node();
    let long = format!("LD_PRELOAD=/{}", "x".repeat(64 << 10));
    for env in [
        "SIDESTEP_BROKER=@mine",
        "SIDESTEP_BROKER=",
        "LD_PRELOAD=/opt/libsidestep.so",
        "LD_PRELOAD=a.so:/x/libsidestep.so",
        &long,
    ] {
        assert_eq!(added(&node, &[env]), Err(Reason::OwnSettings), "{}", &env[..30.min(env.len())]);
    }
    assert!(added(&node, &["LD_PRELOAD_X=/opt/libsidestep.so", "nonsense"]).is_ok());
}

#[test]
fn what_was_injected_is_known_again() {
    let node = node();
    let env = |value: String| node.injection.is_in(&with_env(&[&format!("LD_PRELOAD={value}")]));
    assert!(env(format!("{}/libsidestep.so", node.version)));
    assert!(env(format!("a.so:{}/0.0.9-bb/libsidestep.so", node.injection.library.display())), "another version");
    assert!(!env("/opt/libsidestep.so".into()));
    assert!(!env(format!("{}/other.so", node.version)));
}

#[test]
fn nothing_is_mounted_that_is_not_there() {
    let node = node();
    std::fs::remove_dir(&node.injection.member).expect("removed");
    assert_eq!(added(&node, &[]), Err(Reason::NoBroker));
    std::fs::remove_file(node.injection.library.join("current")).expect("removed");
    assert_eq!(added(&node, &[]), Err(Reason::NoLibrary));
}

#[test]
fn mounts_that_do_not_go_together_are_conflicts() {
    let target = Path::new("/run/sidestep/member");
    let empty_dir = "/var/lib/kubelet/pods/1/volumes/kubernetes.io~empty-dir/run";
    for (mount, expected) in [
        (mount("/run", "bind", empty_dir, &["rbind", "rw"]), false),
        (mount("/var/run/", "bind", empty_dir, &["rbind", "rw"]), false),
        (mount("/run", "tmpfs", "tmpfs", &["nosuid"]), false),
        (mount("/runner", "bind", "/srv", &["ro"]), false),
        (mount("/run/other", "bind", "/srv", &["ro"]), false),
        (mount("/run", "bind", empty_dir, &["rbind", "ro"]), true),
        (mount("/run", "bind", empty_dir, &["rbind", "rprivate", "rro"]), true),
        (mount("/run", "bind", "/run", &["rbind", "rw"]), true),
        (mount("/var/run", "bind", "/srv", &["rbind", "rw"]), true),
        (mount("/srv/../run", "bind", "/srv", &["ro"]), true),
        (mount("/", "bind", "/srv", &["rw"]), true),
        (mount("/run/sidestep/member", "bind", empty_dir, &["rw"]), true),
        (mount("/run/sidestep/member/broker", "bind", "/srv", &["rw"]), true),
        (mount("/var/run/sidestep/member", "tmpfs", "tmpfs", &[]), true),
    ] {
        assert_eq!(conflicts(&mount, target), expected, "{mount:?}");
    }
}
