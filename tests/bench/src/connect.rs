//! A new connection for each request: the price of being watched by a library that does nothing for it.

use std::io::{Read, Write};
use std::time::Instant;

use crate::args::{Args, Role};
use crate::net;

const MESSAGE: usize = 64;

pub fn run(args: &Args) -> Result<(), String> {
    let role = args.role()?;
    let conns: u32 = args.get("conns", 4000)?;
    match role {
        Role::Server => {
            args.finish()?;
            serve(conns)
        }
        Role::Client => {
            let port: u16 = args.required("port")?;
            args.finish()?;
            let start = Instant::now();
            for _ in 0..conns {
                one_request(port)?;
            }
            let seconds = start.elapsed().as_secs_f64();
            let rate = f64::from(conns) / seconds;
            net::say(&format!("{{\"conns\":{conns},\"seconds\":{seconds:.6},\"conns_per_s\":{rate:.1}}}"))
        }
    }
}

fn serve(conns: u32) -> Result<(), String> {
    let listener = net::listen(0)?;
    net::announce(&listener)?;
    let mut message = [0u8; MESSAGE];
    for _ in 0..conns {
        let mut stream = net::accept(&listener)?;
        stream.read_exact(&mut message).map_err(|e| format!("read: {e}"))?;
        stream.write_all(&message).map_err(|e| format!("write: {e}"))?;
        // The client closes first: TIME_WAIT stays with its port, which the kernel may use again.
        if stream.read(&mut message).map_err(|e| format!("read: {e}"))? != 0 {
            return Err("a client sent more than one request".into());
        }
    }
    Ok(())
}

fn one_request(port: u16) -> Result<(), String> {
    let mut stream = net::connect_to(port, 0)?;
    let mut message = [0x42u8; MESSAGE];
    stream.write_all(&message).map_err(|e| format!("write: {e}"))?;
    stream.read_exact(&mut message).map_err(|e| format!("read: {e}"))
}
