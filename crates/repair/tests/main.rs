//! All integration tests of this crate, linked once.

mod carried;
mod common;
mod deaths;
mod failures;
mod intruders;
mod options;
mod parked;
mod places;
mod queues;
mod refusals;
mod streams;
mod timing;
