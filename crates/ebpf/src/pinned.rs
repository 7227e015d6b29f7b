//! Maps that outlive their object: they are pinned, and found again by the next object.

use crate::error::{Doing, Result};
use crate::pins::Pins;
use libbpf_rs::{MapCore, MapHandle, Object, OpenObject};
use std::ffi::OsStr;
use std::fmt;
use std::os::fd::AsFd;
use std::path::Path;

/// Reuses pinned tables of the same form. Tables of another form are created anew.
pub fn find_again(open: &mut OpenObject, directory: &Path) -> Result<()> {
    for mut map in open.maps_mut() {
        let path = directory.join(map.name());
        if is_ours(map.name()) && path.exists() {
            let pinned = MapHandle::from_pinned_path(&path).at("open", &path)?;
            let flags = pinned.info().at("ask", &path)?.info.map_flags;
            let wanted = Form { key: map.key_size(), value: map.value_size(), flags: map.map_flags() };
            let found = Form { key: pinned.key_size(), value: pinned.value_size(), flags };
            if wanted != found {
                return Err(OtherForm { wanted, found }).at("map", &path);
            }
            map.reuse_fd(pinned.as_fd()).at("use again", &path)?;
        }
    }
    Ok(())
}

/// A map whose name contains a period holds a program's settings or constants, and is not shared.
fn is_ours(map: &OsStr) -> bool {
    !map.to_string_lossy().contains('.')
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Form {
    key: u32,
    value: u32,
    flags: u32,
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Form { key, value, flags } = self;
        write!(f, "keys of {key} and values of {value} bytes, flags {flags:#x}")
    }
}

#[derive(Debug, thiserror::Error)]
#[error("has {found}, not {wanted}: detach first (`sidestep agent --detach`)")]
struct OtherForm {
    wanted: Form,
    found: Form,
}

/// Pins the shared maps that are not pinned yet.
pub fn pin(object: &mut Object, directory: &Path) -> Result<()> {
    for mut map in object.maps_mut() {
        let path = directory.join(map.name());
        if is_ours(map.name()) && !path.exists() {
            map.pin(&path).at("pin", &path)?;
        }
    }
    Ok(())
}

/// Removes tables of other layouts, which no program uses any more.
pub fn unpin_other_layouts(pins: &Pins, kind: &str, current: &str) -> Result<()> {
    let others = pins.names(&[kind]).into_iter().filter(|name| name.starts_with("maps-") && *name != current);
    others.into_iter().try_for_each(|name| pins.remove(&[kind, &name]))
}
