//! An error and its causes, in one line.

use std::error::Error;
use std::fmt;

/// The error, followed by its sources: `c.toml: cannot read it: Permission denied (os error 13)`.
pub fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl fmt::Display + 'a {
    fmt::from_fn(move |f| {
        write!(f, "{error}")?;
        let mut next = error.source();
        while let Some(source) = next {
            write!(f, ": {source}")?;
            next = source.source();
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[derive(Debug, thiserror::Error)]
    #[error("{what}")]
    struct Outer {
        what: &'static str,
        source: io::Error,
    }

    #[test]
    fn every_source_is_told_once() {
        let denied = io::Error::from_raw_os_error(13);
        let inner = Outer { what: "cannot read it", source: denied };
        let outer = Outer { what: "c.toml", source: io::Error::other(inner) };
        // An io::Error that wraps another error shows the other error's text, and has the other error's source.
        assert_eq!(chain(&outer).to_string(), "c.toml: cannot read it: Permission denied (os error 13)");
    }
}
