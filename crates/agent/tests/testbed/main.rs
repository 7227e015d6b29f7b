//! The agent as a program: it is fed from a directory, killed, exchanged, queried and removed.

mod admission;
mod agent;
mod answers;
mod api_server;
mod capture;
mod chain;
mod changes;
mod citizen;
mod cluster;
mod ends;
mod places;
mod pods;
mod policy;
mod privileges;
mod proxy;
mod repair;
mod rings;
mod scale;
mod signals;
mod splice;
mod yaml;
