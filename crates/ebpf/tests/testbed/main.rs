//! Services as seen by programs in pods: real sockets in network namespaces.

mod attacks;
mod binding;
mod bypass;
mod capture;
mod churn;
mod connections;
mod datagrams;
mod external;
mod flows;
mod frontends;
mod give_back;
mod installs;
mod node;
mod numbers;
mod pins;
mod policy;
mod programs;
mod scratch;
mod sockets;
mod splice;
mod stale;
mod traps;
mod twin;
