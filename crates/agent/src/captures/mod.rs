//! Keeps captured pods as documents of kind Capture and policies want them. This happens on a thread of its own: a visit to a
//! network namespace takes a while, and Services must not wait for that.
//!
//! ```text
//!   node        --Order-->  .--------------.
//!   /run/netns  --Order-->  |[`controller`]|  --> namespaces, tables (sidestep_ebpf::{capture, policy, bypass})
//!   rtnetlink   --Order-->  '--------------'  --> Message::Captured, to the node
//! ```

mod changes;
mod controller;
mod enforced;
mod enforcement;
mod enforcer;
mod identity;
mod lifecycle;
mod namespaces;
pub mod report;
mod reporter;
mod schedule;
mod trouble;
mod upkeep;
mod visit;

pub use report::{CaptureStatus, Figures, Report};

use crate::health::Pulse;
use crate::message::Message;
use crate::settings::Settings;
use sidestep_agent_api::{Check, Reply};
use sidestep_mesh::bypass::BypassFlags;
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::object::Name;
use sidestep_mesh::plane::FrontendKey;
use sidestep_mesh::policy::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, channel};
use std::thread::JoinHandle;

/// What the controller receives.
pub enum Order {
    /// The document's content; None: it was removed.
    Want(Name, Option<Arc<Capture>>),
    /// The policies and bypasses of pods.
    Enforce(PolicyPlan),
    /// All sources have been read, as far as possible.
    Begin,
    /// Everything could be read: what an earlier agent has left besides may be removed.
    Complete,
    /// Programs are attached. New listeners before that went unseen.
    Attached,
    /// A file with this path was created or removed.
    Named(PathBuf),
    /// Any file may have been created or removed.
    Renamed,
    /// Routes, addresses or interfaces have changed in the namespace with this number.
    Changed(i32),
    Ended(i32),
    /// Events were lost: there were too many.
    Lost,
    /// No further events come.
    Blinded(Blind),
    /// Show that the thread lives.
    Pulse(Pulse),
    /// Add the controller's findings, and answer.
    Check(Check, SyncSender<Reply>),
    Stop,
}

/// Changes of captured pods' networks are not heard: the controller looks at all of them at intervals instead.
#[derive(Clone, Debug, thiserror::Error)]
#[error("routes and addresses of captured pods are not followed as they change")]
pub struct Blind(#[source] Arc<io::Error>);

impl Blind {
    pub fn new(error: io::Error) -> Blind {
        Blind(Arc::new(error))
    }
}

/// What policies, and Services that need no proxy, mean for the pods of this node.
#[derive(Clone)]
pub struct PolicyPlan {
    pub policies: Arc<Plan>,
    pub bypasses: Arc<BTreeMap<FrontendKey, BypassFlags>>,
    /// Pods that require their proxy.
    pub required: Arc<BTreeSet<Name>>,
    /// Nothing has been unreadable since the agent began: what is not in the plan is not wanted.
    pub is_whole: bool,
    /// Namespaces with a NetworkPolicy that cannot be read.
    pub unread: Arc<BTreeSet<Arc<str>>>,
}

impl PolicyPlan {
    /// Whether the pod keeps what an earlier agent enforced: a policy that selects the pod may be missing here. A policy that cannot
    /// be read holds back its own namespace only, since any tenant may write one.
    fn keeps_inherited(&self, pod: &Name) -> bool {
        !self.is_whole || self.unread.contains(&pod.namespace)
    }
}

/// The controller's thread, which ends when this is dropped.
pub struct CaptureThread {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl CaptureThread {
    /// `node`: the cookie of this node's own namespace, which belongs to no pod.
    pub fn start(settings: &Settings, node: u64, inbox: Sender<Message>) -> CaptureThread {
        let (orders, received) = channel();
        let (settings, own) = (settings.clone(), orders.clone());
        let work = move || controller::run(&settings, node, &received, &own, &inbox);
        let thread = std::thread::Builder::new().name("captures".into()).spawn(work).expect("cannot start a thread");
        CaptureThread { orders, thread: Some(thread) }
    }

    pub fn tell(&self, order: Order) {
        self.orders.send(order).expect("the controller runs until it receives Stop");
    }
}

impl Drop for CaptureThread {
    /// When this returns, nothing is written any more.
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_that_cannot_be_read_holds_back_its_own_namespace_only() {
        let plan = |is_whole, unread: &[&str]| PolicyPlan {
            policies: Arc::default(),
            bypasses: Arc::default(),
            required: Arc::default(),
            is_whole,
            unread: Arc::new(unread.iter().map(|name| Arc::from(*name)).collect()),
        };
        let (shop, bank) = (Name::new("shop", "db"), Name::new("bank", "db"));
        let kept = |plan: &PolicyPlan| [&shop, &bank].map(|pod| plan.keeps_inherited(pod));
        assert_eq!(kept(&plan(false, &[])), [true, true]);
        assert_eq!(kept(&plan(true, &["shop"])), [true, false]);
        assert_eq!(kept(&plan(true, &[])), [false, false]);
    }
}
