use super::*;
use crate::message::Message;
use k8s_openapi::api::core::v1::Service;
use sidestep_mesh::field::Invalid;
use sidestep_mesh::kubernetes;
use sidestep_mesh::object::{Bypass, Name};
use sidestep_mesh::policy::network;
use std::sync::mpsc::{Receiver, channel};

fn updates(told: &Receiver<Message>) -> Vec<Update> {
    let update = |message: Message| if let Message::Update(_, update) = message { Some(update) } else { None };
    told.try_iter().filter_map(update).collect()
}

fn invalid() -> Invalid {
    Invalid { path: "spec".into(), found: "nothing".into(), expected: "a port" }
}

/// What is known of a cluster, and told of it.
struct World {
    known: Known,
    sink: EventSink,
    told: Receiver<Message>,
}

impl World {
    /// A cluster whose NetworkPolicies are to be enforced. Everything else has been listed.
    fn new() -> World {
        let mut world = World::reading(PodScope::All, true);
        for kind in [News::Service, News::Slice, News::Pod, News::Namespace] {
            world.after([Step::Begin, Step::End].map(kind));
        }
        world
    }

    /// Nothing has been listed.
    fn reading(pods: PodScope, asks_network_policies: bool) -> World {
        let cluster = Cluster {
            kubeconfig: None,
            node_name: "node".into(),
            asks_zone: false,
            asks_services: true,
            pods: Some(pods),
            rings_namespaces: None,
            asks_network_policies,
            refresh: Arc::default(),
            heard: crate::heard::Heard::new(),
        };
        let (inbox, told) = channel();
        World { known: Known::new(&cluster), sink: EventSink::new(inbox, 0), told }
    }

    /// What is told of this news.
    fn after(&mut self, all: impl IntoIterator<Item = News>) -> Vec<Update> {
        all.into_iter().for_each(|news| self.known.handle(news, &self.sink).unwrap());
        updates(&self.told)
    }

    fn after_policies(&mut self, steps: impl IntoIterator<Item = Step>) -> Vec<Update> {
        self.after(steps.into_iter().map(News::NetworkPolicy))
    }
}

/// As "none" they would take away what an earlier agent has put into force.
#[test]
fn network_policies_that_are_refused_are_not_known() {
    let mut world = World::new();
    let told = world.after_policies([Step::Begin, Step::Refused("no right".into())]);
    let what = format!("no right; {UNREADY}");
    assert!(
        matches!(&told[..], [Update::Trouble(one)] if (&*one.place, &one.what) == ("NetworkPolicies", &what)),
        "{told:?}"
    );
    let told = world.after_policies([Step::Begin, Step::End]);
    assert_eq!(told, [Update::Well("NetworkPolicies".into()), Update::Listed]);
}

#[test]
fn pods_and_namespaces_that_are_refused_count_as_none() {
    let mut world = World::new();
    for (_, kind) in &mut world.known.optional {
        kind.heard = Heard::Nothing;
    }
    world.after_policies([Step::Begin, Step::End]);
    let refused = [News::Pod, News::Namespace].map(|kind| kind(Step::Refused("no right".into())));
    assert!(world.after(refused).contains(&Update::Listed));
}

#[test]
fn namespaces_with_a_policy_that_cannot_be_read_are_told_first_and_until_it_can_or_is_gone() {
    let mut world = World::new();
    let key = |namespace| Key::NetworkPolicy(Name::new(namespace, "db"));
    let wrong = |namespace| Item { key: key(namespace), object: Err(invalid()), assigned: None };
    let right = || {
        let text = serde_json::json!({"metadata": {"name": "db", "namespace": "shop"}, "spec": {"podSelector": {}}});
        let object = network::object(&serde_json::from_value(text).unwrap()).unwrap();
        Item { key: key("shop"), object: Ok(Some(object)), assigned: None }
    };
    let unread = |names: &[&str]| Update::UnreadPolicies(names.iter().map(|name| Arc::from(*name)).collect());
    let said = |told: Vec<Update>| -> Vec<Update> {
        told.into_iter().filter(|one| matches!(one, Update::UnreadPolicies(_) | Update::Listed)).collect()
    };
    let list = [Step::Begin, Step::Listed(wrong("shop")), Step::Listed(wrong("bank")), Step::End];
    assert_eq!(said(world.after_policies(list)), [unread(&["bank", "shop"]), Update::Listed]);
    assert_eq!(said(world.after_policies([Step::Gone(key("bank"))])), [unread(&["shop"])]);
    let told = world.after_policies([Step::Put(right())]);
    assert!(matches!(&told[..], [Update::Changes(_), Update::Well(_), last] if *last == unread(&[])), "{told:?}");
    // Its last valid content is in force.
    assert_eq!(said(world.after_policies([Step::Put(wrong("shop"))])), []);
}

/// Deleted while the watch was interrupted: only the next list shows that.
#[test]
fn the_trouble_with_an_invalid_object_ends_with_the_object() {
    let (inbox, told) = channel();
    let (sink, mut services) = (EventSink::new(inbox, 0), Kind::of("Services"));
    let key = Key::Service(Name::new("default", "web"));
    let item = Item { key: key.clone(), object: Err(invalid()), assigned: None };
    for step in [Step::Begin, Step::Listed(item), Step::End, Step::Begin, Step::End] {
        services.handle(step, &sink).unwrap();
    }
    let updates = updates(&told);
    assert!(matches!(&updates[0], Update::Trouble(trouble) if trouble.place == key.to_string()), "{updates:?}");
    assert_eq!(updates[1..], [Update::Well(key.to_string())]);
}

/// The API server gives the address to another Service at once.
#[test]
fn an_invalid_service_keeps_its_content_only_with_its_addresses() {
    let (inbox, told) = channel();
    let (sink, mut services) = (EventSink::new(inbox, 0), Kind::of("Services"));
    let key = Key::Service(Name::new("default", "web"));
    let service = |ip: &str, affinity: &str| -> Service {
        let spec = serde_json::json!({"clusterIPs": [ip], "sessionAffinity": affinity, "ports": [{"port": 80}]});
        let text = serde_json::json!({"metadata": {"name": "web", "namespace": "default", "uid": "u"}, "spec": spec});
        serde_json::from_value(text).unwrap()
    };
    let mut put = |ip: &str, affinity: &str| {
        let service = service(ip, affinity);
        let assigned = Some(Box::new(Assigned::of(&service)));
        let item = Item { key: key.clone(), object: kubernetes::service(&service).map(Some), assigned };
        services.handle(Step::Put(item), &sink).unwrap();
        updates(&told)
    };
    assert!(matches!(&put("10.96.0.1", "None")[..], [Update::Changes(_), Update::Well(_)]));
    let kept = put("10.96.0.1", "Sticky");
    assert!(matches!(&kept[..], [Update::Trouble(_)]), "{kept:?}");
    let given_back = put("10.96.0.2", "Sticky");
    assert_eq!(given_back[0], Update::Changes(vec![Change::Delete(key.clone())]));
    assert!(matches!(&given_back[1..], [Update::Trouble(_)]), "{given_back:?}");
}

/// It is in force, with its new address.
#[test]
fn a_pod_with_a_misspelt_annotation_is_no_trouble() {
    let mut world = World::new();
    let text = serde_json::json!({"metadata": {"name": "web", "namespace": "shop",
                                               "annotations": {"sidestep.dev/require-proxy": "ture"}}});
    let pod = sidestep_mesh::pod::pod(&serde_json::from_value(text).unwrap()).unwrap();
    let key = Key::Pod(pod.name.clone());
    let put = Step::Put(Item { key: key.clone(), object: Ok(Some(Object::Pod(pod.clone()))), assigned: None });
    let told = world.after([News::Pod(put)]);
    assert_eq!(told, [Update::Changes(vec![Change::Put(Object::Pod(pod))]), Update::Well(key.to_string())]);
}

fn service_with_bypass(asked: &str) -> Item {
    let annotations = serde_json::json!({"sidestep.dev/bypass-proxy": asked});
    let text = serde_json::json!({"metadata": {"name": "web", "namespace": "default", "annotations": annotations},
                                  "spec": {"clusterIPs": ["10.96.0.1"], "ports": [{"port": 80}]}});
    let service: Service = serde_json::from_value(text).unwrap();
    let key = Key::Service(Name::new("default", "web"));
    Item { key, object: kubernetes::service(&service).map(Some), assigned: None }
}

/// What Services were reported to ask for.
fn bypasses(told: &[Update]) -> Vec<Bypass> {
    let changes = told.iter().filter_map(|one| if let Update::Changes(changes) = one { Some(changes) } else { None });
    let asked = changes.flatten().filter_map(|change| match change {
        Change::Put(Object::Service(service)) => Some(service.bypass),
        _ => None,
    });
    asked.collect()
}

/// One of another node may require its proxy.
#[test]
fn a_service_that_asks_for_the_bypass_waits_until_all_pods_are_known() {
    let mut world = World::reading(PodScope::OfNode, false);
    world.after([Step::Begin, Step::End].map(News::Pod));
    let told = world.after([Step::Begin, Step::Listed(service_with_bypass("true"))].map(News::Service));
    assert_eq!(bypasses(&told), [Bypass::Nobody]);
    assert!(world.known.needs_more_pods() && !world.known.needs_more_pods());
    assert_eq!(world.known.pods(), Some(PodScope::All));
    // Everything is read again.
    let services = [Step::Begin, Step::Listed(service_with_bypass("true")), Step::End].map(News::Service);
    let mut told = world.after(services);
    for kind in [News::Slice, News::Namespace] {
        told.extend(world.after([Step::Begin, Step::End].map(kind)));
    }
    assert_eq!(bypasses(&told), [Bypass::Nobody]);
    assert!(!told.contains(&Update::Listed), "pods of other nodes are missing: {told:?}");
    let told = world.after([Step::Begin, Step::End].map(News::Pod));
    assert_eq!((bypasses(&told), told.last()), (vec![Bypass::Both], Some(&Update::Listed)));
    // The next one need not wait.
    let told = world.after([News::Service(Step::Put(service_with_bypass("outbound")))]);
    assert_eq!(bypasses(&told), [Bypass::Clients]);
    assert!(!world.known.needs_more_pods());
}

#[test]
fn a_service_that_asks_no_more_gets_nothing_later() {
    let mut world = World::reading(PodScope::OfNode, false);
    let put = |asked| News::Service(Step::Put(service_with_bypass(asked)));
    world.after([put("true")]);
    assert!(world.known.needs_more_pods());
    world.after([put("false")]);
    let told = world.after([Step::Begin, Step::End].map(News::Pod));
    assert_eq!(bypasses(&told), []);
}
