//! The example of docs/policy.md.

use super::probe::{Family, Seen};
use super::world::World;
use crate::node::backend;
use crate::sockets::echo;
use sidestep_mesh::address::Protocol::{Tcp, Udp};

/// The YAML documents in a section.
fn documents(section: &str) -> String {
    let manual = include_str!("../../../../../docs/policy.md");
    let text = manual.split_once(&format!("## {section}\n")).expect("the section").1.split("\n## ").next().unwrap();
    let blocks = text.split("```yaml\n").skip(1).map(|rest| rest.split("```").next().unwrap());
    blocks.collect::<Vec<_>>().join("\n---\n")
}

#[test]
fn the_manuals_shop() {
    let mut world = World::new();
    let web = world.pod("shop", "web", Some("{app: web}"));
    let db = world.pod("shop", "db", Some("{app: db}"));
    let dns = world.pod("kube-system", "dns", Some("{k8s-app: kube-dns}"));
    let batch = world.pod("batch", "import", Some("{app: import}"));
    let (_postgres, _dns) = (backend(&world.pods[&db], 5432), echo(&world.pods[&dns], 53));
    world.tell(&documents("An example"));
    world.settle();
    let cases = [
        (&web, &db, 5432, Tcp, Seen::Reached),
        (&web, &db, 8080, Tcp, Seen::Refused),
        (&web, &dns, 53, Udp, Seen::Reached),
        (&web, &dns, 8080, Tcp, Seen::Refused),
        (&batch, &db, 5432, Tcp, Seen::Silence),
        (&batch, &web, 8080, Tcp, Seen::Reached),
        (&batch, &web, 8081, Tcp, Seen::Silence),
        (&db, &web, 8080, Tcp, Seen::Refused),
        (&db, &dns, 53, Udp, Seen::Reached),
    ];
    for (client, server, port, protocol, expected) in cases {
        for family in Family::ALL {
            let found = world.call(client, world.place(server, family, port), protocol);
            assert_eq!(found, expected, "{client} to {server} {protocol} {port} {family:?}");
        }
    }
    assert_eq!(world.counted(["policy-would-deny-out"]), [0]);
    world.call(&batch, world.place(&dns, Family::V4, 8080), Tcp);
    assert_eq!(world.counted(["policy-would-deny-out"]), [1], "the dry run of the namespace batch");
}
