//! Pods whose connections go through their proxy.

mod greeter;
mod outside;
mod twin;
mod world;
