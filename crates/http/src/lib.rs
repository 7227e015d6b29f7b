//! Serves metrics and probes over HTTP, one request for each connection: `/metrics`, `/healthz` and `/readyz`. Anybody may reach the
//! port, so everything has a limit: open connections, the size of a request, the time for sending it, and the time for reading the
//! answer.

#![forbid(unsafe_code)]

mod address;
mod answer;
mod asked;
mod connections;
mod limits;
mod server;
mod service;
mod turn;

pub use address::address;
pub use answer::{Answer, Page, apart};
pub use asked::Asked;
pub use connections::Connections;
pub use limits::Limits;
pub use server::Server;
