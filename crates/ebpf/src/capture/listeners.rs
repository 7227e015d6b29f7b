//! Proxies that listened before their pod was captured.

use crate::error::{Doing, Result};
use crate::{netns, services};
use libbpf_rs::Iter;
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use sidestep_bpf::listening::ListeningSkelBuilder;
use std::io::Read;
use std::mem::MaybeUninit;
use std::path::Path;

/// Puts the listeners of that namespace, at the proxy's ports, where inbound connections find them. Returns how many.
pub fn find(pins: &Path, namespace: &Path) -> Result<u64> {
    let mut object = MaybeUninit::uninit();
    let mut open = ListeningSkelBuilder::default().open(&mut object).doing("read the iterator")?;
    services::use_pinned(open.open_object_mut(), pins)?;
    let skeleton = open.load().doing("load the iterator over TCP sockets")?;
    let link = skeleton.progs.find_listeners.attach().doing("attach the iterator over TCP sockets")?;
    let walked = netns::inside(namespace, || Iter::new(&link).map(|mut sockets| sockets.read_to_end(&mut Vec::new())));
    walked.at("enter", namespace)?.at("iterate in", namespace)?.at("iterate in", namespace)?;
    Ok(skeleton.maps.bss_data.as_deref().map_or(0, |data| data.found))
}
