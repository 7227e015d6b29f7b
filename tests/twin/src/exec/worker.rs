//! Threads that make the calls, so that a call that does not return delays nothing else.

use std::fs::File;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::tell::ERRNO_BEFORE;

/// A function of libc and its arguments, all as words.
#[derive(Clone, Copy)]
pub struct Job {
    pub function: usize,
    pub words: [usize; 7],
    pub wide: bool,
}

#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    pub ret: i64,
    pub errno: i32,
    pub took: Duration,
}

pub struct Worker {
    jobs: Sender<Job>,
    outcomes: Receiver<Outcome>,
    pub tid: i32,
    stat: File,
    scheduled: File,
}

/// Descriptors from here on are the harness's. Programs and the library use lower ones.
pub const HARNESS_FDS: i32 = 900;

/// Moves a descriptor out of the programs' range.
pub fn raise(fd: i32) -> i32 {
    let high = sidestep_sys::fd::fcntl(fd, libc::F_DUPFD_CLOEXEC, HARNESS_FDS as usize).expect("a high number");
    sidestep_sys::fd::close(fd);
    high as i32
}

fn open(path: &str) -> File {
    let fd = File::open(path).unwrap_or_else(|e| panic!("{path}: {e}")).into_raw_fd();
    // SAFETY: a number that was just made and belongs to nobody else.
    unsafe { File::from_raw_fd(raise(fd)) }
}

impl Worker {
    pub fn new() -> Worker {
        let (jobs, to_do) = channel::<Job>();
        let (done, outcomes) = channel();
        let (tell, told) = channel();
        std::thread::spawn(move || {
            unblock_signals();
            // SAFETY: no arguments.
            let _ = tell.send(unsafe { libc::gettid() });
            while let Ok(job) = to_do.recv() {
                if done.send(run(&job)).is_err() {
                    return;
                }
            }
        });
        let tid = told.recv().expect("the thread's number");
        let of_thread = |name: &str| open(&format!("/proc/self/task/{tid}/{name}"));
        Worker { jobs, outcomes, tid, stat: of_thread("stat"), scheduled: of_thread("schedstat") }
    }

    pub fn start(&self, job: Job) {
        self.jobs.send(job).expect("the thread lives");
    }

    pub fn wait(&self, time: Duration) -> Option<Outcome> {
        match self.outcomes.recv_timeout(time) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => panic!("a thread that makes calls is gone"),
        }
    }

    /// How often the thread has been scheduled so far, if it sleeps.
    pub fn asleep(&self) -> Option<u64> {
        let stat = read(&self.stat);
        if !stat.rsplit_once(") ")?.1.starts_with('S') {
            return None;
        }
        read(&self.scheduled).split_whitespace().nth(2)?.parse().ok()
    }

    pub fn signal(&self, signal: i32) {
        // SAFETY: no pointers; the thread never ends.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.tid, signal) };
    }
}

fn read(file: &File) -> String {
    let mut bytes = [0; 512];
    let n = file.read_at(&mut bytes, 0).unwrap_or(0);
    String::from_utf8_lossy(&bytes[..n]).into_owned()
}

/// Blocks signals in the thread that takes commands, so that signals for the process go to a thread that makes calls.
pub fn block_signals() {
    sidestep_posix::sys::signal::block(&SIGNALS);
}

const SIGNALS: [i32; 4] = [libc::SIGUSR1, libc::SIGUSR2, libc::SIGURG, libc::SIGALRM];

fn unblock_signals() {
    let set = sidestep_posix::sys::signal::set_of(&SIGNALS);
    // SAFETY: the set is a live value; no old one is asked for.
    unsafe { libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut()) };
}

type Narrow = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> i32;
type Wide = unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize) -> i64;

fn run(job: &Job) -> Outcome {
    let [a, b, c, d, e, f, g] = job.words;
    let started = Instant::now();
    // SAFETY: a function of libc, which takes its arguments as words and ignores surplus ones. Bad pointers are what is tested:
    // the kernel answers them, and the library must as well.
    let (ret, errno) = unsafe {
        let location = libc::__errno_location();
        *location = ERRNO_BEFORE;
        let ret = match job.wide {
            true => std::mem::transmute::<usize, Wide>(job.function)(a, b, c, d, e, f, g),
            false => i64::from(std::mem::transmute::<usize, Narrow>(job.function)(a, b, c, d, e, f, g)),
        };
        (ret, *location)
    };
    Outcome { ret, errno, took: started.elapsed() }
}
