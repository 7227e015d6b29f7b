//! The tests' generator of istio-iptables rules writes what the real one writes. Each file of tests/kube/istio-rules holds flags,
//! surroundings, and what `pilot-agent istio-iptables` gave to iptables-restore. The comparison is word for word, including an
//! order that does not matter to the kernel.

use sidestep_mesh::address::Family;
use sidestep_mesh::capture::flags::{FlagContext, Flags, LOOPBACK_CIDR, OWNER_GROUPS, OWNER_GROUPS_EXCLUDE};
use sidestep_mesh::capture::rules::WithoutProxy;
use sidestep_testkit::istio_rules;
use std::fs;
use std::path::Path;

const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/kube/istio-rules");

/// A file: flags and surroundings, then the input of each family's program.
struct Written {
    flags: Flags,
    resolv_conf: String,
    rules: Vec<(Family, String)>,
}

fn read(path: &Path) -> Written {
    let text = fs::read_to_string(path).unwrap();
    let mut lines = text.lines();
    let flags = lines.next().and_then(|line| line.strip_prefix('#')).expect("flags");
    let mut written = Written { flags: flags_of(flags), resolv_conf: String::new(), rules: Vec::new() };
    for line in lines {
        match line.strip_prefix("# ") {
            Some("iptables-restore") => written.rules.push((Family::V4, String::new())),
            Some("ip6tables-restore") => written.rules.push((Family::V6, String::new())),
            Some(said) => written.surroundings(said),
            None => written.rules.last_mut().expect("a program").1.extend([line, "\n"]),
        }
    }
    written
}

impl Written {
    fn surroundings(&mut self, said: &str) {
        if let Some(servers) = said.strip_prefix("nameservers: ") {
            self.resolv_conf = servers.split(' ').map(|server| format!("nameserver {server}\n")).collect();
        } else if let Some((name, value)) = said.split_once('=') {
            match name {
                OWNER_GROUPS => self.flags.owner_groups = value.into(),
                OWNER_GROUPS_EXCLUDE => self.flags.owner_groups_exclude = value.into(),
                LOOPBACK_CIDR => self.flags.outbound_ipv4_loopback_cidr = value.into(),
                _ => panic!("{said}"),
            }
        } else {
            // The addresses tell Istio for which families to write rules, which shows in the programs that get any.
            assert!(said.starts_with("addresses: "), "{said}");
        }
    }
}

/// In these files quotes are only around whole values.
fn flags_of(line: &str) -> Flags {
    let mut flags = Flags::default();
    let mut words = line.split_whitespace();
    while let Some(word) = words.next() {
        match word {
            "--redirect-dns" => flags.redirect_dns = true,
            "--capture-all-dns" => flags.capture_all_dns = true,
            // The generator always writes rules for both families.
            "--dual-stack" => {}
            _ => *value_of(&mut flags, word) = words.next().expect(word).trim_matches('\'').into(),
        }
    }
    flags
}

fn value_of<'a>(flags: &'a mut Flags, flag: &str) -> &'a mut String {
    match flag {
        "-p" => &mut flags.envoy_port,
        "-z" => &mut flags.inbound_capture_port,
        "-e" => &mut flags.inbound_tunnel_port,
        "-u" => &mut flags.proxy_uid,
        "-g" => &mut flags.proxy_gid,
        "-m" => &mut flags.istio_inbound_interception_mode,
        "-b" => &mut flags.istio_inbound_ports,
        "-d" => &mut flags.istio_local_exclude_ports,
        "-c" => &mut flags.istio_exclude_interfaces,
        "-i" => &mut flags.istio_service_cidr,
        "-x" => &mut flags.istio_service_exclude_cidr,
        "-q" => &mut flags.istio_outbound_ports,
        "-o" => &mut flags.istio_local_outbound_ports_exclude,
        "-k" => &mut flags.kube_virt_interfaces,
        other => panic!("{other}"),
    }
}

#[test]
fn the_text_is_what_the_real_one_writes() {
    let mut files: Vec<_> = fs::read_dir(DIRECTORY).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(files.len() >= 31, "{}", files.len());
    let mut compared = 0;
    for file in files {
        let written = read(&file);
        let context = FlagContext { resolv_conf: &written.resolv_conf, ..FlagContext::NOWHERE };
        let rules = match written.flags.rules(&context, WithoutProxy::Refuse) {
            Ok(rules) => rules,
            // The one variable that is refused: crates/mesh/src/capture/flags.rs.
            Err(invalid) if invalid.path == LOOPBACK_CIDR && file.ends_with("loopback-range.txt") => continue,
            Err(invalid) => panic!("{}: {invalid}", file.display()),
        };
        for (family, theirs) in &written.rules {
            let ours = istio_rules::tables(&rules, *family);
            for (ours, theirs) in ours.lines().zip(theirs.lines()) {
                assert_eq!(ours, theirs, "{}, {family:?}", file.display());
            }
            assert_eq!(&ours, theirs, "{}, {family:?}", file.display());
            compared += 1;
        }
    }
    assert!(compared >= 39, "{compared}");
}
