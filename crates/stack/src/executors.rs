//! Threads for every call on a program's socket, one for each trust domain.
//!
//! A program can hold the lock of its socket for as long as it likes: sendmsg(2) takes the lock, and sleeps with it while it copies
//! from memory that is not there yet (userfaultfd, a file of a FUSE file system). Every other call that takes the lock sleeps
//! meanwhile, and no signal ends that sleep: getsockname(2), getsockopt(2) of TCP_INFO, setsockopt(2), recvmsg(2), connect(2), bind(2).
//! A socket that lingers delays its last close. So the threads that serve everybody make no such call. They give it to the
//! *executor* of the domain to which the socket belongs, as a task. An executor that sleeps delays only the domain that makes it
//! sleep.
//!
//! ```text
//!                Task (never waits)
//!   main thread ----------------------> executor of a domain: getsockopt, connect, ..., close
//!               <----------------------
//!                what the task returns, and an eventfd
//! ```

use crate::readable::is_readable;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::io::{self, Errno};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{CpuSet, sched_setaffinity};
use sidestep_broker::closing::Closing;
use sidestep_broker::domain::{Key, NetNamespace};
use sidestep_sys::tcp;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

/// The most domains with connections or open tasks: each has a thread. One more thread does what belongs to no domain.
const MOST: usize = 1024;
/// Of the users of one network namespace that is not the stack's own. A container there may have any number of users.
const MOST_ELSEWHERE: usize = MOST / 16;
/// The threads call nothing that recurses.
const STACK: usize = 256 * 1024;

/// What an executor does. It closes sockets by what it is given: one that lingers keeps no other task waiting.
pub type Task<T> = Box<dyn FnOnce(&mut Closing) -> Option<T> + Send>;

/// The executors of all domains. `T`: what tasks return.
pub struct Executors<T> {
    running: HashMap<Key, Executor<T>>,
    done: Receiver<T>,
    reports: Reports<T>,
    processors: Option<CpuSet>,
    /// This process's network namespace.
    own: Option<NetNamespace>,
}

struct Executor<T> {
    tasks: Sender<Task<T>>,
    /// Tasks that are not done.
    open: Arc<AtomicUsize>,
    connections: usize,
}

impl<T: Send + 'static> Executors<T> {
    /// Starts the executor of nobody, which does what belongs to no domain. `processors`: those that executors run on; None: as the
    /// caller.
    pub fn start(processors: Option<CpuSet>) -> io::Result<Executors<T>> {
        let (to_done, done) = channel();
        let news = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let reports = Reports { to_done, news };
        let mut all = Executors { running: HashMap::new(), done, reports, processors, own: own_namespace()? };
        all.admit(Key::default())?;
        Ok(all)
    }

    /// A connection of this domain begins: its executor runs until [`Executors::leave`].
    ///
    /// # Errors
    ///
    /// EAGAIN: there are too many domains, or too many users of this one's network namespace. Others: no thread can be started.
    pub fn admit(&mut self, domain: Key) -> io::Result<()> {
        if let Some(executor) = self.running.get_mut(&domain) {
            executor.connections += 1;
            return Ok(());
        }
        self.end_idle();
        if self.running.len() > MOST || self.is_crowded(domain) {
            return Err(Errno::AGAIN);
        }
        let executor = self.start_one()?;
        self.running.insert(domain, executor);
        Ok(())
    }

    /// How many connections of this domain have begun, and are not over.
    pub fn connections(&self, domain: Key) -> usize {
        self.running.get(&domain).map_or(0, |executor| executor.connections)
    }

    /// Whether the users of this domain's network namespace have as many executors as they may.
    fn is_crowded(&self, domain: Key) -> bool {
        let Some(netns) = domain.netns().filter(|netns| Some(*netns) != self.own) else { return false };
        self.running.keys().filter(|other| other.netns() == Some(netns)).count() >= MOST_ELSEWHERE
    }

    /// A connection of this domain is over. What its executor was given it still does.
    pub fn leave(&mut self, domain: Key) {
        if let Some(executor) = self.running.get_mut(&domain) {
            executor.connections -= 1;
        }
    }

    /// Ends executors whose domains have no connection, and nothing to be done.
    pub fn end_idle(&mut self) {
        self.running.retain(|_, executor| executor.connections > 0 || executor.open.load(SeqCst) > 0);
    }

    /// The executor of a domain that was admitted does this.
    pub fn give(&self, domain: Key, task: Task<T>) {
        let executor = self.running.get(&domain).expect("an executor runs while its domain has a connection");
        executor.open.fetch_add(1, SeqCst);
        executor.tasks.send(task).expect("an executor ends after its sender only");
    }

    /// Closes a socket of this domain, which may linger, and then tells `what`. Those that linger wait for each other, so they are to be of
    /// one domain: only sockets of domains without an executor are closed by that of nobody.
    pub fn close(&self, domain: Key, socket: OwnedFd, what: T) {
        let executor = if self.connections(domain) > 0 { domain } else { Key::default() };
        let reports = self.reports();
        let close = move |closing: &mut Closing| {
            closing.close(reports.once_closed(socket, what));
            None
        };
        self.give(executor, Box::new(close));
    }

    /// What says later what a task does not return.
    pub fn reports(&self) -> Reports<T> {
        self.reports.clone()
    }

    /// What a task has returned, or a report.
    pub fn next(&self) -> Option<T> {
        self.done.try_recv().ok()
    }

    /// Waits until a task has returned something, for this long, and not beyond `end` however much there is to hear. False: in vain.
    pub fn wait(&self, longest: Duration, end: Instant) -> bool {
        let left = longest.min(end.saturating_duration_since(Instant::now()));
        !left.is_zero() && is_readable(self.news(), left)
    }

    /// Readable once a task has returned something.
    pub fn news(&self) -> BorrowedFd<'_> {
        self.reports.news.as_fd()
    }

    /// The owner looks now.
    pub fn hush(&self) {
        let mut count = [0; 8];
        let _ = io::read(&*self.reports.news, &mut count);
    }

    fn start_one(&self) -> io::Result<Executor<T>> {
        let (tasks, receiver) = channel();
        let open = Arc::new(AtomicUsize::new(0));
        let (processors, to_open, reports) = (self.processors, open.clone(), self.reports());
        let run = move || {
            if let Some(all) = processors {
                // Otherwise it runs where the worker does.
                let _ = sched_setaffinity(None, &all);
            }
            run(&receiver, &to_open, &reports);
        };
        Builder::new()
            .name("executor".into())
            .stack_size(STACK)
            .spawn(run)
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::AGAIN))?;
        Ok(Executor { tasks, open, connections: 1 })
    }
}

/// That of any socket that is made here.
fn own_namespace() -> io::Result<Option<NetNamespace>> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    Ok(tcp::namespace(socket.as_raw_fd()).map(NetNamespace::Known))
}

/// A connection must not be lost with a thread that panics: once the process has ended, another one gives it back.
struct EndsProcess;

impl Drop for EndsProcess {
    fn drop(&mut self) {
        if std::thread::panicking() {
            std::process::abort();
        }
    }
}

fn run<T>(tasks: &Receiver<Task<T>>, open: &AtomicUsize, reports: &Reports<T>) {
    let _ends = EndsProcess;
    let mut closing = Closing::new();
    while let Ok(task) = tasks.recv() {
        let returned = task(&mut closing);
        open.fetch_sub(1, SeqCst);
        if let Some(returned) = returned {
            reports.tell(returned);
        }
    }
}

/// Tells the owner of executors of something.
pub struct Reports<T> {
    to_done: Sender<T>,
    news: Arc<OwnedFd>,
}

impl<T> Clone for Reports<T> {
    fn clone(&self) -> Reports<T> {
        Reports { to_done: self.to_done.clone(), news: self.news.clone() }
    }
}

impl<T> Reports<T> {
    fn tell(&self, what: T) {
        // Who asked may have ended.
        let _ = self.to_done.send(what);
        let _ = io::write(&*self.news, &1u64.to_ne_bytes());
    }

    /// For [`Closing::close`]. The owner is told `what` once the socket is closed, which may linger, and counts it until then.
    pub fn once_closed(self, socket: OwnedFd, what: T) -> ToldOf<T> {
        ToldOf { socket, _report: Report { reports: self, what: Some(what) } }
    }
}

/// A socket whose close the owner of executors is told of. The fields are dropped in this order.
pub struct ToldOf<T> {
    socket: OwnedFd,
    _report: Report<T>,
}

impl<T> AsFd for ToldOf<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

struct Report<T> {
    reports: Reports<T>,
    what: Option<T>,
}

impl<T> Drop for Report<T> {
    fn drop(&mut self) {
        if let Some(what) = self.what.take() {
            self.reports.tell(what);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sidestep_broker::domain::Domain;
    use sidestep_sys::tcp::traffic;
    use sidestep_testkit::held::Held;
    use std::io::{ErrorKind, Write};
    use std::net::{TcpListener, TcpStream};

    /// What would be there long before, if it came at all.
    const LONG: Duration = Duration::from_secs(10);

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (ours, listener.accept().unwrap().0)
    }

    fn asked(all: &Executors<&'static str>, domain: Key, socket: &TcpStream, name: &'static str) {
        let socket = socket.try_clone().unwrap();
        all.give(domain, Box::new(move |_| traffic(socket.as_raw_fd()).map(|_| name)));
    }

    fn next(all: &Executors<&'static str>) -> &'static str {
        loop {
            if let Some(name) = all.next() {
                return name;
            }
            assert!(is_readable(all.news(), LONG), "nothing is done");
            all.hush();
        }
    }

    #[test]
    fn the_users_of_one_network_namespace_leave_executors_to_others() {
        let user = |uid, netns| Key::from(Domain::User { uid, netns });
        let most = MOST_ELSEWHERE as u32;
        let mut all = Executors::<()>::start(None).unwrap();
        let (own, elsewhere) = (all.own.unwrap(), NetNamespace::Known(u64::MAX));
        (0..most).for_each(|uid| all.admit(user(uid, elsewhere)).unwrap());
        assert_eq!(all.admit(user(most, elsewhere)), Err(Errno::AGAIN));
        assert_eq!(all.admit(user(0, elsewhere)), Ok(()), "another connection");
        assert_eq!(all.admit(user(most, NetNamespace::UserMade)), Ok(()), "another namespace");
        assert_eq!(all.admit(Key::from(Domain::Pod(1))), Ok(()));
        (0..=most).for_each(|uid| all.admit(user(uid, own)).unwrap());
        all.leave(user(1, elsewhere));
        assert_eq!(all.admit(user(most, elsewhere)), Ok(()), "the place of one that has left");
    }

    #[test]
    fn results_are_waited_for_until_the_end_only() {
        let all = Executors::start(None).unwrap();
        all.give(Key::default(), Box::new(|_| Some("a result")));
        assert!(all.wait(LONG, Instant::now() + LONG));
        assert!(!all.wait(LONG, Instant::now()), "however many there are");
        assert_eq!(next(&all), "a result");
        all.hush();
        assert!(!all.wait(Duration::from_millis(1), Instant::now() + LONG));
    }

    /// A socket whose last close takes long, and its other end.
    fn lingering() -> (TcpStream, TcpStream) {
        let (mut ours, theirs) = connected();
        ours.set_nonblocking(true).unwrap();
        let full = loop {
            if let Err(error) = ours.write(&[0; 65536]) {
                break error;
            }
        };
        assert_eq!(full.kind(), ErrorKind::WouldBlock);
        rustix::net::sockopt::set_socket_linger(&ours, Some(3 * LONG)).unwrap();
        (ours, theirs)
    }

    #[test]
    fn a_socket_that_lingers_counts_until_it_is_closed_and_keeps_no_other_task_waiting() {
        let all = Executors::start(None).unwrap();
        let (ours, theirs) = lingering();
        all.close(Key::default(), ours.into(), "closed");
        all.give(Key::default(), Box::new(|_| Some("another task")));
        assert_eq!(next(&all), "another task");
        assert_eq!(all.next(), None, "it lingers");
        // Bytes that nobody has read reset the connection, and so end the lingering.
        drop(theirs);
        assert_eq!(next(&all), "closed");
    }

    #[test]
    fn a_socket_that_lingers_delays_no_close_of_a_domain_that_has_an_executor() {
        let [mallory, carol] = [1, 2].map(|pod| Key::from(Domain::Pod(pod)));
        let mut all = Executors::start(None).unwrap();
        all.admit(carol).unwrap();
        let ((hers, _peer), (his, its_peer)) = (connected(), lingering());
        rustix::net::sockopt::set_socket_linger(&hers, Some(LONG)).unwrap();
        all.close(mallory, his.into(), "the one that lingers");
        all.close(carol, hers.into(), "another domain's");
        assert_eq!(next(&all), "another domain's");
        drop(its_peer);
        assert_eq!(next(&all), "the one that lingers");
    }

    #[test]
    fn who_holds_its_sockets_lock_delays_its_own_domain_only() {
        let [mallory, carol] = [1, 2].map(|pod| Key::from(Domain::Pod(pod)));
        let mut all = Executors::start(None).unwrap();
        all.admit(mallory).unwrap();
        all.admit(carol).unwrap();
        let ((locked, _its_peer), (free, _peer)) = (connected(), connected());
        let held = Held::socket(&locked);
        asked(&all, mallory, &locked, "the held one");
        asked(&all, mallory, &free, "one behind it");
        for _ in 0..3 {
            asked(&all, carol, &free, "another domain's");
            assert_eq!(next(&all), "another domain's");
        }
        assert_eq!(all.next(), None);
        all.leave(mallory);
        all.end_idle();
        assert!(all.running.contains_key(&mallory), "a domain has one thread, however often it begins anew");
        drop(held);
        assert_eq!((next(&all), next(&all)), ("the held one", "one behind it"));
        all.leave(carol);
        all.end_idle();
        assert_eq!(all.running.keys().collect::<Vec<_>>(), [&Key::default()]);
    }
}
