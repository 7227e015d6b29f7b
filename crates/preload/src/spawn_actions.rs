//! What posix_spawn(3) will do to descriptors in the child. The program's list of actions may be older than the connection that has
//! one of its numbers, so it is read when it is used. Its layout is libc's own, and has not changed since glibc 2.2 and musl 1.0.

use crate::host::{self, Kind};
use crate::user;
use core::ffi::{c_int, c_void};

/// Most actions that are looked at.
const MOST: usize = 4096;

/// The beginning of posix_spawn_file_actions_t, in both libcs.
#[derive(Clone, Copy)]
#[repr(C)]
struct List {
    /// glibc: room for so many actions.
    _allocated: c_int,
    /// glibc: number of actions.
    used: c_int,
    /// glibc: an array. musl: the latest action.
    first: usize,
}

/// struct __spawn_action of glibc.
#[derive(Clone, Copy)]
#[repr(C)]
struct OfGlibc {
    kind: c_int,
    _padding: c_int,
    from: c_int,
    _to: c_int,
    _rest: [u64; 2],
}

/// The beginning of struct fdop of musl.
#[derive(Clone, Copy)]
#[repr(C)]
struct OfMusl {
    /// The action before it.
    next: usize,
    _prev: usize,
    kind: c_int,
    _to: c_int,
    from: c_int,
    _flags: c_int,
}

// SAFETY: integers.
unsafe impl user::Plain for List {}
// SAFETY: integers.
unsafe impl user::Plain for OfGlibc {}
// SAFETY: integers.
unsafe impl user::Plain for OfMusl {}

/// spawn_do_dup2 of glibc.
const GLIBC_DUP2: c_int = 1;
/// FDOP_DUP2 of musl.
const MUSL_DUP2: c_int = 2;

/// Calls `each` with the descriptors of which the child will have copies, even if they are close-on-exec.
pub fn for_each_copied(actions: *const c_void, each: impl FnMut(i32)) {
    if actions.is_null() {
        return;
    }
    if host::is(Kind::Glibc) {
        of_glibc(actions, each);
    } else if host::is(Kind::Musl) {
        of_musl(actions, each);
    }
}

fn of_glibc(actions: *const c_void, each: impl FnMut(i32)) {
    let Ok(list) = user::read(actions.cast::<List>()) else { return };
    let action = |i| user::read((list.first as *const OfGlibc).wrapping_add(i)).ok();
    let all = (0..list.used.max(0) as usize).take(MOST).map_while(action);
    all.filter(|a| a.kind == GLIBC_DUP2).map(|a| a.from).for_each(each);
}

fn of_musl(actions: *const c_void, each: impl FnMut(i32)) {
    let action = |at: usize| if at == 0 { None } else { user::read(at as *const OfMusl).ok() };
    let first = user::read(actions.cast::<List>()).ok().and_then(|list| action(list.first));
    let all = core::iter::successors(first, |a| action(a.next)).take(MOST);
    all.filter(|a| a.kind == MUSL_DUP2).map(|a| a.from).for_each(each);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    fn list(used: usize, first: usize) -> List {
        List { _allocated: 8, used: used as c_int, first }
    }

    #[test]
    fn copies_are_found_in_a_list_of_glibc() {
        let action = |kind, from| OfGlibc { kind, _padding: -1, from, _to: 0, _rest: [7; 2] };
        let actions = [action(0, 4), action(GLIBC_DUP2, 5), action(2, 6), action(GLIBC_DUP2, 7), action(GLIBC_DUP2, 8)];
        let list = list(4, actions.as_ptr() as usize);
        let mut found = Vec::new();
        of_glibc((&raw const list).cast(), |fd| found.push(fd));
        assert_eq!(found, [5, 7]);
    }

    #[test]
    fn the_list_of_this_libc_is_read() {
        // SAFETY: the first call makes the zeroed value valid; the last one ends it.
        unsafe {
            let mut actions: libc::posix_spawn_file_actions_t = core::mem::zeroed();
            assert_eq!(libc::posix_spawn_file_actions_init(&raw mut actions), 0);
            assert_eq!(libc::posix_spawn_file_actions_addclose(&raw mut actions, 40), 0);
            assert_eq!(libc::posix_spawn_file_actions_adddup2(&raw mut actions, 41, 0), 0);
            assert_eq!(libc::posix_spawn_file_actions_adddup2(&raw mut actions, 42, 1), 0);
            let mut found = Vec::new();
            of_glibc((&raw const actions).cast(), |fd| found.push(fd));
            assert_eq!(found, [41, 42]);
            assert_eq!(libc::posix_spawn_file_actions_destroy(&raw mut actions), 0);
        }
    }

    #[test]
    fn copies_are_found_in_a_list_of_musl() {
        let action = |next, kind, from| OfMusl { next, _prev: 0, kind, _to: 0, from, _flags: 0 };
        let first = action(0, MUSL_DUP2, 5);
        let second = action(&raw const first as usize, 1, 6);
        let third = action(&raw const second as usize, MUSL_DUP2, 7);
        let list = list(0, &raw const third as usize);
        let mut found = Vec::new();
        of_musl((&raw const list).cast(), |fd| found.push(fd));
        assert_eq!(found, [7, 5]);
    }

    #[test]
    fn a_list_that_never_ends_is_not_followed_for_ever() {
        let mut found = 0;
        let mut circle = OfMusl { next: 0, _prev: 0, kind: MUSL_DUP2, _to: 0, from: 5, _flags: 0 };
        circle.next = &raw const circle as usize;
        let endless = list(0, circle.next);
        of_musl((&raw const endless).cast(), |_| found += 1);
        assert_eq!(found, MOST);
    }
}
