//! The variable by which loaders load the library.

use crate::place::LIBRARY;
use crate::reason::Reason;
use std::path::Path;

/// The variable.
pub const LD_PRELOAD: &str = "LD_PRELOAD";
/// Most bytes of its value: half of what the kernel takes for one variable of a new program.
const LONGEST: usize = 64 * 1024;

/// The value with `library` at its end. `present`: all values that the container sets; `sets_broker`: whether it sets
/// [`crate::BROKER`], too.
pub fn extended<'a>(
    present: impl IntoIterator<Item = &'a str>,
    sets_broker: bool,
    library: &Path,
) -> Result<String, Reason> {
    let present: Vec<_> = present.into_iter().filter(|value| !value.is_empty()).collect();
    let has_own = sets_broker || present.iter().copied().flat_map(names).any(is_ours);
    let (false, [] | [_]) = (has_own, &present[..]) else { return Err(Reason::OwnSettings) };
    let library = library.display();
    let value = present.first().map_or_else(|| library.to_string(), |present| format!("{present}:{library}"));
    if value.len() > LONGEST { Err(Reason::OwnSettings) } else { Ok(value) }
}

/// Whether a value has the library below this directory.
pub fn names_library_below(value: &str, directory: &Path) -> bool {
    names(value).any(|name| is_ours(name) && Path::new(name).starts_with(directory))
}

fn names(value: &str) -> impl Iterator<Item = &str> {
    value.split([':', ' ']).filter(|name| !name.is_empty())
}

fn is_ours(library: &str) -> bool {
    Path::new(library).file_name().is_some_and(|name| name == LIBRARY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "/usr/lib/sidestep/current/libsidestep.so";

    fn value(present: &[&str], sets_broker: bool) -> Result<String, Reason> {
        extended(present.iter().copied(), sets_broker, Path::new(OURS))
    }

    #[test]
    fn what_is_there_comes_first() {
        assert_eq!(value(&[], false).expect("a value"), OURS);
        assert_eq!(value(&[""], false).expect("a value"), OURS);
        assert_eq!(value(&["a.so b.so"], false).expect("a value"), format!("a.so b.so:{OURS}"));
    }

    #[test]
    fn own_settings_stay() {
        let long = "x".repeat(LONGEST);
        for (present, sets_broker) in [
            (&["/opt/libsidestep.so"][..], false),
            (&["a.so:/x/libsidestep.so"], false),
            (&["a.so", "b.so"], false),
            (&[&long], false),
            (&[], true),
        ] {
            assert_eq!(value(present, sets_broker), Err(Reason::OwnSettings));
        }
    }

    #[test]
    fn the_library_is_known_again() {
        let known = |value| names_library_below(value, Path::new("/usr/lib/sidestep"));
        assert!(known(OURS) && known("a.so:/usr/lib/sidestep/0.0.9-bb/libsidestep.so"));
        assert!(!known("/opt/libsidestep.so") && !known("/usr/lib/sidestep/other.so") && !known(""));
    }
}
