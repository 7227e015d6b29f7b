//! What the agent does for the plugin that gives containers the library.

use crate::agent::Node;
use crate::api_server::{EVENTS, NAMESPACES, PODS, PORT, Server, World};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write;
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

/// What the plugin writes.
fn line(pod: &str, container: &str, changes: &Value) -> String {
    let now = k8s_openapi::jiff::Timestamp::now().to_string();
    let mut line = json!({"time": now, "level": "info", "event": "no-effect", "namespace": "shop", "pod": pod,
                          "pod_uid": format!("uid-{pod}"), "container": container, "reason": "static", "message": "It is static"});
    line.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    format!("{line}\n")
}

#[test]
fn what_the_plugin_says_of_containers_is_events_of_their_pods() {
    let mut scene = Scene::new();
    let file = scene.file("events");
    std::fs::create_dir(file.parent().unwrap()).unwrap();
    let add = |text: String| {
        let mut opened = File::options().create(true).append(true).open(&file).unwrap();
        opened.write_all(text.as_bytes()).unwrap();
    };
    add(line("old", "app", &json!({"time": "2020-01-02T03:04:05Z"})) + &line("before", "app", &json!({})));
    scene.spawn(&["--rings-events", file.to_str().unwrap()]);
    let of = |world: &World, pod: &str| -> Vec<Value> {
        world.all(EVENTS).into_iter().filter(|event| event["regarding"]["name"] == pod).collect()
    };
    let world = Arc::clone(&scene.world);
    scene.node.wait(|_| of(&world, "before").len() == 1);
    // Strange lines, then one that is full of containers, and then the file is exchanged.
    add("{}\nno JSON\n".to_string()
        + &line("../x", "app", &json!({}))
        + &line("quiet", "app", &json!({"reason": "opted-out"})));
    add((0..30).map(|n| line("many", &format!("c{n}"), &json!({}))).collect());
    std::fs::rename(&file, file.with_extension("1")).unwrap();
    add(line("web", "app", &json!({"event": "left-out", "reason": "no-broker"})));
    scene.node.wait(|_| of(&world, "web").len() == 1);
    let event = of(&world, "web").remove(0);
    let expected = json!({"apiVersion": "v1", "kind": "Pod", "namespace": "shop", "name": "web", "uid": "uid-web",
                          "fieldPath": "spec.containers{app}"});
    assert_eq!((&event["regarding"], &event["reason"]), (&expected, &json!("RingsLeftOut")), "{event}");
    assert_eq!(
        (&event["type"], &event["note"]),
        (&json!("Warning"), &json!("Container app: It is static (no-broker)"))
    );
    assert_eq!(of(&world, "many").len(), 10);
    assert_eq!(world.all(EVENTS).len(), 12, "{:?}", world.all(EVENTS));
}
