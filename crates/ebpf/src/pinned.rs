//! Tables of an object that outlive it: pinned, and found again.

use crate::error::{Doing, Error, Result};
use crate::pins::Pins;
use libbpf_rs::{MapCore, MapHandle, Object, OpenMapMut, OpenObject};
use std::ffi::OsStr;
use std::os::fd::AsFd;
use std::path::Path;

/// Tables of an earlier life are used again if they have the same form; others are made anew.
pub fn find_again(open: &mut OpenObject, directory: &Path) -> Result<()> {
    for mut map in open.maps_mut() {
        let path = directory.join(map.name());
        if is_ours(map.name()) && path.exists() {
            let pinned = MapHandle::from_pinned_path(&path).at("open", &path)?;
            same_form(&map, &pinned).map_err(|what| Error::new(format!("map {}", path.display()), what))?;
            map.reuse_fd(pinned.as_fd()).at("use again", &path)?;
        }
    }
    Ok(())
}

/// Settings and constants of a program are its own.
fn is_ours(map: &OsStr) -> bool {
    !map.to_string_lossy().contains('.')
}

fn same_form(wanted: &OpenMapMut, pinned: &MapHandle) -> std::result::Result<(), String> {
    let form = |key, value, flags| format!("keys of {key} and values of {value} bytes, flags {flags:#x}");
    let wanted = form(wanted.key_size(), wanted.value_size(), wanted.map_flags());
    let flags = pinned.info().map_err(|error| error.to_string())?.info.map_flags;
    let found = form(pinned.key_size(), pinned.value_size(), flags);
    if wanted == found { Ok(()) } else { Err(format!("has {found}, not {wanted}: detach first")) }
}

pub fn pin(object: &mut Object, directory: &Path) -> Result<()> {
    for mut map in object.maps_mut() {
        let path = directory.join(map.name());
        if is_ours(map.name()) && !path.exists() {
            map.pin(&path).at("pin", &path)?;
        }
    }
    Ok(())
}

/// Tables in a form that no program uses any more.
pub fn forget_other_layouts(pins: &Pins, kind: &str, current: &str) -> Result<()> {
    let others = pins.names(&[kind]).into_iter().filter(|name| name.starts_with("maps-") && *name != current);
    others.into_iter().try_for_each(|name| pins.remove(&[kind, &name]))
}
