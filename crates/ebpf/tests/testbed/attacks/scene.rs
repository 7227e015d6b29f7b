//! A node with three pods: a client, a server, and a pod that neither of them knows.

use crate::policy::world::World;
use sidestep_mesh::object::Name;

pub struct Scene {
    pub world: World,
    pub web: Name,
    pub db: Name,
    pub stranger: Name,
}

impl Scene {
    pub fn new() -> Scene {
        let mut world = World::new();
        let [web, db, stranger] = world.apps(["web", "db", "stranger"]);
        Scene { world, web, db, stranger }
    }

    /// From now on a policy counts for the pods of this app.
    pub fn policy(&mut self, app: &str, spec: &str) {
        self.world.policy(app, &format!("select: {{matchLabels: {{app: {app}}}}}, {spec}"));
        self.world.settle();
    }
}
