//! What the processes of a family have in common: the records of their connections and of the epoll sets that they inherit, in
//! memory that a process shares with the children that it forks.
//!
//! A connection's record has a bit for each process that holds the connection. A process removes its bit when it closes its last
//! descriptor. Many processes end without that: they are killed, exit, or execute another program. Their bits are removed when a
//! process finds out that they are dead, at the latest before their place in the family, and with it their bit, becomes another
//! process's ([`dead`]). Whoever removes the last bit, of its own or of a dead process, ends the record
//! ([`Holders`](sidestep_conn::Holders)).

mod birth;
mod dead;
mod family;
mod memory;
mod records;
mod shared_sets;

pub use birth::Birth;
pub use family::{
    any_other_lately, become_child, bit, cancel_child, child_is, forget_place, has_others, leave_family, leave_holders,
    leave_place, me, process_at, reserve_for_child,
};
pub use memory::{CONNS, FamilySet, conn, exists, local};
pub use records::{
    alloc, held_by_others, held_lately, hold_late, is_inherited, let_go, let_go_for_exec, number, rejoin,
    share_with_child,
};
pub use shared_sets::{Held, alloc_set, family_set};
