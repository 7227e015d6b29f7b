//! Connected UDP sockets whose backend has gone, in all network namespaces: they get another backend, or are aborted.

use crate::error::{Doing, Result};
use crate::stale::{self, Moved};
use crate::{service_pins, walk};
use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, OpenObject};
use sidestep_bpf::reclaim::{ReclaimSkel, ReclaimSkelBuilder};
use std::mem::MaybeUninit;
use std::path::Path;

/// Counts of such sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Connected to another backend.
    pub moved: u64,
    /// Aborted, since there was no other backend.
    pub ended: u64,
    /// Aborted now or earlier, and not connected since: they are connected once their Service has a backend again.
    pub waiting: u64,
}

/// Runs one round. Namespaces are found by their processes and by the names of ip-netns(8). Descriptors are searched only if
/// there are stale sockets, or `some_wait`: sockets were aborted earlier.
pub fn run(pins: &Path, some_wait: bool) -> Result<Reclaimed> {
    let mut object = MaybeUninit::uninit();
    let mut program = Program::load(pins, &mut object)?;
    if program.walk(false)? == 0 && !some_wait {
        return Ok(Reclaimed::default());
    }
    // If reconnecting fails, the remaining sockets are aborted all the same.
    let moved = stale::reconnect(pins);
    let ended = program.walk(true)?;
    let Moved { moved, waiting } = moved?;
    Ok(Reclaimed { moved, ended, waiting: waiting + ended })
}

struct Program<'a> {
    skeleton: ReclaimSkel<'a>,
    link: Link,
}

impl<'a> Program<'a> {
    fn load(pins: &Path, object: &'a mut MaybeUninit<OpenObject>) -> Result<Program<'a>> {
        let mut open = ReclaimSkelBuilder::default().open(object).doing("read the reclaiming program")?;
        service_pins::use_pinned(open.open_object_mut(), pins)?;
        let skeleton = open.load().doing("load the reclaiming program")?;
        let link = skeleton.progs.reclaim_udp.attach().doing("attach the iterator")?;
        Ok(Program { skeleton, link })
    }

    /// Returns how many are stale, or how many were aborted.
    fn walk(&mut self, aborting: bool) -> Result<u64> {
        let data = self.skeleton.maps.bss_data.as_deref_mut().expect("the program counts");
        (data.aborting, data.stale, data.destroyed) = (aborting, 0, 0);
        walk::everywhere(&self.link)?;
        let data = self.skeleton.maps.bss_data.as_deref().expect("the program counts");
        Ok(if aborting { data.destroyed } else { data.stale })
    }
}
