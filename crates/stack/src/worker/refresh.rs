//! Tells the kernel, beside the worker, which neighbours are in use.
//!
//! The kernel answers such requests under a lock that all network namespaces share (RTNL). Whoever ends a namespace with thousands of
//! devices has it held for seconds, and meanwhile the worker would carry nothing.

use rustix::io::{self, Errno};
use sidestep_device::path::{self, Path};
use std::collections::HashMap;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::Builder;

/// The thread that makes the requests.
pub struct Refresh {
    paths: SyncSender<Vec<Path>>,
}

impl Refresh {
    /// Starts it.
    pub fn start() -> io::Result<Refresh> {
        // If this fails, the entry is removed in the end, and the connections go back to the kernel.
        Refresh::start_with(|path| drop(path::refresh(path)))
    }

    fn start_with(refresh: impl FnMut(&Path) + Send + 'static) -> io::Result<Refresh> {
        // Room for one list: the thread may be about to ask for it.
        let (paths, receiver) = sync_channel(1);
        Builder::new()
            .name("refresh".into())
            .spawn(move || run(&receiver, refresh))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        Ok(Refresh { paths })
    }

    /// The next hops of these paths are in use. Never waits: a list that comes while another one does is left out, since the next one
    /// says as much.
    pub fn tell(&self, paths: impl Iterator<Item = Path>) {
        let _ = self.paths.try_send(next_hops(paths));
    }
}

/// One path for each next hop. Routers at two devices may have the same link-local address.
fn next_hops(paths: impl Iterator<Item = Path>) -> Vec<Path> {
    let hops: HashMap<_, _> = paths.map(|path| ((path.device, path.next_hop), path)).collect();
    hops.into_values().collect()
}

fn run(lists: &Receiver<Vec<Path>>, mut refresh: impl FnMut(&Path)) {
    while let Ok(paths) = lists.recv() {
        paths.iter().for_each(&mut refresh);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_device::path::Freshness;
    use std::sync::mpsc::channel;
    use std::time::Duration;

    /// What comes long before.
    const LONG: Duration = Duration::from_secs(10);

    fn path(device: u32, next_hop: &str, remote: &str) -> Path {
        Path {
            local: "fd00::1".parse().expect("an address"),
            remote: remote.parse().expect("an address"),
            device,
            next_hop: next_hop.parse().expect("an address"),
            source: [1; 6],
            destination: [2; 6],
            mtu: 1500,
            link_mtu: 1500,
            neighbour: Freshness::Stale,
            is_own: true,
        }
    }

    #[test]
    fn each_next_hop_at_each_device_is_refreshed_once() {
        let all = [
            (1, "fe80::1", "fd01::1"),
            (1, "fe80::1", "fd01::2"),
            (2, "fe80::1", "fd02::1"),
            (2, "fe80::2", "fd02::2"),
        ];
        let hops = next_hops(all.into_iter().map(|(device, next_hop, remote)| path(device, next_hop, remote)));
        let mut hops: Vec<_> = hops.iter().map(|path| (path.device, path.next_hop.to_string())).collect();
        hops.sort();
        assert_eq!(
            hops,
            [(1, "fe80::1"), (2, "fe80::1"), (2, "fe80::2")].map(|(device, hop)| (device, hop.to_owned()))
        );
    }

    #[test]
    fn a_kernel_that_does_not_answer_keeps_nobody_waiting() {
        let ((asked, requests), (answer, answers)) = (channel(), channel());
        let refresh = Refresh::start_with(move |path| {
            asked.send(path.device).expect("the test listens");
            let _ = answers.recv();
        });
        let refresh = refresh.expect("a thread");
        let tell = |device| refresh.tell([path(device, "fe80::1", "fd01::1")].into_iter());
        tell(1);
        assert_eq!(requests.recv_timeout(LONG), Ok(1));
        // The kernel does not answer. Of what follows there is room for one list.
        (2..1000).for_each(tell);
        (0..2).for_each(|_| answer.send(()).expect("the thread waits"));
        assert_eq!(requests.recv_timeout(LONG), Ok(2));
        drop(answer);
        // The thread is idle again once it has taken the list.
        for device in 1000.. {
            tell(device);
            if requests.recv_timeout(Duration::from_millis(10)).is_ok() {
                return;
            }
        }
    }
}
