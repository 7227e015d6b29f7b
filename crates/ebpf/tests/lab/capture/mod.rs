//! Pods whose connections go through their proxy.

pub mod greeter;
mod outside;
mod twin;
pub mod world;
