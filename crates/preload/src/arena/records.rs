//! Who holds the record of a connection: from its beginning to the end of its last holder.

use super::dead;
use super::family::{self, bit, me};
use super::memory::{arena, conn, local};
use crate::fdtable::{self, Kind};
use crate::record::Conn;
use core::sync::atomic::Ordering::*;
use sidestep_conn::Phase;

/// A record that nobody holds. The caller becomes its holder by [`Conn::reset`].
pub fn alloc() -> Option<u32> {
    let a = arena()?;
    a.take_free().or_else(|| {
        dead::search();
        a.pop()
    })
}

/// This process no longer holds the connection. If nobody else does, the record is given back. No effect if this process does not
/// hold it.
pub fn let_go(index: u32) {
    if let Some(a) = arena()
        && conn(index).holders.remove(bit())
    {
        a.end(index);
    }
}

/// Whether another living process holds the connection.
pub fn held_by_others(c: &Conn) -> bool {
    family::any_other(c.holders.bits(), &mut 0)
}

/// As [`held_by_others`], according to a recent check.
pub fn held_lately(index: u32) -> bool {
    family::any_other_lately(conn(index).holders.bits(), &local(index).held_until)
}

/// Before fork(): the child at this place is to hold the connection, too. No effect if another thread has closed the connection
/// meanwhile.
pub fn share_with_child(index: u32, place: u32) {
    conn(index).holders.add_beside(bit(), 1 << place);
}

/// This process is a child that was made out of sight, and has inherited a descriptor of the connection. False: nobody holds the
/// record any more, or it is a later connection's.
pub fn hold_late(index: u32) -> bool {
    hold_in(index, local(index).generation.load(Relaxed))
}

/// This process becomes a holder of a record that may have been given back meanwhile. False: it is not of this generation any more.
fn hold_in(index: u32, generation: u32) -> bool {
    let mine = bit();
    if mine == 0 || !conn(index).holders.add_late(mine) {
        return false;
    }
    // From here on the record cannot end. But it may be that of a later connection.
    let is_same = conn(index).phase.generation() == generation;
    if !is_same {
        let_go(index);
    }
    is_same
}

/// Before exec(), which closes the connection: leaves it to its other holders, if there are any. They cannot learn of the exec().
/// Not if the broker knows the connection as this process's: exec() may fail, and then the others would have ended it. `alive`: as
/// for [`family::any_other`].
pub fn let_go_for_exec(index: u32, alive: &mut u64) {
    let (c, local) = (conn(index), local(index));
    let may_go = is_inherited(c) || matches!(c.phase.phase(), Phase::Kernel { .. });
    if may_go && family::any_other(c.holders.bits(), alive) {
        local.left_in.store(c.phase.generation(), Relaxed);
        if !c.holders.remove_unless_last(bit()) {
            local.left_in.store(0, Relaxed);
        }
    }
}

/// After a failed exec(): holds the connection again, if the process let it go. False: the other holders have ended the connection.
pub fn rejoin(index: u32) -> bool {
    let left_in = local(index).left_in.swap(0, Relaxed);
    left_in == 0 || hold_in(index, left_in)
}

/// Whether another process of the family has attached the connection.
pub fn is_inherited(c: &Conn) -> bool {
    c.owner.load(Relaxed) != me().unwrap_or(u32::MAX)
}

/// The descriptor by which a call that began with `fd` reaches its connection now.
pub fn number(index: u32, fd: i32) -> i32 {
    let local = local(index);
    // The connection may be an orphan, or another of its descriptors may be the one in use.
    let moved = local.orphan.load(SeqCst) != 0 || fdtable::get(fd) != Kind::Conn(index);
    if moved { local.fd.load(Relaxed) as i32 } else { fd }
}

#[cfg(test)]
mod tests {
    use super::family::tests::{begun, child, kill};
    use super::*;
    use crate::arena::CONNS;
    use sidestep_conn::Event;
    use std::collections::BTreeSet;
    use std::thread;
    use std::vec::Vec;

    #[test]
    fn threads_never_have_the_same_record() {
        let all: Vec<u32> = thread::scope(|scope| {
            let work = || {
                let mut mine = Vec::new();
                for turn in 0..3000 {
                    let index = begun();
                    if turn % 3 == 0 {
                        mine.push(index);
                    } else {
                        let_go(index);
                    }
                }
                mine
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
            threads.into_iter().flat_map(|t| t.join().expect("no panic")).collect()
        });
        assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
        all.into_iter().for_each(let_go);
    }

    #[test]
    fn a_record_of_a_new_connection_knows_nothing_of_the_last() {
        let index = begun();
        let c = conn(index);
        let generation = c.phase.generation();
        c.phase.go(Event::Keep);
        c.ops.store(9, Relaxed);
        c.phase.go(Event::Close);
        c.phase.go(Event::Free);
        c.reset(0, bit());
        assert_ne!(c.phase.generation(), generation);
        assert!(c.phase.phase().may_be_offered() && c.ops.load(Relaxed) == 0);
        let_go(index);
    }

    #[test]
    fn a_record_that_is_given_back_twice_is_handed_out_once() {
        let (index, place) = (begun(), child());
        share_with_child(index, place);
        let_go(index);
        let_go(index);
        assert_eq!(conn(index).holders.bits(), 1 << place);
        kill(place);
        dead::reap_all();
        dead::reap_all();
        let all: Vec<u32> = (0..2).map(|_| begun()).collect();
        assert_ne!(all[0], all[1]);
        all.into_iter().for_each(let_go);
    }

    /// The way of PostgreSQL: the parent accepts, forks and closes; the child serves, and exits without close().
    #[test]
    fn a_forking_server_serves_more_connections_than_there_are_records() {
        for turn in 0..CONNS + CONNS / 8 {
            let index = alloc().unwrap_or_else(|| panic!("no record for connection {turn}"));
            conn(index).reset(0, bit());
            let place = child();
            share_with_child(index, place);
            let_go(index);
            kill(place);
        }
    }

    #[test]
    fn a_failed_exec_finds_its_connection_again() {
        let (index, place) = (begun(), child());
        share_with_child(index, place);
        let_go_for_exec(index, &mut 0);
        assert_eq!(conn(index).holders.bits(), 1 << place);
        assert!(rejoin(index));
        assert_eq!(conn(index).holders.bits(), 1 << place | bit());
        kill(place);
        assert!(!held_by_others(conn(index)));
        let_go_for_exec(index, &mut 0);
        assert_eq!(conn(index).holders.bits(), bit(), "the last holder stays");
        let_go(index);
    }

    #[test]
    fn a_failed_exec_does_not_take_a_later_connection_for_its_own() {
        let (index, place) = (begun(), child());
        let (c, other) = (conn(index), 1 << place);
        share_with_child(index, place);
        let_go_for_exec(index, &mut 0);
        c.phase.go(Event::Close);
        c.phase.go(Event::Free);
        c.reset(0, other);
        assert!(!rejoin(index));
        assert_eq!(c.holders.bits(), other);
        kill(place);
        dead::reap_all();
    }

    #[test]
    fn a_child_made_out_of_sight_holds_what_still_has_a_holder() {
        let (index, place) = (begun(), child());
        conn(index).holders.begin(1 << place);
        assert!(hold_late(index));
        assert_eq!(conn(index).holders.bits(), 1 << place | bit());
        conn(index).holders.begin(0);
        assert!(!hold_late(index));
        conn(index).holders.begin(bit());
        let_go(index);
        kill(place);
    }

    #[test]
    fn a_child_made_out_of_sight_does_not_take_a_later_connection_for_its_own() {
        let (index, place) = (begun(), child());
        let (c, other) = (conn(index), 1 << place);
        c.phase.go(Event::Close);
        c.phase.go(Event::Free);
        c.reset(0, other);
        assert!(!hold_late(index));
        assert_eq!(c.holders.bits(), other);
        kill(place);
        dead::reap_all();
    }
}
