//! Waits, beside the worker, until no run of the device's program is under way that began before a change of its table.

use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};

/// Grace periods, counted. One covers all changes before it began.
pub struct Grace {
    asked: u64,
    orders: Sender<u64>,
    passed: Arc<AtomicU64>,
    news: Arc<OwnedFd>,
}

impl Grace {
    /// Starts the thread that waits.
    pub fn start() -> io::Result<Grace> {
        let news = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let passed = Arc::new(AtomicU64::new(0));
        let (orders, receiver) = channel();
        let (to_passed, to_news) = (passed.clone(), news.clone());
        let run = move || wait_for(&receiver, &to_passed, &to_news);
        std::thread::Builder::new()
            .name("grace".into())
            .spawn(run)
            .map_err(|error| io::Errno::from_io_error(&error).unwrap_or(io::Errno::AGAIN))?;
        Ok(Grace { asked: 0, orders, passed, news })
    }

    /// Begins a grace period for the changes so far. Returns its number.
    pub fn begin(&mut self) -> u64 {
        self.asked += 1;
        // The thread ends with this process only.
        let _ = self.orders.send(self.asked);
        self.asked
    }

    /// Whether the grace period of this number is over.
    pub fn has_passed(&self, number: u64) -> bool {
        self.passed.load(SeqCst) >= number
    }

    /// Readable once a grace period is over.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.news.as_fd()
    }

    /// The worker looks now.
    pub fn hush(&self) {
        let mut count = [0; 8];
        let _ = rustix::io::read(&*self.news, &mut count);
    }
}

fn wait_for(orders: &Receiver<u64>, passed: &AtomicU64, news: &OwnedFd) {
    while let Ok(first) = orders.recv() {
        let last = orders.try_iter().last().unwrap_or(first);
        sidestep_device::wait_for_programs();
        passed.store(last, SeqCst);
        let _ = rustix::io::write(news, &1u64.to_ne_bytes());
    }
}
