//! TCP_INFO.

use crate::kernel::CallError;
use crate::options;
use crate::state::{Path, Scales};
use rustix::fd::BorrowedFd;

/// `TCP_ESTABLISHED` of net/tcp_states.h.
pub(crate) const ESTABLISHED: u8 = 1;
/// `TCPI_OPT_*` of linux/tcp.h. Those not named here say nothing of packets to come.
pub(crate) const TIMESTAMPS: u8 = 1;
pub(crate) const SACK: u8 = 2;
pub(crate) const SCALES: u8 = 4;
pub(crate) const ECN: u8 = 8;
pub(crate) const MICROSECONDS: u8 = 64;

/// The kernel's `struct tcp_info` up to `tcpi_bytes_acked`, as 32-bit words.
#[derive(Clone, Copy)]
pub(crate) struct Info([u32; 32]);

impl Info {
    pub(crate) fn read(fd: BorrowedFd) -> Result<Info, CallError> {
        options::TCP_INFO.get(fd).map(Info)
    }

    fn byte(&self, at: usize) -> u8 {
        self.0[at / 4].to_ne_bytes()[at % 4]
    }

    pub(crate) fn state(&self) -> u8 {
        self.byte(0)
    }

    pub(crate) fn options(&self) -> u8 {
        self.byte(5)
    }

    /// Bytes that the peer has acknowledged since connect(2) or a give-back.
    pub(crate) fn acknowledged(&self) -> u64 {
        let [low, high] = if cfg!(target_endian = "little") { [30, 31] } else { [31, 30] };
        u64::from(self.0[low]) | u64::from(self.0[high]) << 32
    }

    pub(crate) fn scales(&self) -> Option<Scales> {
        // Two bit fields of one byte, `tcpi_snd_wscale` first.
        let byte = self.byte(6);
        let (low, high) = (byte & 15, byte >> 4);
        let (send, receive) = if cfg!(target_endian = "little") { (low, high) } else { (high, low) };
        (self.options() & SCALES != 0).then_some(Scales { send, receive })
    }

    pub(crate) fn path(&self) -> Path {
        let words = &self.0;
        let [ca_state, retransmits] = [self.byte(1), self.byte(2)];
        let [sacked, lost, retransmitted] = [words[7], words[8], words[9]];
        Path {
            rto_us: words[2],
            mss: words[4],
            mtu: words[15],
            srtt_us: words[17],
            rttvar_us: words[18],
            ssthresh: words[19],
            cwnd: words[20],
            recovering: ca_state != 0 || retransmits != 0 || sacked | lost | retransmitted != 0,
        }
    }
}
