//! Captured pods, kept as the files of kind Capture want them, and judged as policies want it: on a thread of its own, since a visit to a network namespace
//! takes a while, and Services must not wait for that.
//!
//! ```text
//!   node        --Order-->  .--------------.
//!   /run/netns  --Order-->  |[`controller`]|  --> namespaces, tables (sidestep_ebpf::{capture, policy, bypass})
//!   rtnetlink   --Order-->  '--------------'  --> Message::Captured, to the node
//! ```

mod changes;
mod controller;
mod enforcement;
mod enforcer;
mod identity;
mod lifecycle;
mod namespaces;
pub mod report;
mod reporter;
mod schedule;
mod upkeep;
mod visit;

pub use report::{CaptureStatus, Figures, Report};

use crate::message::Message;
use crate::settings::Settings;
use sidestep_agent_api::{Check, Reply};
use sidestep_mesh::bypass::BypassFlags;
use sidestep_mesh::capture::pod::Capture;
use sidestep_mesh::object::Name;
use sidestep_mesh::plane::FrontendKey;
use sidestep_mesh::policy::plan::Plan;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Sender, SyncSender, channel};
use std::thread::JoinHandle;

/// What the controller is told.
pub enum Order {
    /// This is what the file says; None: it has gone.
    Want(Name, Option<Arc<Capture>>),
    /// With whom pods may talk, and where their proxies are led around.
    Enforce(PolicyPlan),
    /// Everything that is wanted has been told, as far as it is known.
    Begin,
    /// Nothing is hidden: what an earlier agent has left besides may go.
    Complete,
    /// Programs are attached: before that, nobody has kept new listeners.
    Attached,
    /// A file with this path has come, or gone.
    Named(PathBuf),
    /// Anything may have come or gone.
    Renamed,
    /// In the namespace of this number routes, addresses or interfaces have changed.
    Changed(i32),
    Ended(i32),
    /// Some changes were lost.
    Lost(String),
    /// Adds what it has to say, and answers.
    Check(Check, SyncSender<Reply>),
    Stop,
}

/// What policies, and Services that need no proxy, mean to the pods of this node.
#[derive(Clone)]
pub struct PolicyPlan {
    pub policies: Arc<Plan>,
    pub bypasses: Arc<BTreeMap<FrontendKey, BypassFlags>>,
    /// Pods whose proxies are never led around.
    pub required: Arc<BTreeSet<Name>>,
    /// Nothing has been hidden since the agent began: what is not in the plan is not wanted.
    pub is_whole: bool,
}

/// The thread of the controller; it ends with this.
pub struct CaptureThread {
    orders: Sender<Order>,
    thread: Option<JoinHandle<()>>,
}

impl CaptureThread {
    /// `node`: the cookie of this node's own namespace, which is no pod's.
    pub fn start(settings: &Settings, node: u64, inbox: Sender<Message>) -> CaptureThread {
        let (orders, received) = channel();
        let (settings, own) = (settings.clone(), orders.clone());
        let work = move || controller::run(&settings, node, &received, &own, &inbox);
        let thread = std::thread::Builder::new().name("captures".into()).spawn(work).expect("a thread can be had");
        CaptureThread { orders, thread: Some(thread) }
    }

    pub fn tell(&self, order: Order) {
        self.orders.send(order).expect("it listens until it is told to stop");
    }
}

impl Drop for CaptureThread {
    /// Nothing is written any more when this returns.
    fn drop(&mut self) {
        let _ = self.orders.send(Order::Stop);
        let _ = self.thread.take().map(JoinHandle::join);
    }
}
