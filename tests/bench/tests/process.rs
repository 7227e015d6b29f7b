//! The program, as the lab starts it.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command};

pub struct Running(pub Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    /// Returns when it says that it is ready. Its standard output is a pipe.
    pub fn wait_until_ready(&mut self) {
        let mut line = String::new();
        BufReader::new(self.0.stdout.as_mut().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
    }
}

pub fn bench(words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sidestep-bench"));
    command.args(words);
    command
}
