//! A peer that overwrites the shared words all the time: every call returns.
#![cfg(not(loom))]

use sidestep_abi::link::{COPYING, FROZEN, Reader, UNUSED, Writer};
use sidestep_abi::sync::Ordering::Relaxed;
use sidestep_ring::{Head, Input, Output, slot};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::{Duration, Instant};

const FROM: u64 = 100;
const TAIL: u64 = 110;

/// Writes words that are valid one by one, in quick succession: the worst case for exchanges.
fn scribble(writer: &Writer, reader: &Reader, stop: &AtomicBool) {
    let mut i = 0u64;
    while !stop.load(Relaxed) {
        i += 1;
        reader.head.store([UNUSED, FROM, FROM + i % 11, FROM | FROZEN, FROM | COPYING, i][i as usize % 6], Relaxed);
        writer.tail.store(FROM + i % 12, Relaxed);
        writer.epoch.store(i as u32, Relaxed);
        writer.ring_from.store(FROM + i % 2, Relaxed);
    }
}

/// Stops the other thread on drop.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Runs both ends for a second in memory that another thread keeps overwriting.
#[test]
fn every_call_returns() {
    let (writer, reader, stop) = (Writer::default(), Reader::default(), AtomicBool::new(false));
    slot::reset_reader(&reader);
    let mut fresh = Output::default();
    fresh.begin(&writer, &reader, FROM).expect("a fresh direction");
    fresh.tail = TAIL;
    thread::scope(|scope| {
        scope.spawn(|| scribble(&writer, &reader, &stop));
        let _stop = Stop(&stop);
        let end = Instant::now() + Duration::from_secs(1);
        let (mut violations, mut rounds) = (0, 0);
        while Instant::now() < end {
            let began = Instant::now();
            *(if one_round(&writer, &reader, fresh) { &mut rounds } else { &mut violations }) += 1;
            assert!(began.elapsed() < Duration::from_secs(5), "one round took {:?}", began.elapsed());
        }
        assert!(violations > 0 && rounds > 0, "{violations} violations in {rounds} rounds: nobody scribbles");
    });
}

/// Makes every call once. True: the writer marked the stretch, or found it ended, while words were changing.
fn one_round(writer: &Writer, reader: &Reader, mut output: Output) -> bool {
    if let Ok(Head::At(pos) | Head::Frozen(pos)) = output.poll(reader) {
        assert!((FROM..=TAIL).contains(&pos));
    }
    let marked = output.mark_copying(writer, reader);
    assert!(!matches!(marked, Ok(Head::At(pos) | Head::Frozen(pos)) if !(FROM..=TAIL).contains(&pos)));
    output.complete(writer, 3);
    let mut input = Input::at_position(FROM);
    if let Some(stretch) = input.announced(writer).filter(|s| s.from == FROM) {
        let _ = input.enter(reader, stretch);
    }
    if let Ok(n) = input.available(writer, 16) {
        assert!(n <= 16);
        let _ = input.advance(reader, n);
    }
    marked.is_ok()
}
