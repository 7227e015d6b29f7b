//! Pods whose connections go through their proxy.

mod greeter;
mod outside;
mod pairs;
mod twin;
mod world;
