//! All integration tests of this crate, linked once.

mod cases;
mod chromium;
mod common;
mod compare;
mod demo;
mod docs;
mod kube;
mod loads;
mod mesh;
mod meter;
mod profile;
mod report;
mod results;
mod run;
mod running;
#[path = "../examples/coverage/samples.rs"]
mod samples;
mod services;
mod statistics;
