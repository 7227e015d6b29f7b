//! Puts the program among the runtime's plugins and into the runtime's chain, and takes it out again.
//!
//! A runtime uses the first configuration of a directory by name, so that is the one that gets the plugin; if another program
//! puts a configuration before it, that one gets it as well. Files are replaced by renaming: a runtime reads the old one or
//! the new one.

mod chain;
mod directory;
mod error;
mod file;
mod program;

use crate::args::{self, Args, Command, Place};
use directory::{Appended, Changed};
use error::InstallError;
use sidestep_error::chain as causes;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Other programs write their configuration when they start, and rarely after that.
const LOOK: Duration = Duration::from_secs(1);

pub fn run(args: Args) -> Result<(), InstallError> {
    match args.command {
        Command::Install(options) if options.watch => watch(&options),
        Command::Install(options) => install(&options),
        Command::Uninstall(place) => uninstall(&place),
    }
}

/// The program first: a runtime that finds a plugin in its chain, but not among its programs, starts no pods.
fn install(options: &args::Install) -> Result<(), InstallError> {
    program::install(&options.place.bin_dir)?;
    let Appended { changed, passed_over } = append(options)?;
    passed_over.iter().for_each(|what| eprintln!("sidestep-cni: {what}"));
    say(&changed);
    match changed {
        Changed::NoConfiguration if options.allow_missing => {
            println!("{}: no network configuration is there yet", options.place.conf_dir.display());
            Ok(())
        }
        Changed::NoConfiguration => Err(no_configuration(options)),
        _ => Ok(()),
    }
}

fn append(options: &args::Install) -> Result<Appended, InstallError> {
    directory::append(&options.place.conf_dir, &chain::plugin(&options.socket, options.timeout))
}

fn no_configuration(options: &args::Install) -> InstallError {
    InstallError::NoConfiguration(options.place.conf_dir.clone())
}

/// The chain first, for the same reason.
fn uninstall(place: &Place) -> Result<(), InstallError> {
    for path in directory::remove(&place.conf_dir)? {
        println!("{}: sidestep-cni is not in its chain any more", path.display());
    }
    program::uninstall(&place.bin_dir)
}

/// The plugin stays installed at the end: pods that start while this program is exchanged must not be open.
fn watch(options: &args::Install) -> Result<(), InstallError> {
    let ends = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT] {
        signal_hook::flag::register(signal, Arc::clone(&ends)).map_err(InstallError::Signals)?;
    }
    program::install(&options.place.bin_dir)?;
    let mut told = Vec::new();
    while !ends.load(Ordering::Relaxed) {
        let troubles = look(options);
        // What was said is not said again before it has changed.
        if troubles != told {
            troubles.iter().for_each(|what| eprintln!("sidestep-cni: {what}; it is tried again every second"));
        }
        told = troubles;
        std::thread::sleep(LOOK);
    }
    Ok(())
}

/// Installs what is missing. Returns what prevents it.
fn look(options: &args::Install) -> Vec<String> {
    match program::restore(&options.place.bin_dir).and_then(|()| append(options)) {
        Ok(Appended { changed, mut passed_over }) => {
            say(&changed);
            if changed == Changed::NoConfiguration {
                passed_over.push(no_configuration(options).to_string());
            }
            passed_over
        }
        Err(error) => vec![causes(&error).to_string()],
    }
}

fn say(changed: &Changed) {
    match changed {
        Changed::Nothing(_) | Changed::NoConfiguration => {}
        Changed::List(path) => println!("{}: sidestep-cni is the last plugin of its chain", path.display()),
        Changed::Single { from, list } => {
            println!("{}: sidestep-cni is in a chain with it, {}", from.display(), list.display());
        }
    }
}
