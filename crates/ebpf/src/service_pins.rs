//! Where the Service programs and their tables are pinned.

use crate::error::Result;
use crate::layout::VERSION;
use crate::pinned;
use crate::pins::Pins;
use libbpf_rs::OpenObject;
use std::path::{Path, PathBuf};

/// Name of this kind of programs among the pins.
pub(crate) const KIND: &str = "services";
const INBOUND: &str = "inbound";

pub(crate) fn maps_directory() -> String {
    format!("maps-{VERSION}")
}

/// Where the tables of this version are pinned.
pub(crate) fn maps_path(pins: &Path) -> Result<PathBuf> {
    Ok(Pins::new(pins)?.path(&[KIND, &maps_directory()]))
}

/// Where programs of single namespaces are pinned.
pub(crate) fn inbound_path(pins: &Path) -> Result<PathBuf> {
    Ok(Pins::new(pins)?.path(&[KIND, INBOUND]))
}

/// As `inbound_path`, and creates the directory.
pub(crate) fn make_inbound_path(pins: &Path) -> Result<PathBuf> {
    Pins::new(pins)?.make(&[KIND, INBOUND])
}

/// Makes another object use the pinned maps.
pub(crate) fn use_pinned(object: &mut OpenObject, pins: &Path) -> Result<()> {
    pinned::find_again(object, &maps_path(pins)?)
}
