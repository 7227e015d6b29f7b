//! One queue of a device.

use crate::error::{Doing, Error, Result};
use crate::port::Port;
use crate::receive::Receiver;
use crate::rings::Rings;
use crate::send::Sender;
use crate::takeover;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::sockopt::{xdp_options, xdp_statistics};
use rustix::net::xdp::{XdpOptionsFlags, XdpStatistics};
use std::sync::Arc;
use std::time::Duration;

/// One queue. Its two sides are fields, so that frames can be sent while received ones are looked at.
///
/// The descriptor of [`AsFd`] is readable while frames are there.
pub struct Queue {
    /// Frames of taken connections.
    pub receiver: Receiver,
    /// Frames to the network.
    pub sender: Sender,
    port: Arc<Port>,
}

/// Whether the rings are new, or another process may have used them.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Before {
    Nothing,
    Used,
}

impl Queue {
    pub(crate) fn new(port: Port, before: Before) -> Result<Queue> {
        let layout = *port.umem.layout();
        let doing = "map the rings of an AF_XDP socket (the device is gone, or the kernel is older than Linux 6.4)";
        let mut rings = Rings::map(port.receiving(), port.sending(), &layout).doing(doing)?;
        match before {
            Before::Nothing => give_all(&mut rings),
            Before::Used => takeover::repair(&rings, &layout)?,
        }
        let port = Arc::new(port);
        let receiver = Receiver::new(port.clone(), rings.fill, rings.receive);
        let sender = Sender::new(port.clone(), rings.send, rings.completion);
        Ok(Queue { receiver, sender, port })
    }

    /// Number of the queue.
    pub fn number(&self) -> u32 {
        self.port.umem.layout().queue
    }

    pub(crate) fn port(&self) -> &Port {
        &self.port
    }

    /// Waits until frames are there: true. False: the time is over, or a signal came. None: without end. The thread sleeps.
    ///
    /// New kernels do not report here that the device was removed: [`crate::watch::Watch`] does.
    ///
    /// # Errors
    ///
    /// [`Error::CannotSend`]: an older kernel reports that the device was removed.
    pub fn wait(&self, timeout: Option<Duration>) -> Result<bool> {
        let timeout = timeout.map(|time| Timespec::try_from(time).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 }));
        let mut fds = [PollFd::from_borrowed_fd(self.port.receiving(), PollFlags::IN)];
        match poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(source) => return Err(Error::Call { doing: "wait for frames", source }),
        }
        let found = fds[0].revents();
        if found.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL) {
            return Err(Error::CannotSend(Errno::NODEV));
        }
        Ok(found.contains(PollFlags::IN))
    }

    /// Whether the driver itself uses the memory of frames.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn is_zero_copy(&self) -> Result<bool> {
        let options = xdp_options(self.port.receiving()).doing("ask for the mode of a socket")?;
        Ok(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    }

    /// What the kernel has dropped of received frames, and why.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn statistics(&self) -> Result<XdpStatistics> {
        xdp_statistics(self.port.receiving()).doing("ask for a socket's statistics")
    }
}

impl AsFd for Queue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.receiving()
    }
}

/// Gives all frames to receive to the kernel.
fn give_all(rings: &mut Rings) {
    for number in 0..rings.fill.size() {
        rings.fill.write(number, u64::from(number) * crate::layout::CHUNK as u64);
    }
    rings.fill.set_producer(rings.fill.size());
}
