//! A program that is started without standard descriptors: the first file that is opened would get descriptor 0, 1 or 2, to
//! which programs print.

use crate::end::{End, Side};
use crate::link;
use crate::sys::net::{Addr, Family};
use crate::sys::{fds, process};

/// Exits with code 0 if all is well; there is no descriptor to print to.
pub fn run(port: &str) {
    process::die_with_parent();
    // Rust's runtime opens /dev/null on the three descriptors, unless they are taken.
    for fd in 0..3 {
        assert_eq!(fds::target(fd).as_deref(), Some("/dev/null"), "descriptor {fd}");
        fds::close(fd).expect("close");
    }
    let port = port.parse().expect("a port");
    let fd = link::connect(&Addr::server(Family::V4, port), Family::V4);
    assert_eq!(fd, 0, "the lowest number is free for the program");
    let mut end = End::new(fd, Side::Client);
    link::warm_asking(&mut end);
    assert_eq!(fds::target(1), None, "something else is on descriptor 1");
    assert_eq!(fds::target(2), None, "something else is on descriptor 2");
    end.close();
    assert_eq!(fds::target(0), None, "something else is on descriptor 0");
}
