//! Pods whose connections go through their proxy.

pub mod greeter;
mod outside;
mod pairs;
mod removal;
mod twin;
pub mod world;
