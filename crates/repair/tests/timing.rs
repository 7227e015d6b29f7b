//! How long take and give-back last. The figures are printed; the bound is far above them.

use crate::common::*;
use sidestep_repair::{Queues, examine, give_back, take};
use std::time::{Duration, Instant};

const TIMES: usize = 2000;
/// A median above this is a fault, whatever else the machine does.
const BOUND: Duration = Duration::from_millis(5);

#[derive(Default)]
struct Times(Vec<Duration>);

impl Times {
    fn measure<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let begin = Instant::now();
        let done = work();
        self.0.push(begin.elapsed());
        done
    }

    fn report(mut self, what: &str) {
        self.0.sort();
        let at = |percent: usize| self.0[self.0.len() * percent / 100].as_nanos() as f64 / 1000.0;
        println!("{what}: median {:.1} us, p99 {:.1} us, of {}", at(50), at(99), self.0.len());
        assert!(self.0[self.0.len() / 2] < BOUND, "{what}");
    }
}

fn time(unread: usize, unsent: usize) {
    let wire = Wire::new(1500);
    let (near, far) = wire.connect(&USUAL);
    near.set_nonblocking(true).expect("O_NONBLOCK");
    far.set_nonblocking(true).expect("O_NONBLOCK");
    let mut to_near = Expected::new(1);
    while to_near.written < unread as u64 {
        to_near.write(&far, unread - to_near.written as usize);
    }
    until("the bytes arrive", || raw::unread(&near) == unread as u64);
    wire.close();
    let mut to_far = Expected::new(2);
    assert_eq!(to_far.write(&near, unsent), unsent);
    let [mut examining, mut taking, mut giving] = [Times::default(), Times::default(), Times::default()];
    for _ in 0..TIMES {
        examining.measure(|| examine(&near)).expect("examine");
        let taken = taking.measure(|| take(&near)).expect("take");
        let queues = Queues::new(&taken.unread, &taken.unacknowledged);
        giving.measure(|| give_back(&near, &taken.state, &queues)).expect("give back");
    }
    let filling = format!("{unread} bytes unread, {unsent} unacknowledged");
    examining.report(&format!("examine, {filling}"));
    taking.report(&format!("take, {filling}"));
    giving.report(&format!("give back, {filling}"));
    wire.open();
    finish(near, far, &mut to_far, &mut to_near, 1000);
}

#[test]
fn with_empty_queues() {
    time(0, 0);
}

#[test]
fn with_a_message_in_each() {
    time(128, 128);
}

#[test]
fn with_64_kib_unread() {
    time(1 << 16, 0);
}

#[test]
fn with_64_kib_in_each() {
    time(1 << 16, 1 << 16);
}
