//! The agent as a program: fed from a directory, killed, exchanged, asked, and taken away again.

mod agent;
mod answers;
mod capture;
mod changes;
mod cluster;
mod ends;
mod places;
mod policy;
mod privileges;
mod scale;
mod signals;
mod splice;
mod yaml;
