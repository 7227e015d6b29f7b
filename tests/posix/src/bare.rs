//! A program that is started without standard descriptors: whatever is opened first would land
//! on 0, 1 or 2, where programs print.

use crate::end::{End, Side};
use crate::link;
use crate::sys::net::{Addr, Family};
use crate::sys::{fds, process};

/// Exit code 0 when all was well; there is nowhere to print to.
pub fn run(port: &str) {
    process::die_with_parent();
    // Rust's runtime has filled the three with /dev/null, unless something was there before it.
    for fd in 0..3 {
        assert_eq!(fds::target(fd).as_deref(), Some("/dev/null"), "descriptor {fd}");
        fds::close(fd).expect("close");
    }
    let port = port.parse().expect("a port");
    let fd = link::connect(&Addr::loopback(Family::V4, port), Family::V4);
    assert_eq!(fd, 0, "the lowest number is free for the program");
    let mut end = End::new(fd, Side::Client);
    link::warm_asking(&mut end);
    assert_eq!(fds::target(1), None, "something else is on descriptor 1");
    assert_eq!(fds::target(2), None, "something else is on descriptor 2");
    end.close();
    assert_eq!(fds::target(0), None, "something else is on descriptor 0");
}
