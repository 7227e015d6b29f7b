//! Services as programs in pods meet them: real sockets in network namespaces.

mod connections;
mod datagrams;
mod node;
