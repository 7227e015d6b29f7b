//! Pods whose connections go through their proxy.

mod outside;
mod pairs;
mod removal;
mod twin;
pub mod world;
