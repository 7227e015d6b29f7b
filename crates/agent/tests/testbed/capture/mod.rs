//! Captured pods: files come and go, and so do their namespaces.

mod answers;
mod ends;
mod faults;
mod files;
mod load;
mod namespaces;
mod old_kernels;
mod scale;
mod sources;
mod validate;
