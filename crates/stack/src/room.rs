//! For how many descriptors of programs a process of the stack has room, and for how many of one trust domain. Worker, keeper and standby
//! have the same limit, and hold the same of programs.

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

/// A domain gets no further connection if it has more than this many times what is left then.
const SHARE: usize = 2;

/// Whether a domain that has `held` connections may have one more, if `used` of `room` are in use. So a domain that takes all it can leaves
/// a third, and one that has none may have the last.
pub fn is_for(held: usize, used: usize, room: usize) -> bool {
    room.checked_sub(used + 1).is_some_and(|left| held <= SHARE * left)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_domain_that_takes_all_it_can_leaves_a_third() {
        let taken = |used: usize, room: usize| (0..).take_while(|held| is_for(*held, used + held, room)).count();
        assert_eq!([30, 16_384, 2, 1, 0].map(|room| taken(0, room)), [20, 10_923, 1, 1, 0]);
        assert_eq!([20, 27, 29, 30].map(|used| taken(used, 30)), [7, 2, 1, 0], "of what others have left");
    }

    #[test]
    fn sockets_leave_room_for_all_else() {
        for (limit, queues, room) in [(1024, 1, 440), (1 << 20, 16, 524_096), (300, 1, 78), (64, 1, 16), (0, 1, 0)] {
            assert_eq!(sockets_within(limit, queues), room, "{limit}");
        }
    }
}
