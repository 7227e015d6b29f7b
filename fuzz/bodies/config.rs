//! Any text as a configuration file: it is read or refused with a line that names the file.

use sidestep_broker::config::Config;

/// Pieces of which random bytes make something that is nearly a configuration.
const PIECES: [&str; 32] = [
    "spin",
    "upgrade-after",
    "ring-size",
    "report",
    "cross-namespaces",
    "allow",
    "uids",
    " = ",
    "\n",
    "[[",
    "]]",
    "[",
    "]",
    "{",
    "}",
    "\"",
    ",",
    "auto",
    "off",
    "8ops",
    "256K",
    "64M",
    "/tmp/report",
    "true",
    "false",
    "0",
    "1000",
    "-1",
    "18446744073709551616",
    "1.5",
    "# ",
    "é",
];

pub fn run(data: &[u8]) {
    let text = match data.split_first() {
        Some((kind, rest)) if kind % 2 == 0 => rest.iter().map(|b| PIECES[*b as usize % PIECES.len()]).collect(),
        _ => String::from_utf8_lossy(data).into_owned(),
    };
    if let Err(error) =
        Config::parse(&text, "some.toml", &|_, name| if name.len() == 4 { Ok(Some(1)) } else { Ok(None) })
    {
        assert!(error.to_string().starts_with("some.toml"), "{error:?} does not say where");
    }
}
