//! `examples/policy`, with other names and addresses of its pods.

use super::world::{call, is_refused};
use crate::agent::{Node, server};
use std::fs;
use std::path::Path;

#[test]
fn the_example_does_what_it_says() {
    let mut node = Node::new();
    let [web, db, import] = [(); 3].map(|()| node.routed());
    let _servers = [server(&web), server(&db)];
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/policy");
    for file in fs::read_dir(example).unwrap().map(Result::unwrap) {
        let mut text = fs::read_to_string(file.path()).unwrap();
        let pods =
            [("shop-web", "10.244.1.2", &web), ("shop-db", "10.244.1.3", &db), ("batch-import", "10.244.1.4", &import)];
        for (name, address, pod) in pods {
            text = text.replace(&format!("netns: {name},"), &format!("netns: {},", pod.namespace.name()));
            text = text.replace(&format!("[{address}]"), &format!("[{}]", pod.v4));
        }
        node.file(file.file_name().to_str().unwrap(), &text);
    }
    node.start();
    node.wait(|node| node.policies().pods.iter().filter(|pod| pod.enforced).count() == 3);
    assert!(node.check().is_well(), "{:?}", node.check());
    assert!(call(&web, &db).is_ok() && call(&import, &web).is_ok() && call(&db, &web).is_ok());
    assert!(is_refused(&import, &db) && is_refused(&web, &import));
    assert_eq!([node.counted("policy-denied-out"), node.counted("policy-denied-in")], [1, 1]);
    assert_eq!(node.counted("policy-would-deny-out"), 2, "both calls of the namespace batch");
}
