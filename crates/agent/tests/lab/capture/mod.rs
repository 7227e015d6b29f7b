//! Captured pods: files come and go, and so do their namespaces.

mod answers;
mod files;
mod namespaces;
mod scale;
