//! Calls before main, even before a preloaded library's constructor.

use crate::case::{Case, case};
use crate::early;
use crate::end::{End, Side};
use crate::hosts;
use crate::link::{self, Listener};
use crate::sys::net::Family::V4;
use crate::sys::process::in_child;
use crate::sys::{io, net};

pub const CASES: &[Case] = &[case("early.connects_and_forks_before_main", before_main)
    .may("the connection was made before the library could see it")];

fn before_main() {
    let listener = Listener::new(V4);
    let text = |text: String| std::ffi::CString::new(text).expect("no NUL");
    let port = text(listener.port().to_string());
    let address = text(hosts::addresses(Side::Server).0.to_string());
    let program = crate::spawn::program();
    let child = in_child(|| {
        // SAFETY: path and arguments are valid and end with null.
        unsafe {
            libc::execl(
                program.as_ptr(),
                c"posix-cases".as_ptr(),
                c"early".as_ptr(),
                address.as_ptr(),
                port.as_ptr(),
                std::ptr::null::<libc::c_char>(),
            )
        };
        panic!("execl: {:?}", crate::sys::errno::Errno::last());
    });
    let fd = listener.accept();
    net::set_nodelay(fd);
    for _ in 0..early::PINGS {
        let mut byte = [0];
        assert_eq!(io::read(fd, &mut byte), Ok(1));
        assert_eq!(io::write(fd, &byte), Ok(1));
    }
    let mut end = End::new(fd, Side::Server);
    link::warm_answering(&mut end);
    end.rx.expect_eof();
    child.succeed();
}
