//! An error and its causes, in one line.

use std::error::Error;
use std::fmt;

/// The error, followed by its sources: `c.toml: cannot read it: Permission denied (os error 13)`.
///
/// A source whose text is already contained is not repeated.
pub fn chain<'a>(error: &'a (dyn Error + 'static)) -> impl fmt::Display + 'a {
    fmt::from_fn(move |f| {
        let (mut text, mut next) = (error.to_string(), error.source());
        while let Some(source) = next {
            let own = source.to_string();
            if !text.contains(&own) {
                text = format!("{text}: {own}");
            }
            next = source.source();
        }
        f.write_str(&text)
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

    #[derive(Debug, thiserror::Error)]
    #[error("line 3: {source}")]
    struct Quoting {
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

    #[test]
    fn what_an_error_quotes_is_told_once() {
        let inner = Quoting { source: io::Error::from_raw_os_error(2) };
        let outer = Outer { what: "rules", source: io::Error::other(inner) };
        assert_eq!(chain(&outer).to_string(), "rules: line 3: No such file or directory (os error 2)");
    }
}
