//! For how many descriptors of programs a process of the stack has room. Worker, keeper and standby have the same limit, and hold the same
//! of programs.

use rustix::process::{Resource, getrlimit};

/// The most eventfds of programs.
const DOORBELLS: u64 = 1 << 16;
/// Descriptors that a process needs besides: of devices, of sockets between the processes, and those that are about to be closed.
const BESIDES: u64 = 64;
/// Those of a queue: its parts, what says that it is driven, and copies while the keeper gives connections back.
const OF_QUEUE: u64 = 8;

/// Room for eventfds of programs: half of the descriptors.
pub fn doorbells() -> u64 {
    getrlimit(Resource::Nofile).current.map_or(DOORBELLS, |limit| DOORBELLS.min(limit / 2))
}

/// Room for sockets of programs: the other half, without what is needed besides. `queues`: of all devices.
pub fn sockets(queues: usize) -> usize {
    getrlimit(Resource::Nofile).current.map_or(usize::MAX, |limit| sockets_within(limit, queues as u64))
}

fn sockets_within(limit: u64, queues: u64) -> usize {
    let half = limit / 2;
    // With a very low limit there is little room for anything.
    (half - (BESIDES + OF_QUEUE * queues).min(half / 2)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_leave_room_for_all_else() {
        for (limit, queues, room) in [(1024, 1, 440), (1 << 20, 16, 524_096), (300, 1, 78), (64, 1, 16), (0, 1, 0)] {
            assert_eq!(sockets_within(limit, queues), room, "{limit}");
        }
    }
}
