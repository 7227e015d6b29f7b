//! The two directions of a connection, a step at a time and without waiting: by ring, by kernel, and the change from one to the
//! other.

pub mod deputy;
pub mod due;
pub mod iov;
pub mod kept;
pub mod late;
pub mod leave;
pub mod native;
pub mod parked;
pub mod peer;
pub mod rx;
pub mod source;
pub mod stretch;
pub mod tx;
pub mod unrung;
