//! What each connection of this process is doing, for the message about a failure or a hang.

use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use sidestep_posix::sys::{io, process};

/// Exit code of a process in which something hangs.
const HANGS: i32 = 3;

pub struct Note {
    /// The connection, the end, and its ways.
    about: String,
    sent: AtomicU64,
    received: AtomicU64,
    step: Mutex<(&'static str, &'static str)>,
    ended: AtomicBool,
}

static NOTES: Mutex<Vec<Arc<Note>>> = Mutex::new(vec![]);
static DEADLINE: OnceLock<Instant> = OnceLock::new();

thread_local! {
    static CURRENT: RefCell<Option<Arc<Note>>> = const { RefCell::new(None) };
}

impl Note {
    /// A new one, which this thread works for from now on.
    pub fn new(about: String) -> Arc<Note> {
        let zero = || AtomicU64::new(0);
        let step = Mutex::new(("begins", ""));
        let note = Arc::new(Note { about, sent: zero(), received: zero(), step, ended: AtomicBool::new(false) });
        NOTES.lock().expect("nobody panics with it").push(note.clone());
        note.work_for();
        note
    }

    pub fn work_for(self: &Arc<Note>) {
        CURRENT.with(|current| *current.borrow_mut() = Some(self.clone()));
    }

    pub fn sent(&self, n: usize) {
        self.sent.fetch_add(n as u64, Relaxed);
    }

    pub fn received(&self, n: usize) {
        self.received.fetch_add(n as u64, Relaxed);
    }

    pub fn ended(&self) {
        self.ended.store(true, Relaxed);
    }

    fn told(&self) -> String {
        let step = self.step.try_lock().map_or(("is between two steps", ""), |step| *step);
        let (sent, received) = (self.sent.load(Relaxed), self.received.load(Relaxed));
        format!("{}; {sent} bytes sent, {received} received; last step: {} {}", self.about, step.0, step.1)
    }
}

/// The thread's connection is about to do this.
pub fn step(verb: &'static str, way: &'static str) {
    CURRENT.with(|current| {
        if let Some(note) = &*current.borrow() {
            *note.step.lock().expect("nobody panics with it") = (verb, way);
        }
    });
}

/// One line, in one piece, beside those of other processes.
fn say(line: &str) {
    let _ = io::write(2, format!("{line}\n").as_bytes());
}

/// A panic, or a deadline that is over, ends the process and says where it was.
pub fn watch(seconds: u64) {
    let deadline = *DEADLINE.get_or_init(|| Instant::now() + Duration::from_secs(seconds));
    std::panic::set_hook(Box::new(|what| {
        let current = CURRENT.with(|current| current.borrow().as_ref().map(|note| note.told()));
        say(&format!("{what} [{}]", current.unwrap_or_default()).replace('\n', " "));
        process::exit_now(1);
    }));
    std::thread::spawn(move || {
        std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
        let notes = NOTES.lock().expect("nobody panics with it");
        notes.iter().filter(|note| !note.ended.load(Relaxed)).for_each(|note| say(&format!("hangs: {}", note.told())));
        process::exit_now(HANGS);
    });
}

/// In a forked child, which has no thread but this one: only its own connection counts.
pub fn watch_alone() {
    let Some(note) = CURRENT.with(|current| current.borrow().clone()) else { return };
    let deadline = *DEADLINE.get().expect("the parent watches");
    std::thread::spawn(move || {
        std::thread::sleep(deadline.saturating_duration_since(Instant::now()));
        say(&format!("hangs in a forked child: {}", note.told()));
        process::exit_now(HANGS);
    });
}
