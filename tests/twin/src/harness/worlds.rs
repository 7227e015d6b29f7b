//! Two hosts for each mode that needs some. A program has them for itself: an operator's command concerns all that use the broker.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sidestep_posix::runner::world::World;

use super::modes::Mode;

/// Made when they are needed first.
pub struct Worlds {
    directory: PathBuf,
    worlds: Mutex<HashMap<String, Shared>>,
}

/// The hosts of a mode, which one program has at a time.
pub type Shared = Arc<Mutex<World>>;

impl Worlds {
    /// `directory`: for sockets and logs.
    pub fn new(directory: &Path) -> Worlds {
        Worlds { directory: directory.join("hosts"), worlds: Mutex::new(HashMap::new()) }
    }

    /// Those of a mode; None: it is on one host.
    pub fn of(&self, mode: Mode) -> Result<Option<Shared>, String> {
        let Some(stacks) = mode.stacks else { return Ok(None) };
        let name = format!("{}{}", mode.name, if stacks.is_empty() { "-kernel" } else { "" });
        let mut worlds = locked(&self.worlds);
        if let Some(world) = worlds.get(&name) {
            return Ok(Some(world.clone()));
        }
        let world = Arc::new(Mutex::new(World::new(&self.directory.join(&name), stacks, mode.flips)?));
        worlds.insert(name, world.clone());
        Ok(Some(world))
    }

    /// Ends them all. Err: what a stack has not done as it must.
    pub fn end(&self) -> Result<(), String> {
        let all = std::mem::take(&mut *locked(&self.worlds));
        let end = |(name, world)| {
            let world = Arc::into_inner(world).and_then(|world: Mutex<World>| world.into_inner().ok());
            world.map_or(Ok(()), World::end).map_err(|what| format!("{name}: {what}"))
        };
        // Each is ended, whatever the others say.
        all.into_iter().map(end).collect::<Vec<Result<(), String>>>().into_iter().collect()
    }
}

/// A program that failed has left its hosts as they are.
pub fn locked<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}
