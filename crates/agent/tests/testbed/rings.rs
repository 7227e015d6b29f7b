//! What the agent does for the plugin that gives containers the library.

use crate::agent::Node;
use crate::api_server::{NAMESPACES, PODS, PORT, Server, World};
use serde_json::{Value, json};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::Arc;

/// A node with an API server, and the directory that agent and plugin share.
struct Scene {
    world: Arc<World>,
    server: Option<Server>,
    node: Node,
}

impl Scene {
    fn new() -> Scene {
        let (node, world) = (Node::new(), World::new());
        let server = Some(Server::start(&world, &node.testbed.node));
        Scene { world, server, node }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.node.directory.path().join("rings").join(name)
    }

    fn spawn(&mut self, options: &[&str]) {
        let (kubeconfig, names) = (self.node.kubeconfig(PORT), self.file("namespaces"));
        let own = ["--kubeconfig", kubeconfig.to_str().unwrap(), "--rings-namespaces", names.to_str().unwrap()];
        self.node.spawn(&[&own[..], options].concat());
    }

    fn names(&self) -> Option<String> {
        std::fs::read_to_string(self.file("namespaces")).ok()
    }

    fn wait_for_names(&mut self, expected: &str) {
        let file = self.file("namespaces");
        self.node.wait(|_| std::fs::read_to_string(&file).is_ok_and(|text| text == expected));
    }
}

fn namespace(name: &str, rings: Option<&str>) -> Value {
    let labels = rings.map_or(json!({}), |value| json!({"sidestep.dev/rings": value}));
    json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
}

#[test]
fn a_label_of_a_namespace_enrols_it() {
    let mut scene = Scene::new();
    scene.world.put(NAMESPACES, namespace("shop", Some("enabled")));
    scene.world.put(NAMESPACES, namespace("web", Some("true")));
    scene.world.put(NAMESPACES, namespace("db", None));
    scene.spawn(&[]);
    scene.wait_for_names("shop\n");
    let listed: Vec<_> = scene.world.selectors().into_iter().map(|(kind, _)| kind).collect();
    assert!(listed.contains(&NAMESPACES) && !listed.contains(&PODS), "{listed:?}");
    scene.world.put(NAMESPACES, namespace("db", Some("enabled")));
    scene.wait_for_names("db\nshop\n");
    scene.world.put(NAMESPACES, namespace("shop", Some("disabled")));
    scene.wait_for_names("db\n");
    scene.world.delete(NAMESPACES, "db");
    scene.wait_for_names("");
    scene.node.wait(|node| node.check().is_well());
}

/// Neither an API server that is away nor one that refuses makes a namespace forgotten, nor does an agent's end.
#[test]
fn enrolled_namespaces_stay_enrolled_without_an_api_server() {
    let mut scene = Scene::new();
    scene.world.put(NAMESPACES, namespace("shop", Some("enabled")));
    scene.spawn(&[]);
    scene.wait_for_names("shop\n");
    let inode = |scene: &Scene| scene.file("namespaces").metadata().unwrap().ino();
    let first = inode(&scene);
    scene.server = None;
    scene.node.wait(|node| node.status().is_ok_and(|status| status.source.troubles.len() >= 3));
    assert_eq!(scene.names().unwrap(), "shop\n");
    // A new agent hears nothing but refusals.
    scene.node.kill();
    scene.world.refuse(NAMESPACES, true);
    scene.server = Some(Server::start(&scene.world, &scene.node.testbed.node));
    scene.spawn(&[]);
    scene.node.wait_until_attached();
    let is_refused = |node: &Node| {
        let troubles = node.status().unwrap().source.troubles;
        troubles.iter().any(|trouble| trouble.what.contains("may not list namespaces"))
    };
    scene.node.wait(is_refused);
    assert_eq!((scene.names().unwrap().as_str(), inode(&scene)), ("shop\n", first));
    // What has changed meanwhile is in the next list.
    scene.world.put(NAMESPACES, namespace("web", Some("enabled")));
    scene.world.delete(NAMESPACES, "shop");
    scene.world.refuse(NAMESPACES, false);
    scene.wait_for_names("web\n");
}
