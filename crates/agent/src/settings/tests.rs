use super::*;
use clap::{CommandFactory, Parser};
use sidestep_error::chain;

/// The settings for these options, or the error's text.
fn of(words: &[&str]) -> Result<Settings, String> {
    let words = ["agent", "--cgroup", "/c", "--node-name", "n"].iter().chain(words);
    let args = Args::try_parse_from(words).map_err(|error| error.to_string())?;
    Settings::new(&args).map_err(|error| chain(&error).to_string())
}

#[test]
fn the_definitions_are_consistent() {
    Args::command().debug_assert();
}

#[test]
fn without_a_source_all_of_them_are_named() {
    let error = Args::try_parse_from(["agent", "--zone", "a"]).map(|_| ()).unwrap_err().to_string();
    let named = "<--config <DIR|FILE>|--kubeconfig <FILE>|--in-cluster|--detach>";
    assert!(error.contains("required arguments were not provided") && error.contains(named), "{error}");
}

#[test]
fn options_decide_over_the_file() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "directory = '/d'\nzone = 'a'\nmetrics = 'off'\n").unwrap();
    let path = file.path().to_str().unwrap();
    let settings = of(&["--config", path, "--zone", "b"]).unwrap();
    assert!(matches!(&settings.source, SourceSettings::Directory(path) if path == Path::new("/d")));
    assert_eq!((settings.zone.as_deref(), settings.metrics), (Some("b"), None));
    let settings = of(&["--config", path, "--metrics", "fd00::5:9464"]).unwrap();
    assert_eq!(settings.metrics, Some("[fd00::5]:9464".parse().unwrap()), "as the chart names a node of IPv6");
    let settings = of(&["--config", path, "--kubeconfig", "/k"]).unwrap();
    assert!(matches!(settings.source, SourceSettings::Kubeconfig(_)));
}

#[test]
fn without_services_nothing_is_served() {
    assert!(of(&["--in-cluster"]).unwrap().services && !of(&["--in-cluster", "--no-services"]).unwrap().services);
    assert!(of(&["--config", "/", "--no-services"]).unwrap_err().contains("no-services: needs an API server"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "in-cluster = true\nno-services = true\n").unwrap();
    let path = file.path().to_str().unwrap();
    assert!(!of(&["--config", path]).unwrap().services);
    for more in ["--replace-kube-proxy", "--health-check-node-ports", "--node-port-addresses=10.0.0.0/8"] {
        assert!(of(&["--config", path, more]).unwrap_err().contains("there is nothing to serve"), "{more}");
        assert!(of(&["--in-cluster", "--no-services", more]).is_err(), "{more}");
    }
}

#[test]
fn what_is_detached_is_what_the_agent_with_these_settings_has() {
    let of = |words: &[&str]| {
        let args = Args::try_parse_from(["agent", "--detach"].iter().chain(words)).unwrap();
        let (pins, socket) = places(&args).map_err(|error| chain(&error).to_string())?;
        Ok::<_, String>((pins.display().to_string(), socket.display().to_string()))
    };
    let both = |pins: &str, socket: &str| Ok((pins.to_string(), socket.to_string()));
    let usual = both("/sys/fs/bpf/sidestep", "/run/sidestep/agent.sock");
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    std::fs::write(&file, "directory = '/d'\npins = '/p'\nsocket = '/s'\n").unwrap();
    assert_eq!(of(&["--config", path]), both("/p", "/s"));
    assert_eq!(of(&["--config", path, "--pins", "/o"]), both("/o", "/s"));
    std::fs::write(&file, "directory = '/d'\n").unwrap();
    assert_eq!(of(&["--config", path]), usual);
    assert_eq!(of(&["--config", "/"]), usual, "a directory of Services has no settings");
    assert_eq!(of(&[]), usual);
    assert!(of(&["--config", "/nowhere/agent.toml"]).unwrap_err().contains("/nowhere/agent.toml: cannot read it"));
}

#[test]
fn captures_come_from_a_directory_of_their_own_only_beside_an_api_server() {
    let settings = of(&["--kubeconfig", "/k", "--captures", "/c"]).unwrap();
    assert_eq!(settings.captures.as_deref(), Some(Path::new("/c")));
    let directory = tempfile::tempdir().unwrap();
    let error = of(&["--config", directory.path().to_str().unwrap(), "--captures", "/c"]).unwrap_err();
    assert!(error.contains("captures /c: Captures come from the directory"), "{error}");
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "in-cluster = true\ncaptures = '/c'\n").unwrap();
    assert_eq!(of(&["--config", file.path().to_str().unwrap()]).unwrap().captures.as_deref(), Some(Path::new("/c")));
}

#[test]
fn pods_are_admitted_only_with_an_api_server_and_in_a_directory_of_their_own() {
    let settings = of(&["--kubeconfig", "/k", "--captures", "/c", "--admissions", "/a"]).unwrap();
    assert_eq!(settings.admissions.as_deref(), Some(Path::new("/a")));
    assert_eq!(of(&["--in-cluster"]).unwrap().admissions, None);
    let directory = tempfile::tempdir().unwrap();
    let error = of(&["--config", directory.path().to_str().unwrap(), "--admissions", "/a"]).unwrap_err();
    assert!(error.contains("admissions /a: pods are read from an API server"), "{error}");
    let error = of(&["--in-cluster", "--captures", "/a", "--admissions", "/a"]).unwrap_err();
    assert!(error.contains("/a cannot be both"), "{error}");
}

#[test]
fn the_nodes_directory_of_network_namespaces_is_that_of_ip_netns_unless_it_is_named() {
    let own = ["--in-cluster", "--admissions", "/a"];
    let settings = of(&own).unwrap();
    assert_eq!(settings.host_netns, Path::new("/run/netns"));
    let other = of(&[&own[..], &["--host-netns", "/data/netns"]].concat()).unwrap();
    assert_eq!(other.host_netns, Path::new("/data/netns"));
    assert_eq!(settings.fixed_differences(&other), ["host-netns"]);
}

#[test]
fn what_needs_an_api_server_is_refused_without_one() {
    let settings = of(&["--in-cluster", "--rings-namespaces", "/r/namespaces"]).unwrap();
    assert_eq!(settings.rings_namespaces.as_deref(), Some(Path::new("/r/namespaces")));
    let directory = tempfile::tempdir().unwrap();
    let own = ["--config", directory.path().to_str().unwrap()];
    for name in ["rings-namespaces", "rings-events"] {
        let error = of(&[&own[..], &[&format!("--{name}"), "/r/file"]].concat()).unwrap_err();
        assert!(error.contains(&format!("{name}: needs an API server")), "{error}");
    }
}

#[test]
fn only_who_admits_pods_can_repair() {
    let settings = of(&["--in-cluster", "--admissions", "/a", "--repair", "delete", "--repair-after", "5"]).unwrap();
    assert_eq!(settings.repair, Some(RepairSettings { remedy: Remedy::Delete, after: Duration::from_secs(5) }));
    let error = of(&["--in-cluster", "--repair", "label"]).unwrap_err();
    assert!(error.contains("name a directory by --admissions"), "{error}");
    assert!(of(&["--in-cluster", "--admissions", "/a", "--repair", "mend"]).is_err());
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(&file, "in-cluster = true\nadmissions = '/a'\nrepair = 'label'\nremove-taint = true\n").unwrap();
    let settings = of(&["--config", file.path().to_str().unwrap()]).unwrap();
    assert_eq!(settings.repair, Some(RepairSettings { remedy: Remedy::Label, after: Duration::from_secs(60) }));
    assert!(settings.remove_taint);
    let directory = tempfile::tempdir().unwrap();
    let error = of(&["--config", directory.path().to_str().unwrap(), "--remove-taint"]).unwrap_err();
    assert!(error.contains("remove-taint: needs an API server"), "{error}");
}

#[test]
fn a_part_of_the_hierarchy_is_not_taken_for_all_of_it() {
    let mount = tempfile::tempdir().unwrap();
    assert_eq!(warning(mount.path()), None);
    std::fs::write(mount.path().join("cgroup.type"), "domain\n").unwrap();
    let warned = warning(mount.path()).unwrap();
    assert!(warned.contains("not the root of cgroup v2") && warned.contains("--cgroup"), "{warned}");
}

#[test]
fn errors_name_what_is_wrong() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = file.path().to_str().unwrap();
    for (text, expected) in [
        ("directory = '/d'\nzoned = 'a'\n", "unknown field `zoned`"),
        ("zone = 'a'\n", "exactly one of directory, kubeconfig and in-cluster"),
        ("directory = '/d'\nin-cluster = true\n", "exactly one of"),
        ("directory = '/d'\nmetrics = 'here'\n", "metrics: expected ADDRESS:PORT or off, found \"here\""),
    ] {
        std::fs::write(&file, text).unwrap();
        let error = of(&["--config", path]).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
    let directory = tempfile::tempdir().unwrap();
    for other in [&["--kubeconfig", "/k"][..], &["--in-cluster"]] {
        let words = [&["--config", directory.path().to_str().unwrap()], other].concat();
        let error = of(&words).unwrap_err();
        assert!(error.contains("from this directory or from an API server, not from both"), "{error}");
    }
    assert!(of(&["--config", "/nowhere/agent.toml"]).unwrap_err().contains("/nowhere/agent.toml: cannot read it"));
}
